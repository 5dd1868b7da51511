"""The module classes of a file: which classes contain others, which are parts, and which are losses, metrics or wrappers."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from torch import nn

from profiler_kit.loading.program.definitions import definitions, names_read, used_classes
from profiler_kit.loading.program.names import calls_in, last_name, reached
from profiler_kit.loading.vocabulary import is_label

Role = Literal["model", "base", "part", "loss"]

# Names of building blocks in the usual libraries (torchvision, timm, fairseq). They only break ties: containment decides first.
_PART_NAME: Final = re.compile(
    r"(Block|Bottleneck|Layer|Unit|Cell|Attention|Attn|Norm|Embedding|Embeddings|Embed|Conv\d?d?|Head|Mlp|MLP|FeedForward|"
    r"FFN|Residual|Transition|Activation|Pool(ing)?\dd|Pool|Pooling|Swish|GELU|ReLU|Reshape|Flatten|Identity|Sampling|Module|Stage|Stem|"
    r"SE|SELayer|SEModule|Up|Down|Upsample|Downsample|Encoding|Fn|Dropout|DropPath)$"
)
_LOSS_NAME: Final = re.compile(r"(Loss|Criterion|Metric|Accuracy|Dice|IoU|mIoU|PSNR|SSIM|Penalty|Regularizer)$")
_ALSO_INPUTS: Final = ("y", "ys")  # labels of a step, and second inputs of a module without layers


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleClass:
    """A class of modules that a file defines.

    `contains`: the module classes of the file that it uses, directly or through other classes. `role` is ``part`` if another
    class of the file contains it or takes it as an argument, ``base`` if another one inherits from it, ``loss`` for a loss or a
    metric.
    """

    name: str
    value: type[nn.Module]
    line: int | None
    contains: frozenset[str]
    role: Role

    @property
    def looks_like_part(self) -> bool:
        """Whether the name is a usual name of a building block."""
        return _PART_NAME.search(self.name) is not None


def module_classes(
    tree: ast.Module | None, names: Mapping[str, Any], module_name: str, unavailable: frozenset[str] = frozenset()
) -> dict[str, ModuleClass]:
    """The classes of modules that the module `module_name` defines in `names`, in the order of the file.

    `unavailable`: names of classes that could not be defined; the classes that they use are parts, too.
    """
    values = {
        name: value
        for name, value in names.items()
        if isinstance(value, type)
        and issubclass(value, nn.Module)
        and value.__module__ == module_name
        and value.__name__ == name  # an alias is the same class
    }
    nodes = definitions(tree.body) if tree is not None else {}
    direct = {name: used_classes(name, nodes, values) for name in values}
    bases = {base.__name__ for value in values.values() for base in value.__mro__[1:]} & set(values)
    contained = _passed_classes(tree, values)
    for owner in unavailable:
        contained |= used_classes(owner, nodes, values)
    for owner, used in direct.items():
        contained |= {
            name for name in used if not issubclass(values[owner], values[name]) and owner not in direct[name]
        }
    order = sorted(values, key=lambda name: getattr(nodes.get(name), "lineno", 0))
    return {
        name: ModuleClass(
            name=name,
            value=values[name],
            line=getattr(nodes.get(name), "lineno", None),
            contains=frozenset(reached(direct[name], direct.__getitem__)) - {name},
            role=_role(
                values[name],
                None if direct[name] else nodes.get(name),
                is_part=name in contained,
                is_base=name in bases,
            ),
        )
        for name in order
    }


def _role(value: type[nn.Module], node: ast.AST | None, *, is_part: bool, is_base: bool) -> Role:
    """The role of a class. `node`: its text, None if it builds other modules: labels among its inputs make it no loss then."""
    if is_loss(value, node):
        return "loss"
    if is_part or getattr(inspect.getattr_static(value, "forward"), "__name__", "") == "_forward_unimplemented":
        return "part"
    return "base" if is_base else "model"


def _passed_classes(tree: ast.Module | None, classes: Mapping[str, type]) -> set[str]:
    """The classes that are arguments of a call of another class: ``Bottleneck`` of ``ResNet(Bottleneck, [3, 4, 6, 3])``."""
    if tree is None:
        return set()
    return {
        argument.id
        for call in calls_in(tree)
        if isinstance(call.func, ast.Name) and call.func.id in classes
        for argument in (*call.args, *(word.value for word in call.keywords))
        if isinstance(argument, ast.Name) and argument.id in classes and argument.id != call.func.id
    }


def helper_functions(tree: ast.Module | None, classes: Collection[str]) -> frozenset[str]:
    """The functions of the file that `classes` of modules use, directly or through others: they build parts."""
    if tree is None:
        return frozenset()
    nodes = definitions(tree.body)
    functions = {
        name: node for name, node in nodes.items() if isinstance(node, ast.FunctionDef) and name not in classes
    }
    used = {name for owner in classes for name in names_read(nodes.get(owner))}
    return frozenset(reached(used, lambda name: names_read(functions.get(name)))) & functions.keys()


def is_loss(value: type, node: ast.AST | None = None) -> bool:
    """Whether the class is a loss or a metric, by its name, or because `forward` needs labels and no layer is created."""
    if _LOSS_NAME.search(value.__name__):
        return True
    if not isinstance(node, ast.ClassDef):
        return False
    forward = next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "forward"), None)
    if forward is None or not any(is_label(p.arg) and p.arg not in _ALSO_INPUTS for p in forward.args.args):
        return False
    return not any(_is_layer_name(call.func) for call in calls_in(node))


def _is_layer_name(function: ast.expr) -> bool:
    name = last_name(function)
    layer = getattr(nn, name, None)
    if name == "Parameter":
        return True
    return isinstance(layer, type) and issubclass(layer, nn.Module) and not name.endswith("Loss")


def is_part_name(name: str) -> bool:
    """Whether `name` is a usual name of a building block."""
    return _PART_NAME.search(name) is not None


def is_module_class(value: object) -> bool:
    """Whether `value` is a class of modules."""
    return isinstance(value, type) and issubclass(value, nn.Module)
