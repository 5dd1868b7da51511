"""What the user asked to look at: the words of the command line, and what they resolved to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from profiler_kit.records.configs import NamedValue
from profiler_kit.units import shape_text

Mode = Literal["train", "infer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """A target in the user's own words. It travels to worker processes as JSON and is resolved there again.

    `spec` is the TARGET text (``file.py``, ``file.py:attr``, ``pkg.mod:attr``, ``hf:...``, ``timm:...``,
    ``torchvision:...``); `inputs` and `kwargs` are the texts of
    ``-i`` and ``--kw``; None means the user did not say, so that the target's own choice, then a default, holds.
    `batch_factor` multiplies the batch that is fed otherwise. `command`
    is the verb and the words beside the target, with "" where the target stands: what a hint says to run next.
    """

    spec: str
    inputs: tuple[str, ...] = ()
    kwargs: tuple[str, ...] = ()
    mode: Mode = "train"
    loss: str | None = None
    optimizer: str | None = None
    dtype: str | None = None
    amp: str | None = None
    channels_last: bool = False
    batch: int | None = None
    batch_factor: float | None = None
    seed: int = 0
    import_timeout_s: float = 60.0
    allow_guess: bool = True
    command: tuple[str, ...] = ("analyze", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputInfo:
    """One input tensor as it reaches `forward`: its keyword or parameter name, shape and dtype (``float32``)."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def text(self) -> str:
        """Shape and dtype: ``8x3x256x256 float32``."""
        return f"{shape_text(self.shape)} {self.dtype}"


def inputs_text(inputs: Sequence[InputInfo]) -> str:
    """The shapes and dtypes of `inputs`, without their names."""
    return ", ".join(tensor.text for tensor in inputs) or "no tensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInfo:
    """What the target resolved to. `notes` are the announcements made on the way (defaults taken, shapes read or guessed).

    `loss` and `optimizer` are names, None in ``infer`` mode; `inputs_from` says who gave the input shapes
    (``option``, ``loader``, ``example_inputs``, ``smoke_test``, ``config`` of a model zoo, ``guess``, ``caller``).
    `loss` is ``auto`` until the first output has been seen. `cudnn_flags`: cuDNN flags that the target's file sets while it is
    imported (``benchmark``: ``True``), which are put back; `cudnn_off_lines`: its lines that call ``cudnn.flags`` without
    ``enabled``, which turns cuDNN off inside the block.
    """

    spec: str
    name: str
    inputs: tuple[InputInfo, ...]
    mode: Mode
    loss: str | None
    optimizer: str | None
    dtype: str | None = None
    amp: str | None = None
    channels_last: bool = False
    inputs_from: str = "caller"
    has_loader: bool = False
    notes: tuple[str, ...] = ()
    cudnn_flags: tuple[NamedValue, ...] = ()
    cudnn_off_lines: tuple[int, ...] = ()

    @property
    def arithmetic(self) -> str:
        """The arithmetic that the target asks for: ``float32``, ``float32 under bfloat16 autocast``."""
        dtype = self.dtype or "float32"
        return f"{dtype} under {self.amp} autocast" if self.amp else dtype
