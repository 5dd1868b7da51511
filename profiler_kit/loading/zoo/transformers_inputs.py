"""Random inputs from a transformers config, in the sizes that the model expects, with labels if it takes any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn

from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.zoo.recipe import Inputs
from profiler_kit.meta.batch import Forward, dtype_name

SEQUENCE: Final = 128
WAVE_SAMPLES: Final = 16_000  # a second of speech
SPECTRUM_FRAMES: Final = 256
TRANSCRIPT: Final = 16
IMAGE: Final = 224

_PER_SAMPLE: Final = (
    "ForSequenceClassification", "ForImageClassification", "ForVideoClassification", "ForAudioClassification",
    "ForSpeechClassification", "ForNextSentencePrediction", "ForMultipleChoice", "ForXVector",
    "ForImageClassificationWithTeacher",
)  # fmt: skip
_PER_TOKEN: Final = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "ForTokenClassification")


def random_inputs(
    config: Any, model: nn.Module, forward: Forward, texts: tuple[InputText, ...], *, training: bool
) -> Inputs:
    """(input texts, other keyword arguments) of a step; all inputs are passed by name.

    The user's `texts` determine batch size, sequence length and image size; the first one without a name is the main input.
    In training, the inputs include labels for the model's head, and the generation cache is off.
    """
    main = str(getattr(model, "main_input_name", "input_ids"))
    named_texts = [text if text.name is not None else replace(text, name=main) for text in texts]
    first = next((text for text in named_texts if text.name == main), None)
    config_inputs = _ConfigInputs(config, model, forward, first)
    inputs = {text.name: text for text in config_inputs.inputs(main)}
    if training:
        inputs.update((text.name, text) for text in config_inputs.labels())
    elif config_inputs.is_seq2seq and "decoder_input_ids" in forward.names:
        inputs["decoder_input_ids"] = config_inputs.ids("decoder_input_ids", config_inputs.decoder_length)
    for text in named_texts:
        default = inputs.get(text.name)
        if (
            default is not None
            and default.is_integer
            and text.is_integer
            and text.low is None
            and default.low is not None
        ):
            text = replace(text, low=default.low, high=default.high)
        inputs[text.name] = text
    extras: dict[str, Any] = {}
    if "return_loss" in forward.names and training:
        extras["return_loss"] = True
    if training and "use_cache" in forward.names:
        extras["use_cache"] = False
    return tuple(config_inputs.typed(text) for text in inputs.values()), extras


class _ConfigInputs:
    """The inputs and labels that fit one config."""

    def __init__(self, config: Any, model: nn.Module, forward: Forward, first: InputText | None) -> None:
        self._config, self._model, self._forward = config, model, forward
        self._text = config.get_text_config()
        self._vision = getattr(config, "vision_config", None) or config
        self._first = first
        self._batch = first.shape[0] if first is not None and first.shape else 1
        longest = _positive(self._text, "max_position_embeddings", "n_positions", "max_target_positions")
        length = min(SEQUENCE, longest) if longest is not None else SEQUENCE
        if first is not None and first.name == "input_ids" and len(first.shape) > 1:
            length = first.shape[-1]
        self._length = length
        self._dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)

    @property
    def is_seq2seq(self) -> bool:
        return bool(getattr(self._config, "is_encoder_decoder", False))

    @property
    def decoder_length(self) -> int:
        longest = _positive(self._text, "max_target_positions", "max_position_embeddings")
        return min(self._length, longest) if longest is not None else self._length

    @property
    def _is_multiple_choice(self) -> bool:
        return type(self._model).__name__.endswith("ForMultipleChoice")

    def typed(self, text: InputText) -> InputText:
        """`text`, with the dtype of the weights if it is a floating-point input."""
        if text.dtype is None and self._dtype is not torch.float32:
            return replace(text, dtype=dtype_name(self._dtype))
        return text

    def ids(self, name: str, length: int) -> InputText:
        """Token ids."""
        high = _positive(self._text, "vocab_size") or 2
        shape = (self._batch, 2, length) if self._is_multiple_choice else (self._batch, length)
        return InputText(shape=shape, name=name, dtype="int64", low=0, high=high)

    def inputs(self, main: str) -> Iterator[InputText]:
        """The main input, and the inputs of other modalities that `forward` takes."""
        is_multimodal = "pixel_values" in self._forward.names and "input_ids" in self._forward.names
        # with image tokens in the text, random tokens would refer to missing images
        has_image_tokens = any(hasattr(self._config, name) for name in ("image_token_id", "image_token_index"))
        if "input_ids" in self._forward.names and (main == "input_ids" or is_multimodal):
            yield self.ids("input_ids", self._length)
        if main == "pixel_values" or (is_multimodal and not has_image_tokens):
            yield InputText(shape=self._pixels(), name="pixel_values")
        elif main == "pixel_values_videos":
            size = self._image_size()
            frames = _positive(self._vision, "frames_per_clip", "num_frames") or 16
            channels = _positive(self._vision, "in_chans", "num_channels") or 3
            yield InputText(shape=(self._batch, frames, channels, *size), name=main)
        elif main == "input_features":
            yield InputText(shape=self._spectrum(), name=main)
        elif main == "input_values":
            yield InputText(shape=self._wave_or_spectrum(), name=main)

    def labels(self) -> Iterator[InputText]:
        """Labels, if the class takes them as tensors; none for classes that take lists of boxes."""
        names, head = self._forward.names, type(self._model).__name__
        if "start_positions" in names and "end_positions" in names:
            for name in ("start_positions", "end_positions"):
                yield InputText(shape=(self._batch,), name=name, dtype="int64", low=0, high=self._length)
            return
        if "labels" not in names:
            return
        classes = _positive(self._config, "num_labels") or 2
        if head.endswith(_PER_SAMPLE):
            if head.endswith("ForMultipleChoice"):
                classes = 2
            yield InputText(shape=(self._batch,), name="labels", dtype="int64", low=0, high=classes)
        elif head.endswith("ForTokenClassification"):
            yield InputText(shape=(self._batch, self._length), name="labels", dtype="int64", low=0, high=classes)
        elif head.endswith("ForCTC"):
            high = _positive(self._text, "vocab_size") or 2
            yield InputText(shape=(self._batch, TRANSCRIPT), name="labels", dtype="int64", low=1, high=high)
        elif head.endswith("ForSemanticSegmentation"):
            size = self._pixels()[-2:]
            yield InputText(shape=(self._batch, *size), name="labels", dtype="int64", low=0, high=classes)
        elif head.endswith("ForDepthEstimation"):
            return
        elif head.endswith(_PER_TOKEN) or self.is_seq2seq:
            yield self.ids("labels", self.decoder_length if self.is_seq2seq else self._length)
        elif head.endswith("ForPreTraining") and "next_sentence_label" in names:
            yield self.ids("labels", self._length)
            yield InputText(shape=(self._batch,), name="next_sentence_label", dtype="int64", low=0, high=2)

    def _pixels(self) -> tuple[int, ...]:
        if self._first is not None and self._first.name == "pixel_values":
            return self._first.shape
        channels = _positive(self._vision, "num_channels", "in_channels", "in_chans") or 3
        frames = _positive(self._vision, "num_frames")
        return (self._batch, *((frames,) if frames is not None else ()), channels, *self._image_size())

    def _image_size(self) -> tuple[int, int]:
        for holder in (self._vision, self._config, getattr(self._config, "backbone_config", None)):
            size = getattr(holder, "image_size", None) or getattr(holder, "img_size", None)
            if isinstance(size, int):
                return size, size
            if isinstance(size, (tuple, list)) and len(size) == 2:
                return int(size[0]), int(size[1])
        return IMAGE, IMAGE

    def _spectrum(self) -> tuple[int, ...]:
        """(batch, bins, frames) for models with a fixed window, such as Whisper; otherwise (batch, frames, bins)."""
        holder = getattr(self._config, "audio_config", None) or self._config
        window = _positive(holder, "max_source_positions")
        bins = (
            _positive(holder, "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_dim")
            or 80
        )
        if window is not None and _positive(holder, "num_mel_bins") is not None:
            return self._batch, bins, 2 * window
        return self._batch, SPECTRUM_FRAMES, bins

    def _wave_or_spectrum(self) -> tuple[int, ...]:
        bins = _positive(self._config, "num_mel_bins")
        frames = _positive(self._config, "max_length")
        if bins is not None and hasattr(self._config, "frequency_stride"):
            return self._batch, frames or 1024, bins
        return self._batch, WAVE_SAMPLES


def _positive(holder: Any, *names: str) -> int | None:
    """The first attribute in `names` that is a positive integer; None without one."""
    values = (getattr(holder, name, None) for name in names)
    return next(
        (value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0), None
    )
