"""What was edited between two reports, what follows from it, and which metric it explains.

An *edited* layer was changed itself: its settings, its class, its place, or its presence. An *affected* layer is the same on both
sides and has other figures, because something upstream or the target was edited. All figures are b minus a.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal

Role = Literal["edited", "affected", "same"]
EditKind = Literal[
    "target", "settings", "added", "removed", "replaced", "renamed", "repeated", "forward", "class_renamed", "shared"
]
PartRole = Literal["edit", "consequence", "memory", "ops", "time", "remainder"]
CheckpointKind = Literal["missing", "unexpected", "reshaped", "renamed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureChanges:
    """Changes of a layer's or a group's figures per step, b minus a, excluding children. The fields are keys of metrics.

    `backward_flops` includes recomputation; the loss is only in `flops`. `macs`: of forward. `saved`: bytes saved for backward.
    """

    flops: int = 0
    forward_flops: int = 0
    backward_flops: int = 0
    macs: int = 0
    params: int = 0
    trainable_params: int = 0
    param_bytes: int = 0
    saved: int = 0

    def __add__(self, other: FigureChanges) -> FigureChanges:
        return FigureChanges(**{key: getattr(self, key) + getattr(other, key) for key in FIGURES})

    def __bool__(self) -> bool:
        return any(getattr(self, key) for key in FIGURES)


FIGURES: Final = tuple(field.name for field in fields(FigureChanges))


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One edit, as a reviewer would name it.

    - `kind`: ``target`` (inputs, loss, optimizer, dtype, autocast, mode, layout), ``settings`` (own settings of modules),
      ``added`` and ``removed`` (modules of one side), ``replaced`` (another class at the same path), ``class_renamed``
      (another class name and otherwise the same), ``renamed`` (the same modules at another path), ``repeated`` (another number
      of equal blocks), ``forward`` (a module's own code calls other ops), ``shared`` (modules or weights shared differently).
    - `subject`: what was edited: ``stem.0``, ``layers``, ``optimizer``. `change`: the edit: ``stride 2 -> 1``.
    - `a_path`, `b_path`: the edited module, or the innermost module that contains all of them; None where it does not exist
      and for ``target``.
    - `modules`, `layers`: the number of edited modules, and of those with figures of their own.
    - `figures`: the changes of the edited layers themselves, exactly.
    """

    kind: EditKind
    subject: str
    change: str
    a_path: str | None = None
    b_path: str | None = None
    modules: int = 0
    layers: int = 0
    figures: FigureChanges = FigureChanges()

    @property
    def title(self) -> str:
        """The edit in a few words: ``stem.0 stride 2 -> 1``."""
        return f"{self.subject} {self.change}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """Layers that are affected by the same edits.

    - `edits`: indices in `Comparison.edits`. With several, their effects cannot be separated. Empty: no edit was found.
    - `change`: the effect in words: ``maps 2x as large per side``; empty where layers are affected in different ways.
    - `path`: the innermost module that contains the layers.
    - `layers`: their number. `figures`: the sum of their changes, exactly.
    """

    edits: tuple[int, ...]
    change: str
    path: str
    layers: int
    figures: FigureChanges


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """One row of the table of changed layers: the layers of one edit, or the affected layers of one subtree.

    - `role`: ``edited`` or ``affected``. `edits`: indices in `Comparison.edits`.
    - `subject`, `change`: as in `Edit`; for affected layers their subtree and the effect.
    - `layers`: how many rows of `Comparison.layers` the group sums up. Every changed layer is in exactly one group.
    - `figures`: the sums of their changes. `device_ns`: the change of their device time; None where it was not measured.
    """

    role: Role
    subject: str
    change: str
    layers: int
    figures: FigureChanges
    device_ns: int | None = None
    edits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonPart:
    """One part of a metric's difference.

    - `role`: ``edit`` (the edited layers themselves), ``consequence`` (layers affected by `edits`), ``memory`` (a category of the
      peak), ``ops`` (an uncounted op), ``time`` (work, efficiency), ``remainder`` (what no other part has).
    - `title`: the part in words. `change`: b minus a, in the metric's unit.
    - `layers`: the number of layers; 0 where the part is not one of layers.
    """

    role: PartRole
    title: str
    change: int
    layers: int = 0
    edits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricReason:
    """Why one metric differs. There is one for every metric that differs and is comparable.

    - `metric`, `config`: as in `MetricRow`.
    - `change`: b minus a. `parts`: sum to it exactly, the edit with the largest effect first.
    - `sentence`: the reason in one sentence, the edit before its consequence.
    """

    metric: str
    config: str | None
    change: int
    parts: tuple[ReasonPart, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointGroup:
    """State-dict keys of one subtree that a checkpoint of a does not give to b.

    - `kind`: ``missing`` (b has the key, a does not), ``unexpected`` (only a has it), ``reshaped`` (another shape), ``renamed``
      (the same keys and shapes below another path; these are missing and unexpected).
    - `path`: the subtree in b, in a where b lacks it. `a_path`: the subtree in a; None for ``missing``.
    - `keys`: how many. `change`: an example: ``weight 64x3x7x7 -> 64x3x3x3``, ``bias``.
    """

    kind: CheckpointKind
    path: str
    keys: int
    change: str
    a_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointChange:
    """What ``load_state_dict(strict=True)`` of a checkpoint of a would report for the model of b.

    - `missing`, `unexpected`, `reshaped`: numbers of keys. A renamed key is missing and unexpected. Counters of batches that
      torch adds itself are not missing.
    - `groups`: the keys by subtree, the largest group first.
    - `sentence`: the result in one sentence.
    """

    missing: int
    unexpected: int
    reshaped: int
    groups: tuple[CheckpointGroup, ...]
    sentence: str

    @property
    def is_compatible(self) -> bool:
        """Whether b loads a checkpoint of a strictly."""
        return not (self.missing or self.unexpected or self.reshaped)

    @property
    def changed_keys(self) -> int:
        """The number of keys that do not load: missing, unexpected and reshaped."""
        return self.missing + self.unexpected + self.reshaped
