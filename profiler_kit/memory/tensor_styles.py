"""The styles of tensor parallelism that a plan uses, and a plan applied to a model."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any, Final

from torch import distributed, nn

from profiler_kit.records.counts import TensorPlan


def _sharded_types() -> tuple[type, ...]:
    if not distributed.is_available():
        return ()
    from torch.distributed.tensor import DTensor

    return (DTensor,)


SHARDED: Final = _sharded_types()  # the class of sharded tensors; none where torch is built without torch.distributed


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """A style of ``torch.distributed.tensor.parallel``: its name and what its arguments depend on.

    - `positions`, `names`: the arguments of the module that PrepareModuleInput converts.
    - `dimension`: the dimension of the heads, for SequenceParallel.
    - `is_whole`: the input of RowwiseParallel, or the output of ColwiseParallel, is not sharded.
    """

    name: str
    positions: tuple[bool, ...] = ()
    names: tuple[str, ...] = ()
    dimension: int | None = None
    is_whole: bool = False

    def build(self) -> Any:
        """The style itself."""
        from torch.distributed.tensor import Placement, Replicate
        from torch.distributed.tensor import parallel as styles

        if self.name == "SequenceParallel":
            return styles.SequenceParallel(sequence_dim=self.dimension or 1, use_local_output=True)
        layout = Replicate() if self.is_whole else None
        if self.name == "ColwiseParallel":
            return styles.ColwiseParallel(output_layouts=layout)
        if self.name == "RowwiseParallel":
            return styles.RowwiseParallel(input_layouts=layout)
        if self.names:
            layouts: dict[str, Placement] = {name: Replicate() for name in self.names}
            return styles.PrepareModuleInput(input_kwarg_layouts=layouts, desired_input_kwarg_layouts=layouts)
        places = tuple(Replicate() if converted else None for converted in self.positions)
        return styles.PrepareModuleInput(input_layouts=places, desired_input_layouts=places)

    @property
    def arguments(self) -> str:
        """The arguments of the style as a script writes them."""
        if self.name == "SequenceParallel":
            return f"sequence_dim={self.dimension}, use_local_output=True"
        if self.name != "PrepareModuleInput":
            side = "output" if self.name == "ColwiseParallel" else "input"
            return f"{side}_layouts=Replicate()" if self.is_whole else ""
        if self.names:
            layouts = "{" + ", ".join(f'"{name}": Replicate()' for name in self.names) + "}"
            return f"input_kwarg_layouts={layouts}, desired_input_kwarg_layouts={layouts}"
        places = ", ".join("Replicate()" if converted else "None" for converted in self.positions)
        places = f"({places},)" if len(self.positions) == 1 else f"({places})"
        return f"input_layouts={places}, desired_input_layouts={places}"


COLUMN: Final = Style(name="ColwiseParallel")
ROW: Final = Style(name="RowwiseParallel")
EMBEDDING: Final = Style(name="RowwiseParallel", is_whole=True)
HEAD: Final = Style(name="ColwiseParallel", is_whole=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSharding:
    """The sharding of a model over a number of ranks: what `apply` does to it, and its record."""

    record: TensorPlan
    styles: tuple[tuple[str, Style], ...]
    divided: tuple[tuple[str, str], ...]  # path of the module, and name of the attribute
    tied: tuple[tuple[str, str], ...] = ()  # paths of modules that share their weight

    def apply(self, model: nn.Module, mesh: Any) -> None:
        """Shard `model` in place over `mesh`."""
        from torch.distributed.tensor.parallel import parallelize_module

        frozen = [path for path, parameter in model.named_parameters() if not parameter.requires_grad]
        for path, name in self.divided:
            module = model.get_submodule(path)
            setattr(module, name, getattr(module, name) // mesh.size())
        # there are no data that rank 0 could send to the others (from torch 2.7)
        without_data = {"src_data_rank": None} if "src_data_rank" in signature(parallelize_module).parameters else {}
        for path, style in self.styles:
            parallelize_module(model.get_submodule(path), mesh, style.build(), **without_data)
        for path in frozen:
            model.get_parameter(path).requires_grad_(False)  # torch 2.6 creates parameters that are not frozen
        for path, other in self.tied:
            model.get_submodule(path).weight = model.get_submodule(other).weight
