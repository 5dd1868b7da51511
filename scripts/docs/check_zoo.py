"""Counts models of torchvision, transformers and timm, checks them against what is published, and writes docs/zoo.md.

Needs torchvision, transformers and timm; any of them may be missing, and its part is then left out of what is printed::

    pip install numpy transformers && pip install --no-deps timm torchvision   # keeps the torch you have
    python -m scripts.docs.check_zoo            # prints the summary; exit status 1 where a published figure is missed
    python -m scripts.docs.check_zoo --write    # writes docs/zoo.md as well

torchvision publishes, with its weights, the multiply-accumulates of a forward pass in eval mode (``_ops``, in 10^9, rounded
to three places) and the number of parameters. A model agrees when the parameters are equal and the MACs differ by at most
0.1 %, or by 0.001 G. The models are built as their weights want them (with the auxiliary
head of the segmentation nets, say), on the input of the weights' own preprocessing; optical flow names none, 512x512
reproduces it. transformers' configurations are built small; they are counted as a training step, and no op may be
without a known cost. timm publishes nothing with its package: its models are counted as a training step too, of
two images, since one is too few for some batch norms.
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
from profiler_kit.loading.zoo.torchvision_ops import define_missing_ops
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.target import TargetSpec

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "zoo.md"
MOST_RELATIVE: Final = 1e-3
MOST_GIGA: Final = 1e-3

# ruff: noqa: E501
# One configuration a line: what is built, and the arguments that make it small.
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

# Where a published figure is of another model than the builder makes without weights, and in what.
EXPLAINED: Final = {
    "torchvision:fcos_resnet50_fpn": "its weights come with batch norms frozen to buffers, whose 53,120 numbers are parameters here",
}
# A sample of timm's families, one of each.
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
    """A target that was counted, or what it failed with."""

    target: str
    family: str
    static: StaticCount | None
    error: str
    seconds: float
    published_giga: float | None = None
    published_params: int | None = None

    @property
    def misses_giga(self) -> float | None:
        """By how many 10^9 the MACs differ from what is published."""
        if self.static is None or self.published_giga is None:
            return None
        return abs(self.static.forward.macs / 1e9 - self.published_giga)

    @property
    def macs_agree(self) -> bool:
        """Whether the published MACs are met; so it is where none are."""
        missed = self.misses_giga
        return missed is None or missed <= max(MOST_RELATIVE * (self.published_giga or 0.0), MOST_GIGA)

    @property
    def params_agree(self) -> bool:
        """Whether the published number of parameters is met exactly; so it is where none is."""
        return self.static is None or self.published_params in (None, self.static.params)

    @property
    def agrees(self) -> bool:
        """Whether all published figures are met; where none are, whether all ops are known."""
        if self.static is None or (self.published_giga is None and self.static.uncounted):
            return False
        return self.macs_agree and self.params_agree


def main() -> int:
    """Counts all, prints the page, writes it when asked to; returns the exit status."""
    parser = argparse.ArgumentParser(description="Counts the models of the zoos, and checks what is published.")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(PAGE.parent.parent)}")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="only this zoo (repeatable)")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    define_missing_ops()
    found: dict[str, list[Counted]] = {}
    for name, part in PARTS.items():
        if given.only is not None and name not in given.only:
            continue
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed", file=sys.stderr)
            continue
        found[name] = part()
    text = page(found)
    print(text)
    if given.write and len(found) < len(PARTS):
        print("not written: the page holds all zoos", file=sys.stderr)
        return 2
    if given.write:
        PAGE.write_text(text)
    everything = [one for part in found.values() for one in part]
    return 0 if all(one.agrees or one.error or one.target in EXPLAINED for one in everything) else 1


def counted(family: str, spec: TargetSpec, **published: Any) -> Counted:
    """The static count of `spec`, or its error; with what is published of it."""
    started = time.perf_counter()
    static, error = None, ""
    try:
        static = count_target(load(spec))
    except KitError as failed:
        error = str(failed).splitlines()[0]
    seconds = time.perf_counter() - started
    print(f"{spec.spec}: {error or f'{seconds:.2f} s'}", file=sys.stderr)
    return Counted(target=spec.spec, family=family, static=static, error=error, seconds=seconds, **published)


def torchvision_models() -> list[Counted]:
    """Every model of torchvision with published figures, its forward pass on the input they were taken with."""
    import torchvision  # type: ignore[import-untyped, import-not-found, unused-ignore]

    models: Any = torchvision.models
    found = []
    for name in models.list_models():
        weights = models.get_model_weights(name)
        seen = set()
        for one in weights:
            meta, (shape, count) = one.meta, input_shape(one)
            if "_ops" not in meta or (shape, meta["_ops"]) in seen:
                continue
            seen.add((shape, meta["_ops"]))
            family = type(one.transforms()).__name__
            inputs = (",".join(map(str, shape)),) * count
            spec = TargetSpec(
                spec=f"torchvision:{name}", mode="infer", inputs=inputs, kwargs=published_form(name, shape[-1])
            )
            found.append(counted(family, spec, published_giga=meta["_ops"], published_params=meta["num_params"]))
    return found


def published_form(name: str, size: int) -> tuple[str, ...]:
    """The arguments with which `name` is built when its weights are loaded, where they differ from its defaults."""
    if name.startswith(("deeplabv3", "fcn")):
        return ("aux_loss=True",)
    if name.endswith("googlenet"):
        return ("aux_logits=False",)
    if name.startswith("vit_"):
        return (f"image_size={size}",)
    return ()


def transformers_models() -> list[Counted]:
    """The configurations above, a training step of each."""
    return [counted(family, TargetSpec(spec=f"hf:{name}", kwargs=kw)) for family, name, kw in CONFIGURATIONS]


def timm_models() -> list[Counted]:
    """The sample above, a training step of each."""
    return [counted("timm", TargetSpec(spec=f"timm:{name}", batch=2)) for name in TIMM]


PARTS: Final[dict[str, Callable[[], list[Counted]]]] = {
    "torchvision": torchvision_models,
    "transformers": transformers_models,
    "timm": timm_models,
}


def page(found: dict[str, list[Counted]]) -> str:
    """docs/zoo.md."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", *found))
    parts = [
        "# Models of real life",
        "<!-- Written by scripts/docs/check_zoo.py --write. Run it with torchvision, transformers and timm installed. -->",
        f"What `profiler-kit count` makes of the models of three zoos, built from their configs without weights ({versions}, "
        "CPU build). The script says what is checked against what.",
    ]
    if "torchvision" in found:
        parts += _torchvision(found["torchvision"])
    for name, title in (("transformers", "## transformers"), ("timm", "## timm")):
        if name in found:
            parts += _steps(title, found[name])
    return "\n\n".join(parts) + "\n"


