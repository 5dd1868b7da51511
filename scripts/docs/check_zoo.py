"""Count models of torchvision, transformers and timm, check them against published figures, and write docs/zoo.md.

Needs torchvision, transformers and timm. A missing package's section is skipped::

    pip install numpy transformers && pip install --no-deps timm torchvision   # keeps the torch you have
    python -m scripts.docs.check_zoo            # prints the page; exit status 1 if a figure differs from a published one
    python -m scripts.docs.check_zoo --write    # also writes docs/zoo.md

torchvision publishes, with its weights, the multiply-accumulates of a forward pass in eval mode (``_ops``, in 10^9, rounded
to three places) and the number of parameters. A model agrees if the parameters are equal and the MACs differ by at most
0.1 % or 0.001 G. Each model is built as its weights require (for example, with the auxiliary head of segmentation
networks) and gets the input size of their preprocessing. Optical-flow weights name no size; 512x512 reproduces their
figures. transformers' models are built small and counted as a training step; every op must have a formula. timm
publishes no figures with its package: its models are counted as a training step of two images, because some batch
norms need more than one.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from profiler_kit.counting import count_target
from profiler_kit.errors import KitError
from profiler_kit.loading import load
from profiler_kit.loading.zoo.torchvision_models import input_shape
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.environment import define_missing_ops

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "zoo.md"
MOST_RELATIVE: Final = 1e-3
MOST_GIGA: Final = 1e-3

# ruff: noqa: E501
# One model per line: family, class, and the arguments that make it small.
_TEXT: Final = (
    "hidden_size=64",
    "num_hidden_layers=2",
    "num_attention_heads=4",
    "intermediate_size=128",
    "vocab_size=512",
)
_GROUPED: Final = (*_TEXT, "num_key_value_heads=2")
_BART: Final = (
    "d_model=64", "encoder_layers=2", "decoder_layers=2", "encoder_attention_heads=4", "decoder_attention_heads=4",
    "encoder_ffn_dim=128", "decoder_ffn_dim=128",
)  # fmt: skip
_T5: Final = ("d_model=64", "d_kv=16", "d_ff=128", "num_layers=2", "num_heads=4", "vocab_size=512")
_SPEECH: Final = ("hidden_size=64", "num_hidden_layers=2", "num_attention_heads=4", "intermediate_size=128")
_VISION: Final = (*_SPEECH, "image_size=64", "patch_size=16")
CONFIGURATIONS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("encoder", "BertForMaskedLM", _TEXT),
    ("encoder", "BertForSequenceClassification", _TEXT),
    ("encoder", "RobertaForTokenClassification", _TEXT),
    ("encoder", "DistilBertForQuestionAnswering", ("dim=64", "n_layers=2", "n_heads=4", "hidden_dim=128", "vocab_size=512")),
    ("encoder", "ElectraForMaskedLM", (*_TEXT, "embedding_size=64")),
    ("encoder", "AlbertForMaskedLM", (*_TEXT, "embedding_size=32")),
    ("encoder", "DebertaV2ForMaskedLM", _TEXT),
    ("encoder", "ModernBertForMaskedLM", (*_TEXT, "pad_token_id=0", "bos_token_id=1", "eos_token_id=2", "cls_token_id=1", "sep_token_id=2")),
    ("decoder", "GPT2LMHeadModel", ("n_embd=64", "n_layer=2", "n_head=4", "vocab_size=512", "bos_token_id=0", "eos_token_id=0")),
    ("decoder", "OPTForCausalLM", ("hidden_size=64", "num_hidden_layers=2", "num_attention_heads=4", "ffn_dim=128", "vocab_size=512", "word_embed_proj_dim=64")),
    ("decoder", "GPTNeoXForCausalLM", _TEXT),
    ("decoder", "BloomForCausalLM", ("hidden_size=64", "n_layer=2", "n_head=4", "vocab_size=512")),
    ("decoder", "PhiForCausalLM", _TEXT),
    ("decoder, GQA", "LlamaForCausalLM", _GROUPED),
    ("decoder, GQA", "MistralForCausalLM", _GROUPED),
    ("decoder, GQA", "Qwen2ForCausalLM", _GROUPED),
    ("decoder, GQA", "Qwen3ForCausalLM", (*_GROUPED, "head_dim=16")),
    ("decoder, GQA", "Gemma2ForCausalLM", (*_GROUPED, "head_dim=16")),
    ("decoder, MoE", "MixtralForCausalLM", (*_GROUPED, "num_local_experts=4")),
    ("decoder, MoE", "Qwen3MoeForCausalLM", (*_GROUPED, "num_experts=4", "num_experts_per_tok=2", "moe_intermediate_size=32")),
    ("decoder, MoE", "OlmoeForCausalLM", (*_GROUPED, "num_experts=4", "num_experts_per_tok=2")),
    ("decoder, state space", "MambaForCausalLM", ("hidden_size=64", "num_hidden_layers=2", "state_size=8", "vocab_size=512")),
    ("encoder-decoder", "T5ForConditionalGeneration", _T5),
    ("encoder-decoder", "BartForConditionalGeneration", (*_BART, "vocab_size=512")),
    ("encoder-decoder", "PegasusForConditionalGeneration", (*_BART, "vocab_size=512")),
    ("vision", "ViTForImageClassification", _VISION),
    ("vision", "DeiTForImageClassification", _VISION),
    ("vision", "SwinForImageClassification", ("embed_dim=16", "depths=[1,1,1,1]", "num_heads=[1,2,4,8]")),
    ("vision", "ConvNextForImageClassification", ("hidden_sizes=[8,16,32,64]", "depths=[1,1,2,1]")),
    ("vision", "SegformerForSemanticSegmentation", ("hidden_sizes=[8,16,32,64]", "depths=[1,1,1,1]", "decoder_hidden_size=32")),
    ("vision", "ViTMAEForPreTraining", (*_VISION, "decoder_hidden_size=32", "decoder_num_hidden_layers=1", "decoder_num_attention_heads=4", "decoder_intermediate_size=64")),
    ("audio", "WhisperForConditionalGeneration", (*_BART, "vocab_size=512", "pad_token_id=0", "bos_token_id=1", "eos_token_id=2", "decoder_start_token_id=1")),
    ("audio", "Wav2Vec2ForSequenceClassification", _SPEECH),
    ("audio", "HubertForCTC", _SPEECH),
    ("audio", "ASTForAudioClassification", (*_SPEECH, "max_length=256")),
    ("vision and text", "CLIPModel", ("text_config={'hidden_size':64,'num_hidden_layers':2,'num_attention_heads':4,'intermediate_size':128}", "vision_config={'hidden_size':64,'num_hidden_layers':2,'num_attention_heads':4,'intermediate_size':128,'image_size':64}")),
)  # fmt: skip

# Why a published figure differs from the model that is built without weights.
EXPLAINED: Final = {
    "torchvision:fcos_resnet50_fpn": "its weights have batch norms frozen to buffers; here their 53,120 numbers are parameters",
}
# One model of each of these timm families.
TIMM: Final = (
    "beit_base_patch16_224", "cait_xxs24_224", "coat_tiny", "convit_tiny", "convmixer_768_32", "convnext_tiny",
    "convnextv2_atto", "crossvit_9_240", "cspresnet50", "davit_tiny", "deit3_small_patch16_224", "densenet121", "dla34",
    "dpn68", "edgenext_small", "efficientformer_l1", "efficientnet_b0", "efficientvit_b0", "eva02_tiny_patch14_224",
    "fastvit_t8", "focalnet_tiny_srf", "gernet_s", "ghostnet_100", "hgnet_tiny", "hrnet_w18", "inception_v4", "levit_128",
    "maxvit_tiny_tf_224", "mixer_s32_224", "mobilenetv3_large_100", "mobilevit_s", "nest_tiny", "nfnet_f0",
    "pit_ti_224", "poolformer_s12", "pvt_v2_b0", "regnety_004", "repvgg_a0", "resnet50", "swin_tiny_patch4_window7_224",
    "swinv2_tiny_window8_256", "tnt_s_patch16_224", "twins_pcpvt_small", "vgg11", "vit_tiny_patch16_224", "xcit_nano_12_p16_224",
)  # fmt: skip


@dataclass(frozen=True)
class Counted:
    """A counted target, or its error."""

    target: str
    family: str
    static: StaticCount | None
    error: str
    seconds: float
    published_giga: float | None = None
    published_params: int | None = None

    @property
    def difference_giga(self) -> float | None:
        """The difference between counted and published MACs, in 10^9."""
        if self.static is None or self.published_giga is None:
            return None
        return abs(self.static.forward.macs / 1e9 - self.published_giga)

    @property
    def macs_agree(self) -> bool:
        """Whether the MACs agree with the published ones; True if none are published."""
        difference = self.difference_giga
        return difference is None or difference <= max(MOST_RELATIVE * (self.published_giga or 0.0), MOST_GIGA)

    @property
    def params_agree(self) -> bool:
        """Whether the parameters equal the published number; True if none is published."""
        return self.static is None or self.published_params in (None, self.static.params)

    @property
    def agrees(self) -> bool:
        """Whether all published figures agree; if none are published, whether all ops have a formula."""
        if self.static is None or (self.published_giga is None and self.static.uncounted):
            return False
        return self.macs_agree and self.params_agree


def main() -> int:
    """Count all models, print the page, write it with --write; return the exit status."""
    parser = argparse.ArgumentParser(description="Count the models of the zoos and check published figures.")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(PAGE.parent.parent)}")
    parser.add_argument("--only", choices=tuple(ZOOS), action="append", help="only this zoo (repeatable)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    define_missing_ops()
    zoos: dict[str, list[Counted]] = {}
    for name, count_zoo in ZOOS.items():
        if options.only is not None and name not in options.only:
            continue
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed", file=sys.stderr)
            continue
        zoos[name] = count_zoo()
    text = page(zoos)
    print(text)
    if options.write and len(zoos) < len(ZOOS):
        print("not written: the page needs all zoos", file=sys.stderr)
        return 2
    if options.write:
        PAGE.write_text(text)
    everything = [model for models in zoos.values() for model in models]
    return 0 if all(model.agrees or model.error or model.target in EXPLAINED for model in everything) else 1


def counted(family: str, spec: TargetSpec, **published: Any) -> Counted:
    """The static count of `spec` or its error, with its published figures."""
    start = time.perf_counter()
    static, error = None, ""
    try:
        static = count_target(load(spec))
    except KitError as failed:
        error = str(failed).splitlines()[0]
    seconds = time.perf_counter() - start
    print(f"{spec.spec}: {error or f'{seconds:.2f} s'}", file=sys.stderr)
    return Counted(target=spec.spec, family=family, static=static, error=error, seconds=seconds, **published)


def torchvision_models() -> list[Counted]:
    """The forward pass of every torchvision model with published figures, on the input of those figures."""
    import torchvision  # type: ignore[import-untyped, import-not-found, unused-ignore]

    models: Any = torchvision.models
    results = []
    for name in models.list_models():
        recipes = models.get_model_weights(name)
        published = set()
        for weights in recipes:
            meta, (shape, count) = weights.meta, input_shape(weights)
            if "_ops" not in meta or (shape, meta["_ops"]) in published:
                continue
            published.add((shape, meta["_ops"]))
            family = type(weights.transforms()).__name__
            inputs = (",".join(map(str, shape)),) * count
            spec = TargetSpec(
                spec=f"torchvision:{name}", mode="infer", inputs=inputs, kwargs=published_form(name, shape[-1])
            )
            results.append(counted(family, spec, published_giga=meta["_ops"], published_params=meta["num_params"]))
    return results


def published_form(name: str, size: int) -> tuple[str, ...]:
    """The arguments that torchvision passes to build `name` for its weights, where they differ from the defaults."""
    if name.startswith(("deeplabv3", "fcn")):
        return ("aux_loss=True",)
    if name.endswith("googlenet"):
        return ("aux_logits=False",)
    if name.startswith("vit_"):
        return (f"image_size={size}",)
    return ()


def transformers_models() -> list[Counted]:
    """A training step of each model of `CONFIGURATIONS`."""
    return [counted(family, TargetSpec(spec=f"hf:{name}", kwargs=kw)) for family, name, kw in CONFIGURATIONS]


def timm_models() -> list[Counted]:
    """A training step of each model of `TIMM`."""
    return [counted("timm", TargetSpec(spec=f"timm:{name}", batch=2)) for name in TIMM]


ZOOS: Final[dict[str, Callable[[], list[Counted]]]] = {
    "torchvision": torchvision_models,
    "transformers": transformers_models,
    "timm": timm_models,
}


def page(zoos: dict[str, list[Counted]]) -> str:
    """docs/zoo.md."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", *zoos))
    parts = [
        "# Models of torchvision, timm and transformers",
        "Do the counts agree with published figures, and can models of common libraries be counted?",
        "<!-- Generated by `python -m scripts.docs.check_zoo --write`, with torchvision, transformers and timm installed. -->",
        "```\npython -m profiler_kit count torchvision:resnet50\n```",
        f"`count` was run on models built from their configs without weights ({versions}, CPU build). "
        "`scripts/docs/check_zoo.py` describes the checks.",
    ]
    if "torchvision" in zoos:
        parts += _torchvision(zoos["torchvision"])
    for name, title in (("transformers", "## transformers"), ("timm", "## timm")):
        if name in zoos:
            parts += _steps(title, zoos[name])
    return "\n\n".join(parts) + "\n"


