"""How the documents of a target use its model: the variables that hold it, and the calls that pass inputs to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.imports import imported_origins
from profiler_kit.loading.program.model_variables import builds, inner_models, model_names, own_classes
from profiler_kit.loading.program.names import argument, calls_in, dotted_name, last_name
from profiler_kit.loading.program.places import ancestors, is_main_guard

# Functions of other tools that take a model and its inputs, and what their second argument is. The keywords are those of
# torchsummary and torchinfo, ptflops, thop, fvcore, torch.onnx, torch.jit, TensorBoard and torchview.
_TOOLS: Final[dict[str, Literal["sizes", "shape", "inputs"]]] = {
    "summary": "sizes", "get_model_complexity_info": "shape", "profile": "inputs", "FlopCountAnalysis": "inputs",
    "export": "inputs", "trace": "inputs", "add_graph": "inputs", "draw_graph": "inputs", "_export": "inputs",
}  # fmt: skip
_KEYWORDS: Final = ("inputs", "input_size", "input_res", "input_data", "args", "example_inputs", "input_to_model")


_TRAINING: Final = frozenset({"backward", "fit"})  # of a tensor, and of a trainer


@lru_cache(maxsize=64)
def trains(tree: ast.Module) -> bool:
    """Whether a program with this text trains a model itself."""
    return any(last_name(call.func) in _TRAINING for call in calls_in(tree))


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelCall:
    """A call that shows the model's inputs: its arguments, or with `kind`, the argument of another tool."""

    document: Document
    call: ast.Call
    kind: Literal["forward", "sizes", "shape", "inputs"] = "forward"

    @property
    def where(self) -> str:
        """The line of the call: ``train.py:41``."""
        return self.document.at(self.call.lineno)

    @property
    def argument(self) -> ast.expr | None:
        """The inputs that another tool receives with the model."""
        by_name = (argument(self.call, name) for name in _KEYWORDS)
        return next(filter(None, by_name), argument(self.call, _KEYWORDS[0], 1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelUse:
    """The use of one model in documents.

    `builders` are the names of the classes and functions that build it, and `variables` names that hold it in any document.
    `site` is the document with the call that builds it and the name that this call is assigned to.
    """

    builders: frozenset[str]
    variables: frozenset[str] = frozenset()
    site: tuple[Document, str] | None = None
    _names: dict[Document, frozenset[str]] = field(default_factory=dict)

    def names(self, document: Document) -> frozenset[str]:
        """The names in `document` that hold the model."""
        if document not in self._names:
            at_site = {self.site[1]} if self.site is not None and self.site[0] is document else set()
            self._names[document] = model_names(document, self._builders(document), self.variables | at_site)
        return self._names[document]

    def _builders(self, document: Document) -> frozenset[str]:
        origins = imported_origins(document.tree)
        return self.builders | {name for name, origin in origins.items() if origin.rpartition(".")[2] in self.builders}

    def calls(self, document: Document) -> Iterator[ModelCall]:
        """The calls of the model: those below ``if __name__ == "__main__"`` first, then in order of lines."""
        builders, names = self._builders(document), self.names(document)
        classes = own_classes(document) - builders

        def is_model(value: ast.expr) -> bool:
            if isinstance(value, ast.Attribute) and value.attr in ("forward", "module"):
                value = value.value
            return builds(value, builders, classes) or any(
                dotted_name(inner) in names for inner in inner_models(value, classes)
            )

        around = {call: list(ancestors(document.tree, call)) for call in calls_in(document.tree)}
        for call in sorted(around, key=lambda call: not any(map(is_main_guard, around[call]))):
            if any(isinstance(node, ast.ClassDef) and node.name in self.builders for node in around[call]):
                continue  # self.net(x) in the model's own class is a part of the model
            if is_model(call.func):
                yield ModelCall(document=document, call=call)
                continue
            tool = _TOOLS.get(last_name(call.func))
            if tool is not None and call.args and is_model(call.args[0]):
                yield ModelCall(document=document, call=call, kind=tool)
