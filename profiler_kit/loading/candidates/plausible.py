"""Values of constructor parameters that nothing in the repository gives: from the usual names, annotations and each other."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from profiler_kit.foreign import attribute_of

UNKNOWN: Final = inspect.Parameter.empty
_GENERIC_SIZE: Final = 64


def _classes(bound: Mapping[str, Any]) -> int:
    """1000 classes for images of ImageNet's size, otherwise 10."""
    sizes = [value for name, value in bound.items() if re.fullmatch(r"(image|img|input)_?(size|resolution)", name)]
    return 1000 if any(isinstance(size, int) and size >= 128 for size in sizes) else 10


def _width(bound: Mapping[str, Any]) -> int:
    """The model's width among the bound arguments, otherwise 256."""
    widths = (value for name, value in bound.items() if _WIDTH.fullmatch(name.lower()) and isinstance(value, int))
    return next(widths, 256)


def _heads(bound: Mapping[str, Any]) -> int:
    """The largest usual number of heads that divides the width."""
    return next(count for count in (8, 6, 4, 2, 1) if _width(bound) % count == 0)


def _head_width(bound: Mapping[str, Any]) -> int:
    heads = next((v for n, v in bound.items() if _HEADS.fullmatch(n.lower()) and isinstance(v, int)), _heads(bound))
    return max(1, _width(bound) // max(heads, 1))


_WIDTH: Final = re.compile(
    r"(d_?model|dim|dims|embed_?dim|emb_?dim|n_?embd?|embedding_?(dim|size)|embed_?size|d_word_vec|width|model_?dim)"
)


_HEADS: Final = re.compile(r"(n_?heads?|num_?heads|heads|num_attention_heads|attn_?heads|h)")
_SHORTEST_PREFIX: Final = 3
_COUNTS: Final = frozenset({"num", "max", "min", "use", "with", "has"})  # words that change the meaning of the next one
_Rule = int | float | bool | str | tuple[int, ...] | Callable[[Mapping[str, Any]], Any] | None

# Usual names in torchvision, timm, transformers, torch.nn and the models of its tutorials. A function computes a value
# that agrees with the other arguments. The first pattern that matches the whole name, in lower case, decides.
_RULES: Final[tuple[tuple[re.Pattern[str], _Rule], ...]] = tuple(
    (re.compile(pattern), value)
    for pattern, value in (
        (r"(num|n|nb|no)_?(of_)?(classes|class|labels|cls|categories)|nclass|class_?num|classes|"
         r"num_output(s)?_?classes", _classes),
        (r"(num_?|n_?|in_?|input_?|img_?|image_?|inp_?)?(channels?|chans?|ch)|nc|input_nc|inchannels?|"
         r"in_c|c_in|n_?channels_?in", 3),
        (r"(out|output)_?(channels?|chans?|ch|nc)|out_c|c_out|n_?channels_?out", 64),
        (r"\w+_(channels?|chans?)", 64),
        (r"(image|img|input|in)_?(size|resolution|res|shape|height|width|h|w)|resolution|height|width_?px|"
         r"sample_?size", 224),
        (r"patch(_?size|es)?", 16),
        (r"(frames|num_frames|n_frames)", 16),
        (r"(frame_)?(image_)?(temporal_)?patch_size", 16),
        (_WIDTH.pattern, 256),
        (r"(d_?ff|ff_?dim|d_?inner(_hid)?|mlp_?dim|ffn?_?(hidden)?_?(dim|size)|dim_?feedforward|"
         r"intermediate_size|ffn_embed_dim|hidden_features)",
         lambda bound: 4 * _width(bound)),
        (r"hidden_?(size|dim|dims|units|channels|features)?|hid_?(dim|size)|n_?hid(den)?|nhid|rnn_size|"
         r"hidden_state_size", 256),
        (r"(n|num|number|nb)_?(of_)?(hidden_|encoder_|decoder_|transformer_|rnn_|res_?)?(layers?|blocks?|"
         r"stages)|depths?|layers|nlayers?|n_?layer", 2),
        (_HEADS.pattern, _heads),
        (r"(dim_?head|head_?dim|d_k|d_v|head_size)", _head_width),
        (r"(.*_)?(vocab(_?size)?|n_?tokens?|num_?tokens|num_embeddings|n_?vocab|vocabulary_size|n_words|dict_size)", 10_000),
        (r"(max_?)?(seq|sequence|text|context|src|tgt|trg)_?(len|length|size)|block_size|context_?(window|"
         r"size)?|max_?len(gth)?|n_?ctx|"
         r"max_(position|seq|sequence|position_embeddings|positions)|max_seq_length|maxlen|seqlen|n_position", 128),
        (r"(n|num)_?(symbols|chars|characters|letters|phonemes|phones)", 128),
        (r"(.*_)?pad(ding)?_?(idx|id|index|token|token_id)", 0),
        (r"(.*_)?(bos|eos|sos|start|end|mask|cls|sep)_?(idx|id|token_id|index)", 1),
        (r"(latent|z|noise|code|bottleneck)_?(dim|size|features|channels)?|nz", 100),
        (r"(ngf|ndf|nf|base_?(channels?|width|filters|ch|dim)|n?_?filters|num_filters|features|"
         r"init_?features|feature_maps|start_?filters)", 64),
        (r"(in_?|inp_?|out_?|mid_?)?planes|inplanes|outplanes|nin|nout|num_features|n_?feats?|"
         r"feat(ure)?_?(dim|size|channels)?|filters", 64),
        (r"(input|in|inp)_?(dim|dims|features|feats?|size|units)|nfeat|input_?features|n_?features|"
         r"n_?inputs?|num_inputs?|state_?(dim|size)|obs_?(dim|size)|"
         r"observation_?(dim|size|space)|n_?states|num_states", 64),
        (r"(output|out)_?(dim|dims|features|feats?|size|units)|n_?outputs?|num_outputs?|action_?(dim|"
         r"size)|n_?actions|num_actions", 10),
        (r"kernel_?(size)?|ksize|k_size", 3),
        (r"stride|dilation|groups|upscale|expansion|width_?mult(iplier)?|depth_?mult(iplier)?|scale|multiplier", 1),
        (r"(up)?scale_?factor|upsampling_factor", 2),
        (r"padding", 1),
        (r"(reduction|squeeze|reduction_?ratio|r)", 16),
        (r"(mlp|ffn?|expan(d|sion))_?(ratio|rate|factor)", 4),
        (r"(sampl(e|ing)_?rate|sr)", 16_000),
        (r"growth_?rate|k", 32),
        (r"(.*_)?(drop(out)?|dp)(_?(path|out))?(_?(rate|ratio|p|prob))?|(.*_)?(p_?drop(out)?|keep_prob)", 0.1),
        (r".*_?(prob|probability|ratio)", 0.5),
        (r"(lr|learning_rate)", 1e-3),
        (r"(alpha|negative_slope|leaky_slope)", 0.2),
        (r"(eps|epsilon)", 1e-5),
        (r"(momentum|beta)", 0.1),
        (r"(temperature|tau|gamma|lambda_?|weight)", 1.0),
        (r"(use_?)?bias|batch_first", True),
        (r"bidirectional|pretrained|bilinear|causal|debug|verbose|use_\w+|with_\w+|is_\w+", False),
        (r"(batch_?size|bs|bsz)", 1),
        (r"(num_?|n_?)?(nodes|points|n_points|num_points)", 128),
        (r"(num_?)?(timesteps?|steps|diffusion_steps)", 1000),
        (r"(num_?|n_?)(experts?|queries|groups|anchors|masks|codes|relations|mixtures?|gaussians)", 8),
        (r"device", lambda bound: torch.get_default_device()),
        (r"(act|activation|act_layer|activation_?(fn|fun|function|func|layer))", lambda bound: nn.ReLU),
        (r"(norm|norm_layer|normalization|norm_fn)", lambda bound: nn.BatchNorm2d),
    )
)  # fmt: skip


def plausible_value(
    name: str, bound: Mapping[str, Any], *, annotation: Any = UNKNOWN, is_part: bool = False, generic: bool = False
) -> Any:
    """A usual value for the parameter `name` that agrees with the arguments in `bound`; `UNKNOWN` if there is none.

    `is_part`: the class is a building block; its inputs are feature maps, not images. With `generic`, a parameter without a usual
    name is a size.
    """
    lowered = name.lower().strip("_")
    text = annotation if isinstance(annotation, str) else attribute_of(annotation, "__name__", str) or str(annotation)
    if is_part and re.fullmatch(r"(in|input|inp|n)?_?(channels?|chans?|ch|c|planes)|c_in|dim", lowered):
        return _GENERIC_SIZE
    value = _by_name(lowered, bound)
    return _by_annotation(lowered, text, generic=generic) if value is UNKNOWN else _as_annotated(value, text)


def _by_name(name: str, bound: Mapping[str, Any]) -> Any:
    """The value of the first rule for `name`, or for the name without the part of the model before it: ``vision_width``."""
    for pattern, rule in _RULES:
        if pattern.fullmatch(name):
            return rule(bound) if callable(rule) else rule
    prefix, underscore, tail = name.partition("_")
    if not underscore or len(prefix) < _SHORTEST_PREFIX or prefix in _COUNTS:
        return UNKNOWN
    same_part = {key.removeprefix(f"{prefix}_"): value for key, value in bound.items() if key.startswith(f"{prefix}_")}
    return _by_name(tail, same_part | {key: value for key, value in bound.items() if key not in same_part})


def _as_annotated(value: Any, annotation: str) -> Any:
    """`value` in the annotated form: a pair of sizes for ``tuple[int, int]``, equal sizes for ``list[int]``."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if re.match(r"(typing\.)?[Tt]uple\[int, int, int\]", annotation):
        return (value,) * 3
    if re.match(r"(typing\.)?[Tt]uple\[", annotation):
        return (value,) * 2
    if re.match(r"(typing\.)?([Ll]ist|Sequence)\[int\]", annotation):
        return [value] * 2
    return value


def _by_annotation(name: str, annotation: str, *, generic: bool) -> Any:
    values: tuple[tuple[str, Any], ...] = (
        (r"(typing\.)?Optional\[.*\]|.*\| ?None", None),
        (r"bool", False),
        (r"int", _GENERIC_SIZE),
        (r"float", 0.1),
        (r"(typing\.)?[Tt]uple\[int, int, int\]", (3, 224, 224)),
        (r"(typing\.)?[Tt]uple\[int, int\]|[Tt]uple", (2, 2)),
        (r"(typing\.)?([Ll]ist|Sequence)(\[int\])?", [_GENERIC_SIZE, _GENERIC_SIZE]),
    )
    for pattern, value in values:
        if re.fullmatch(pattern, annotation):
            return value
    if re.search(r"_(dim|dims|size|channels?|features|units|width|ch|nc)$|^(hidden|emb|n_|num_|d_|dim_|size_)", name):
        return (
            2
            if name.startswith(("n_", "num_")) and not name.endswith(("dim", "size", "channels", "features"))
            else _GENERIC_SIZE
        )
    return _GENERIC_SIZE if generic and annotation == "_empty" else UNKNOWN
