"""Calls in the user's files that pass inputs to the model: ``net(x)``, ``summary(net, (3, 32, 32))``, ``export(model, x)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.loading.program.documents import Document
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


def model_calls(document: Document, factories: frozenset[str], variables: frozenset[str]) -> Iterator[ModelCall]:
    """The calls of the model in `document`: those below ``if __name__ == "__main__"`` first, then in order of lines.

    `factories` are the names of the classes and functions that build the model; `variables` are names of the model.
    """
    names = model_names(document, factories, variables)
    classes = own_classes(document) - factories
    around = {call: list(ancestors(document.tree, call)) for call in calls_in(document.tree)}
    for call in sorted(around, key=lambda call: not any(map(is_main_guard, around[call]))):
        if any(isinstance(node, ast.ClassDef) and node.name in factories for node in around[call]):
            continue  # self.net(x) in the model's own class is a part of the model
        if _is_model(call.func, names, factories, classes):
            yield ModelCall(document=document, call=call)
            continue
        tool = _TOOLS.get(last_name(call.func))
        if tool is not None and call.args and _is_model(call.args[0], names, factories, classes):
            yield ModelCall(document=document, call=call, kind=tool)


def _is_model(value: ast.expr, names: frozenset[str], factories: frozenset[str], classes: frozenset[str]) -> bool:
    if isinstance(value, ast.Attribute) and value.attr in ("forward", "module"):
        value = value.value
    return builds(value, factories, classes) or any(
        dotted_name(inner) in names for inner in inner_models(value, classes)
    )