def _torchvision(found: Sequence[Counted]) -> list[str]:
    ran = [one for one in found if one.static is not None]
    agree = [one for one in ran if one.agrees]
    giga, one_off = max(((one.misses_giga or 0.0, one.target) for one in ran if one.macs_agree), default=(0.0, "none"))
    rough = sum((one.misses_giga or 0.0) > MOST_RELATIVE * (one.published_giga or 1.0) for one in ran if one.macs_agree)
    names = len({one.target for one in found})
    rows = ["| kind | published | run here | MACs agree | parameters equal |", "|---|--:|--:|--:|--:|"]
    for kind in sorted({one.family for one in found}):
        of_kind = [one for one in found if one.family == kind]
        run = [one for one in of_kind if one.static is not None]
        agreeing, equal = sum(one.macs_agree for one in run), sum(one.params_agree for one in run)
        rows.append(f"| {kind} | {len(of_kind)} | {len(run)} | {agreeing} | {equal} |")
    parts = [
        "## torchvision",
        f"{names} models publish {len(found)} different figures (some for several image sizes). {len(ran)} run here; "
        f"{sum(one.macs_agree for one in ran)} agree in MACs, {sum(one.params_agree for one in ran)} in parameters, "
        f"{len(agree)} in both. The largest difference among those that agree in MACs is {giga:.4f} G ({one_off}); "
        f"{rough} of them differ by more than 0.1 %, but by less than the 0.001 G that the published figures resolve.",
        "\n".join(rows),
    ]
    missed = [one for one in ran if not one.agrees]
    if missed:
        lines = [
            "| model | counted GMACs | published | counted parameters | published | why |",
            "|---|--:|--:|--:|--:|---|",
        ]
        for one in missed:
            assert one.static is not None
            lines.append(
                f"| {one.target} | {one.static.forward.macs / 1e9:.3f} | {one.published_giga} | "
                f"{one.static.params:,} | {one.published_params:,} | {EXPLAINED.get(one.target, 'unknown')} |"
            )
        parts += ["Not in agreement:", "\n".join(lines)]
    return parts + _failures(found)


def _steps(title: str, found: Sequence[Counted]) -> list[str]:
    ran = [one for one in found if one.static is not None]
    whole = [one for one in ran if one.static is not None and not one.static.uncounted]
    rows = [
        "| model | kind | parameters | forward MACs | step FLOPs | counted on | uncounted ops |",
        "|---|---|--:|--:|--:|---|---|",
    ]
    for one in ran:
        assert one.static is not None
        static = one.static
        ops = ", ".join(f"{op.op} ({op.calls})" for op in static.uncounted) or "none"
        note = next(
            (n.split(":")[0].removeprefix("counted on ") for n in static.notes if n.startswith("counted on")), "meta"
        )
        rows.append(
            f"| {one.target.partition(':')[2]} | {one.family} | {static.params:,} | {static.forward.macs / 1e6:,.1f} M | "
            f"{static.step.flops / 1e6:,.1f} M | {_kind_of_tensors(note)} | {ops} |"
        )
    seconds = sorted(one.seconds for one in ran)
    middle = f"; half of them in less than {seconds[len(seconds) // 2]:.2g} s" if seconds else ""
    said = f"{len(found)} models, {len(ran)} counted as a training step, {len(whole)} without an uncounted op{middle}."
    return [title, said, "\n".join(rows), *_failures(found)]


def _kind_of_tensors(note: str) -> str:
    for words, short in (("values of small", "meta, with values"), ("fake", "fake"), ("CPU", "CPU")):
        if words in note:
            return short
    return "meta"


def _reason(one: Counted) -> str:
    said = one.error.partition(": ")[2] or one.error
    return said.partition(". ")[0].partition("raised ")[2] or said.partition(". ")[0]


def _failures(found: Sequence[Counted]) -> list[str]:
    reasons = Counter(_reason(one) for one in found if one.error)
    if not reasons:
        return []
    lines = []
    for reason, times in reasons.most_common():
        names = [one.target for one in found if one.error and _reason(one) == reason]
        lines.append(f"- {times} ({', '.join(names)}): {reason}")
    return ["Not run here:", "\n".join(lines)]


if __name__ == "__main__":
    torch.manual_seed(0)
    sys.exit(main())