def _torchvision(results: Sequence[Counted]) -> list[str]:
    ran = [model for model in results if model.static is not None]
    agree = [model for model in ran if model.agrees]
    giga, one_off = max(
        ((model.difference_giga or 0.0, model.target) for model in ran if model.macs_agree), default=(0.0, "none")
    )
    rough = sum(
        (model.difference_giga or 0.0) > MOST_RELATIVE * (model.published_giga or 1.0)
        for model in ran
        if model.macs_agree
    )
    names = len({model.target for model in results})
    rows = ["| kind | published | run here | MACs agree | parameters equal |", "|---|--:|--:|--:|--:|"]
    for kind in sorted({model.family for model in results}):
        of_kind = [model for model in results if model.family == kind]
        run = [model for model in of_kind if model.static is not None]
        agreeing, equal = sum(model.macs_agree for model in run), sum(model.params_agree for model in run)
        rows.append(f"| {kind} | {len(of_kind)} | {len(run)} | {agreeing} | {equal} |")
    parts = [
        "## torchvision",
        f"{names} models publish {len(results)} figures (some for several image sizes). {len(ran)} can be run here; "
        f"{sum(model.macs_agree for model in ran)} agree in MACs, {sum(model.params_agree for model in ran)} in parameters, "
        f"{len(agree)} in both. The largest difference among those that agree in MACs is {giga:.4f} G ({one_off}); "
        f"{rough} of them differ by more than 0.1 %, but by less than 0.001 G, the resolution of the published figures.",
        "\n".join(rows),
    ]
    missed = [model for model in ran if not model.agrees]
    if missed:
        lines = [
            "| model | counted GMACs | published | counted parameters | published | why |",
            "|---|--:|--:|--:|--:|---|",
        ]
        for model in missed:
            assert model.static is not None
            lines.append(
                f"| {model.target} | {model.static.forward.macs / 1e9:.3f} | {model.published_giga} | "
                f"{model.static.params:,} | {model.published_params:,} | {EXPLAINED.get(model.target, 'unknown')} |"
            )
        parts += ["Not in agreement:", "\n".join(lines)]
    return parts + _failures(results)


