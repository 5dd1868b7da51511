"""The target: the options of the command line, and the model they resolve to; a checkout of another revision."""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal

from profiler_kit.records.configs import NamedValue
from profiler_kit.records.notes import Choice, Code, Confidence, Note
from profiler_kit.records.parallel import ParallelPlan
from profiler_kit.records.seen import SeenRun
from profiler_kit.units import shape_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A checkout of another revision in `folder`; `top` is the root of the repository's own working tree."""

    top: str
    folder: str

    def redirected(self, path: str) -> str:
        """The entry `path` of a search path, in this checkout if it is below `top`; installed packages stay where they are."""
        top = Path(self.top)
        full_path = Path(path).resolve() if path else Path.cwd()
        if not full_path.is_relative_to(top) or is_installed(full_path, top):
            return path
        return str(Path(self.folder) / full_path.relative_to(top))


def is_installed(path: Path, top: Path) -> bool:
    """Whether `path` belongs to a Python installation or its packages inside the checkout at `top` (``.venv``)."""
    folders = (
        Path(folder).resolve()
        for folder in {sys.prefix, sys.base_prefix, *site.getsitepackages(), *sysconfig.get_paths().values()}
    )
    return any(path.is_relative_to(folder) for folder in folders if folder.is_relative_to(top) and folder != top)


IN_PYTHON: Final = "<model>"  # the TARGET text of a model passed from Python
Mode = Literal["train", "infer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedValue:
    """A value that trials found for an argument of `owner`, a global name or a field of a configuration. `value`: a literal."""

    kind: Literal["argument", "global", "field"]
    name: str
    value: str
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Choices of the first load of a target, so that other processes load the same without a new search.

    - `candidate`: the key of the model: its name, after the place of the call that builds it: ``net.py:41:10 ResNet18``.
    - `inputs`: searched inputs as texts of ``-i``; `batch`: the chosen batch size.
    - `assumed`: values of unknown arguments that fit the inputs.
    """

    candidate: str
    inputs: tuple[str, ...] = ()
    batch: int | None = None
    assumed: tuple[PinnedValue, ...] = ()


# The options of a target that have a value, by the names of the fields of `TargetSpec`, with their defaults.
VALUE_OPTIONS: Final = {
    "mode": "train", "loss": None, "optimizer": None, "dtype": None, "amp": None, "batch": None, "seed": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """A target as the user wrote it. Worker processes receive it as JSON and resolve it again.

    - `spec`: the TARGET text: ``file.py``, ``file.py:attr``, ``pkg.mod:attr``, ``hf:...``, ``timm:...``, ``torchvision:...``.
    - `inputs`, `kwargs`: the texts of ``-i`` and ``--kw``.
    - Options that are None were not given; the target's own choice or a default applies.
    - `sliced`: import only the statements that the model depends on; otherwise import the file as it is.
    - `batch_factor`: multiplies the default batch size.
    - `live`: the file of a model passed from Python, which the process that measures it wrote. Only such a file is unpickled.
    - `pinned`: what an earlier load of the same spec chose. `seen`: what a run of the target's file showed.
    - `checkout`: the checkout of another revision that the target is in. Its imports from the repository come from there.
    - `command`: the verb and the words around the target, with "" in place of the target. Hints use it to suggest commands.
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
    live: str | None = None
    sliced: bool = True
    command: tuple[str, ...] = ("analyze", "")
    checkout: Checkout | None = None
    pinned: Pinned | None = None
    seen: SeenRun | None = None

    def input_words(self) -> list[str]:
        """The inputs and the constructor arguments as words of a command line."""
        options = (("-i", self.inputs), ("--kw", self.kwargs))
        return [word for option, texts in options for text in texts for word in (option, text)]

    def given_values(self) -> dict[str, str | int]:
        """The values of `VALUE_OPTIONS` that are not the defaults, by their names."""
        values = {name: getattr(self, name) for name in VALUE_OPTIONS}
        return {name: value for name, value in values.items() if value not in (None, VALUE_OPTIONS[name])}

    def option_words(self, without: Collection[str] = ()) -> list[str]:
        """The options that were given, as words of a command line, those called `without` (``--seed``) left out."""
        words = self.input_words()
        for name, value in self.given_values().items():
            words += [f"--{name}", str(value)] if f"--{name}" not in without else []
        flags = {"--channels-last": self.channels_last, "--no-slice": not self.sliced}
        return [*words, *(flag for flag, is_set in flags.items() if is_set)]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputInfo:
    """One input tensor of `forward`: its keyword or parameter name, its shape and its dtype (``float32``)."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def text(self) -> str:
        """Shape and dtype: ``8x3x256x256 float32``."""
        return f"{shape_text(self.shape)} {self.dtype}"


def inputs_text(inputs: Sequence[InputInfo]) -> str:
    """The shapes and dtypes of `inputs`, without names."""
    return ", ".join(tensor.text for tensor in inputs) or "no tensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInfo:
    """The resolved target.

    - `loss`, `optimizer`: names; None in ``infer`` mode. `loss` is ``auto`` until the first output is computed.
    - `dtype`, `amp`: the type that the model was cast to, and the type of autocast; None without.
    - `inputs_from`: the source of the input shapes: ``option``, ``loader``, ``example_inputs``, ``evidence`` (a call of the model
      in the user's files), ``data_set`` (one that the user's files name), ``search`` (inputs that run), ``config`` (of a model
      zoo), ``caller``, ``run`` (a run of the program), or ``loop`` (a recorded training loop). Older reports have ``smoke_test``
      and ``guess``.
    - `notes`: defaults that were applied, and shapes that were read or guessed. `choices`: values that no file shows.
      `confidence`: how each part is known; None in older reports.
    - `cudnn_flags`: cuDNN flags that the target's file sets on import (``benchmark``: ``True``). The tool resets them.
    - `cudnn_off_lines`: lines of the file that call ``cudnn.flags`` without ``enabled``, which turns cuDNN off in the block.
    - `parallel`: how several ranks train it together; None in one process. `inputs` are those of one rank.
    - `seen`: what a run of the program showed: this run, for a loop, else the one that loading learned from.
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
    notes: tuple[Note, ...] = ()
    cudnn_flags: tuple[NamedValue, ...] = ()
    cudnn_off_lines: tuple[int, ...] = ()
    parallel: ParallelPlan | None = None
    choices: tuple[Choice, ...] = ()
    confidence: Confidence | None = None
    seen: SeenRun | None = None

    @property
    def inputs_are_guessed(self) -> bool:
        """Whether nobody passed the shapes of the inputs, and no file of the user shows them."""
        return self.inputs_from in ("search", "guess")

    @property
    def assumed(self) -> tuple[Choice, ...]:
        """The choices that rest on no evidence, in the order of the parts of a target."""
        known = self.confidence
        if known is None:
            return ()
        return tuple(
            c for part in fields(known) for c in self.choices if c.subject == part.name and known.is_assumed(part.name)
        )

    def has_note(self, *codes: Code) -> bool:
        """Whether a note has one of `codes`."""
        return any(note.code in codes for note in self.notes)

    @property
    def is_loop(self) -> bool:
        """Whether the steps are those of a loop that the user runs, not steps that the tool runs."""
        return self.inputs_from == "loop"

    @property
    def arithmetic(self) -> str:
        """The requested arithmetic: ``float32``, ``float32 under bfloat16 autocast``."""
        dtype = self.dtype or "float32"
        return f"{dtype} under {self.amp} autocast" if self.amp else dtype
