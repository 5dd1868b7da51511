"""The terms of a loss: the functions and modules that made the autograd nodes behind the tensor that backward starts from."""

from __future__ import annotations

import inspect
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import loss as loss_modules
from torch.utils import _pytree as pytree

from profiler_kit.meta.compilation import has_compiled
from profiler_kit.meta.ownership import NO_SEQUENCE, Call
from profiler_kit.recording.guard import Guard
from profiler_kit.recording.modules import named_parts
from profiler_kit.recording.outermost_calls import wrapped_calls
from profiler_kit.recording.phases import ENGINE, replaced, rerouted

Terms = tuple[str | None, ...]

OUTPUT: Final = "output"  # a term: the output of a model, which computes its loss by other operators than losses

_MAX_NODES: Final = 10_000
_NODE: Final = re.compile(r"(?:Cudnn)?(?P<name>\w*(?:Loss|KlDiv|CrossEntropy\w*?))(?:2[dD])?Backward\d+")
# A node that adds, scales, selects or averages: its inputs are terms of the same loss.
_LINEAR: Final = re.compile(
    r"(?:Add|Sub|Rsub|Mul|Div|Neg|Sum|Mean|Nansum|Stack|Cat|Unbind|Select|Slice|Split|Squeeze|Unsqueeze|View|UnsafeView|Reshape"
    r"|ReshapeAlias|Expand|ToCopy|Clone|Alias|Permute|T|Transpose|_DDPSink)Backward\d*"
)
# A node that changes no element, or all of them by a constant, such as the number of accumulated batches.
_SCALING: Final = re.compile(r"(?:Mul|Div|View|UnsafeView|Squeeze|Unsqueeze|ToCopy|Clone|Alias|_DDPSink)Backward\d*")
_NO_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(slots=True)
class _Calls:
    """The outermost calls of some kind: the numbers of the first nodes made inside and after each, and its name."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    depth: int = 0

    def around(self, name: str | None, call: Callable[[], Any]) -> Any:
        """The result of `call`, which is noted unless another one runs."""
        if self.depth:
            return call()
        first, self.depth = torch._C._autograd._get_sequence_nr(), 1
        try:
            return call()
        finally:
            self.depth, end = 0, torch._C._autograd._get_sequence_nr()
            if end > first:
                self.starts.append(first)
                self.ends.append(end)
                self.names.append(name)

    def of_node(self, number: int) -> int | None:
        """The index of the call that made the node with this number."""
        index = bisect_right(self.starts, number) - 1
        return index if index >= 0 and number < self.ends[index] else None


@dataclass(slots=True)
class _Step:
    """The terms of the backward passes of a step, once each. `parts`: of ``torch.autograd.grad`` of what has no name.

    Such a pass, of the output of a model, is usually a part of a loss, as in a penalty. It is one itself if no other pass is.
    """

    losses: list[Terms] = field(default_factory=list)
    parts: list[Terms] = field(default_factory=list)


class LossWatch:
    """Names the terms of the backward passes in the thread that calls `start`, in two steps or until `stop`.

    A term is named by the outermost module that computes it and is none of `models` and not torch's; else by its function of
    ``torch.nn.functional``, its node, or the class of its autograd function, wherever it is computed. A loss without such a term
    is `OUTPUT`, if a model returns it. What the loop computes by other operators has no name. `guard` runs what is ours.
    """

    def __init__(self, models: Sequence[nn.Module], guard: Guard) -> None:
        self._steps = [_Step()]
        self._parts = {id(part) for model in models for _, part in named_parts(model)}
        self._guard = guard
        self._thread, self._is_in_backward = 0, False
        self._functions, self._modules = _Calls(), _Calls()
        self._names: dict[int, tuple[nn.Module, str | None]] = {}
        self._hooks = ExitStack()
        self.is_watching = False

    @property
    def losses(self) -> Sequence[Terms]:
        """The terms of each backward pass that differs from those before, in the last step that has one."""
        return next((losses for step in reversed(self._steps) if (losses := step.losses or step.parts)), ())

    def end_step(self) -> None:
        """A step is over. The first one may have begun inside of ``cross_entropy(model(x), y)``: the second one counts."""
        if len(self._steps) == 2:
            self.stop()
        else:
            self._steps.append(_Step())

    def start(self) -> None:
        """Watch the next backward passes."""
        self._thread, self.is_watching = threading.get_ident(), True
        self._hooks.enter_context(replaced(torch.autograd, "backward", self._wrapped_backward))
        if hasattr(torch.autograd, ENGINE):
            self._hooks.enter_context(replaced(torch.autograd, ENGINE, self._wrapped_engine))
        if has_compiled():  # it would compile again what calls a replaced function
            return
        for name in loss_functions():
            self._hooks.enter_context(rerouted(getattr(functional, name), self._wrapped_function))
        self._hooks.enter_context(wrapped_calls(self._around_module, self._guard))

    def stop(self) -> None:
        """Remove the hooks."""
        self.is_watching = False
        self._hooks.close()
        self._names.clear()

    def _is_watched(self) -> bool:
        return threading.get_ident() == self._thread and not torch.compiler.is_compiling()

    def _wrapped_function(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(*args, **kwargs)
            return self._guard.around(
                partial(self._around_function, original.__name__), lambda: original(*args, **kwargs)
            )

        call.__name__, call.__doc__ = original.__name__, original.__doc__
        return call

    def _around_function(self, name: str, call: Call) -> Any:
        return self._functions.around(name, call) if self._is_watched() else call()

    def _around_module(self, module: nn.Module, _args: Any, _kwargs: Any, call: Call) -> Any:
        if not self._is_watched() or self._modules.depth:
            return call()
        return self._modules.around(self._name_of(module), call)

    def _name_of(self, module: nn.Module) -> str | None:
        """The name of a module that computes a loss; None for those of torch, and for models, their parts and their wrappers."""
        if id(module) not in self._names:
            kind = type(module)
            parts = named_parts(module) if "_modules" in vars(module) else ()
            is_model = any(id(part) in self._parts for _, part in parts)
            self._names[id(module)] = module, None if is_model or _is_of_torch(kind) else kind.__name__
        return self._names[id(module)][1]

    def _wrapped_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_in_backward or not self._guard.run(self._is_watched):
                return original(tensors, *args, **kwargs)
            self._guard.run(self._note, tensors)
            self._is_in_backward = True
            try:
                return original(tensors, *args, **kwargs)
            finally:
                self._is_in_backward = False

        return backward

    def _wrapped_engine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The pass of ``torch.autograd.grad``: it may be part of a loss, as a penalty is, and not one itself."""

        def run(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_in_backward and self._guard.run(self._is_watched):
                self._guard.run(self._note, tensors, is_part=True)
            return original(tensors, *args, **kwargs)

        return run

    def _note(self, tensors: Any, *, is_part: bool = False) -> None:
        roots = [leaf.grad_fn for leaf in pytree.tree_leaves(tensors) if isinstance(leaf, Tensor)]
        roots = [root for root in roots if root is not None]
        terms = tuple(dict.fromkeys(self._terms(roots)))
        if terms == (None,) and all(map(self._is_output, roots)):
            terms = (OUTPUT,)
        step = self._steps[-1]
        passes = step.parts if is_part and not any(map(_is_named, terms)) else step.losses
        if terms and terms not in passes:
            passes.append(terms)

    def _terms(self, roots: Sequence[Any]) -> Iterator[str | None]:
        """The terms of the sum that the nodes `roots` end, the nearest first."""
        waiting, seen = list(roots), set(roots)
        for node in waiting:
            name, is_term = self._name_of_node(node)
            if is_term or _LINEAR.fullmatch(node.name()) is None:
                yield name
                continue
            inputs = [n for n, _ in node.next_functions if n is not None and n not in seen]
            seen.update(inputs)
            waiting += inputs[: _MAX_NODES - len(waiting)]

    def _is_output(self, node: Any) -> bool:
        """Whether a model computes the value of `node`, or all but a factor of it."""
        for _ in range(_MAX_NODES):
            if self._modules.of_node(node._sequence_nr()) is not None:
                return True
            inputs = [n for n, _ in node.next_functions if n is not None]
            if len(inputs) != 1 or _SCALING.fullmatch(node.name()) is None:
                break
            (node,) = inputs
        return False

    def _name_of_node(self, node: Any) -> tuple[str | None, bool]:
        """The name of the term that `node` ends, and whether it ends one."""
        number, module = node._sequence_nr(), None
        if number < NO_SEQUENCE:
            module, function = self._modules.of_node(number), self._functions.of_node(number)
            if module is not None and self._modules.names[module] is not None:
                return self._modules.names[module], True
            if function is not None:
                return self._functions.names[function], True
        own = getattr(node, "_forward_cls", None)
        if not isinstance(own, type):
            return _name_of_operator(node)
        is_layer = module is not None and any(len(made.shape) for made in node._input_metadata)
        return (None if is_layer or _is_of_torch(own) else own.__name__), True


def _is_named(term: str | None) -> bool:
    return term not in (None, OUTPUT)


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"


def loss_functions() -> tuple[str, ...]:
    """The names of the functions of ``torch.nn.functional`` that the loss modules of torch call."""
    called = [getattr(loss_modules, name).forward.__code__.co_names for name in loss_modules.__all__]
    names = sorted({name for names in called for name in names if inspect.isfunction(getattr(functional, name, None))})
    return tuple(name for name in names if "reduction" in inspect.signature(getattr(functional, name)).parameters)


def _name_of_operator(node: Any) -> tuple[str | None, bool]:
    """The function that `node` stands for, as of a function that the program imported by its name."""
    match = _NODE.fullmatch(node.name())
    if match is None:
        return None, False
    name = _NO_WORD.sub("_", match["name"]).lower()
    first = node.next_functions[0][0] if node.next_functions else None
    if name == "nll_loss" and first is not None and first.name().startswith("LogSoftmax"):
        name = "cross_entropy" if first._sequence_nr() == node._sequence_nr() - 1 else name
    return name, True