def _steps(title: str, results: Sequence[Counted]) -> list[str]:
    ran = [model for model in results if model.static is not None]
    complete = [model for model in ran if model.static is not None and not model.static.uncounted]
    rows = [
        "| model | kind | parameters | forward MACs | step FLOPs | counted on | uncounted ops |",
        "|---|---|--:|--:|--:|---|---|",
    ]
    for model in ran:
        assert model.static is not None
        static = model.static
        ops = ", ".join(f"{op.op} ({op.calls})" for op in static.uncounted) or "none"
        note = next(
            (n.split(":")[0].removeprefix("counted on ") for n in static.notes if n.startswith("counted on")), "meta"
        )
        rows.append(
            f"| {model.target.partition(':')[2]} | {model.family} | {static.params:,} | {static.forward.macs / 1e6:,.1f} M | "
            f"{static.step.flops / 1e6:,.1f} M | {_kind_of_tensors(note)} | {ops} |"
        )
    seconds = sorted(model.seconds for model in ran)
    middle = f"; half of them in less than {seconds[len(seconds) // 2]:.2g} s" if seconds else ""
    summary = f"{len(results)} models, {len(ran)} counted as a training step, {len(complete)} without an uncounted op{middle}."
    return [title, summary, "\n".join(rows), *_failures(results)]


def _kind_of_tensors(note: str) -> str:
    for words, short in (("values of small", "meta, with values"), ("fake", "fake"), ("CPU", "CPU")):
        if words in note:
            return short
    return "meta"


def _reason(model: Counted) -> str:
    message = model.error.partition(": ")[2] or model.error
    sentence = message.partition(". ")[0]
    return sentence.partition("raised ")[2] or sentence


def _failures(results: Sequence[Counted]) -> list[str]:
    reasons = Counter(_reason(model) for model in results if model.error)
    if not reasons:
        return []
    lines = []
    for reason, times in reasons.most_common():
        names = [model.target for model in results if model.error and _reason(model) == reason]
        lines.append(f"- {times} ({', '.join(names)}): {reason}")
    return ["Not run here:", "\n".join(lines)]


if __name__ == "__main__":
    torch.manual_seed(0)
    sys.exit(main())
