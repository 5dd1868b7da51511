"""Follows an expression of a program back to what it is made of, over assignments, loops, calls and files, without running it.

Sizes are numbers in the text, or values of options and configurations, which the evaluator of the target finds.
"""

from __future__ import annotations

import ast
import operator
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import Tensor

from profiler_kit.loading.data_path.operations import (
    IMAGES,
    OPERATIONS,
    Arguments,
    broadcast,
    data_set,
    transform,
)
from profiler_kit.loading.data_path.values import (
    UNKNOWN,
    Array,
    Function,
    Instance,
    Listing,
    Transform,
    as_array,
    item_of,
    items_in,
    joined,
    known,
    whole,
    with_item,
)
from profiler_kit.loading.program.callees import calls_of
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.imports import module_files, origin_of
from profiler_kit.loading.program.names import (
    FunctionNode,
    all_nodes,
    argument,
    assigned,
    default_of,
    dotted_name,
    last_name,
    walk_scope,
)
from profiler_kit.loading.program.places import ancestors, method_around, scopes_around
from profiler_kit.loading.program.reading import parsed_leniently
from profiler_kit.loading.program.repository import repository_root
from profiler_kit.loading.program.slices import facts_of

MAX_DEPTH: Final = 60  # of expressions that follow from each other
MAX_EVALUATIONS: Final = 60  # of options and configurations
MAX_SECONDS: Final = 2.0  # of CPU time, for all expressions of a target
MAX_CALLERS: Final = 3
MAX_PARTS: Final = 16  # of a tuple that a comprehension changes one by one
MAX_BINDINGS: Final = 3  # assignments of one name that are followed until one gives a value
_BATCHES: Final = "DataLoader"
_AT_END: Final = (1 << 30, 0)  # a place after all others of its file
_ADDS: Final = ("append", "extend")
_LOOPS: Final = ("enumerate", "zip")
_OPERATORS: Final[Mapping[type[ast.AST], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le, ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}  # fmt: skip
_BUILTINS: Final[Mapping[str, Callable[..., Any]]] = {
    "int": int,
    "float": float,
    "round": round,
    "abs": abs,
    "str": str,
}

Evaluate = Callable[[Document, ast.expr], Any]


@dataclass(slots=True, eq=False)
class Frame:
    """A function while it runs, or the module. `bound` are the values of its parameters.

    `owner` is the object of a method. `outer` is the frame whose variables it can also read.
    """

    document: Document
    function: ast.AST | None = None
    bound: dict[str, Any] = field(default_factory=dict)
    owner: Instance | None = None
    outer: Frame | None = None
    is_called: bool = False  # by a call that is known, so that `bound` has all that it passes


def _read(path: Path) -> Document | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    tree = parsed_leniently(text)
    return Document(tree=tree, text=text, path=path, kind="importer") if tree is not None else None


@dataclass(slots=True, eq=False)
class Flow:
    """Follows expressions of `documents`. `evaluate` gives the value of an option at its place, or UNKNOWN."""

    documents: tuple[Document, ...]
    evaluate: Evaluate
    _values: dict[tuple[int, int], Any] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)  # whose ids are keys
    _evaluated: dict[ast.expr, Any] = field(default_factory=dict)
    _depth: int = 0
    _seconds: float = MAX_SECONDS
    _deadline: float = 0.0
    _frames: dict[ast.AST, Frame] = field(default_factory=dict)
    _bindings: dict[ast.AST, dict[str, list[_Binding]]] = field(default_factory=dict)
    _files: dict[Path, Document | None] = field(default_factory=dict)

    def follow(self, document: Document, node: ast.expr) -> Any:
        """The value of an expression of a document: what reaches it from the callers of its function, without running them."""
        began = time.thread_time()
        self._deadline = began + self._seconds
        try:
            return self.value(node, self._frame_at(document, node))
        finally:
            self._seconds -= time.thread_time() - began

    def batches(self, document: Document) -> Iterator[tuple[Any, ast.Call]]:
        """The batches of the loaders that `document` makes, with the calls that make them."""
        for call in (node for node in all_nodes(document.tree) if isinstance(node, ast.Call)):
            if last_name(call.func) == _BATCHES:
                yield items_in(self.follow(document, call)), call

    def _document(self, path: Path) -> Document | None:
        if path not in self._files:
            known_files = {document.path: document for document in self.documents}
            self._files[path] = known_files.get(path) or _read(path)
        return self._files[path]

    # expressions

    def value(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression in `frame`."""
        key = (id(node), id(frame))
        if key in self._values:
            return self._values[key]
        if self._depth > MAX_DEPTH or time.thread_time() > self._deadline:
            return UNKNOWN
        self._values[key] = UNKNOWN  # what follows from itself
        self._kept.append((node, frame))  # so that no other object gets their ids
        self._depth += 1
        try:
            self._values[key] = self._value(node, frame)
        finally:
            self._depth -= 1
        return self._values[key]

    def _value(self, node: ast.expr, frame: Frame) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._or_evaluated(self._name(node, frame), node, frame)
            case ast.Tuple() | ast.List():
                return self._display(node, frame)
            case ast.Dict():
                return {
                    item: self.value(value, frame)
                    for key, value in zip(node.keys, node.values, strict=True)
                    if key is not None and isinstance(item := self.value(key, frame), (str, int))
                }
            case ast.Attribute():
                return self._or_evaluated(self._attribute(node, frame), node, frame)
            case ast.Subscript():
                return self._or_evaluated(self._subscript(node, frame), node, frame)
            case ast.Call():
                return self._call(node, frame)
            case ast.BinOp():
                return self._combined(type(node.op), self.value(node.left, frame), self.value(node.right, frame))
            case ast.UnaryOp():
                operand = self.value(node.operand, frame)
                if isinstance(operand, Array):
                    return operand
                if isinstance(node.op, ast.Not):
                    return not operand if _is_plain(operand) else UNKNOWN
                return -operand if isinstance(node.op, ast.USub) and type(operand) in (int, float) else UNKNOWN
            case ast.Compare():
                return self._comparison(node, frame)
            case ast.BoolOp():
                return self._boolean(node, frame)
            case ast.IfExp():
                test = self.truth(node.test, frame)
                chosen = [node.body, node.orelse] if test is None else [node.body if test else node.orelse]
                return next(filter(known, (self.value(part, frame) for part in chosen)), UNKNOWN)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._comprehension(node, frame)
            case ast.Lambda():
                return Function(document=frame.document, node=node, frame=frame)
            case ast.NamedExpr() | ast.Starred() | ast.Await():
                return self.value(node.value, frame)
        return UNKNOWN

    def truth(self, test: ast.expr, frame: Frame) -> bool | None:
        """Whether a condition holds; None if that is unknown."""
        value = self.value(test, frame)
        if isinstance(value, (Instance, Function, Transform)):
            return True
        return bool(value) if _is_plain(value) else None

    def _display(self, node: ast.Tuple | ast.List, frame: Frame) -> Any:
        values: list[Any] = []
        for part in node.elts:
            value = self.value(part, frame)
            if not isinstance(part, ast.Starred):
                values.append(value)
            elif isinstance(value, tuple):
                values += value
            else:
                return UNKNOWN
        return tuple(values)

    def _or_evaluated(self, value: Any, node: ast.expr, frame: Frame) -> Any:
        """`value`, or that of an option or configuration at its place."""
        if known(value) or dotted_name(node if not isinstance(node, ast.Subscript) else node.value) is None:
            return value
        if node not in self._evaluated:
            is_over = len(self._evaluated) >= MAX_EVALUATIONS or time.thread_time() > self._deadline
            if is_over or not hasattr(node, "lineno") or not self._is_setting(node, frame):
                return UNKNOWN
            found = self.evaluate(frame.document, node)
            self._evaluated[node] = _plain(found)
        return self._evaluated[node]

    def _is_setting(self, node: ast.expr, frame: Frame) -> bool:
        """Whether the value of a name may be that of an option: it is not what a loop or a method gives."""
        base = node
        while isinstance(base, (ast.Attribute, ast.Subscript)):
            base = base.value
        if not isinstance(base, ast.Name):
            return False
        scope: Frame | None = frame
        while scope is not None:
            if base.id in scope.bound and scope.is_called:
                return True
            if any(binding.is_item for binding in self._scope_bindings(scope).get(base.id, ())):
                return False
            scope = scope.outer
        return True

    # names

    def _frame_at(self, document: Document, node: ast.AST) -> Frame:
        """The frame of the function around `node`, whose callers are not known yet."""
        scopes = scopes_around(document.tree, node)
        frame = self._frames.setdefault(document.tree, Frame(document))
        for index, scope in enumerate(scopes):
            if scope in self._frames:
                frame = self._frames[scope]
            elif isinstance(scope, FunctionNode):
                method = method_around(scopes[: index + 1])
                is_method = method is not None and method[1] is scope
                owner = Instance(document=document, node=method[0]) if method is not None and is_method else frame.owner
                frame = self._frames[scope] = Frame(document, scope, owner=owner, outer=frame)
        return frame

    def _name(self, node: ast.Name, frame: Frame) -> Any:
        scope: Frame | None = frame
        while scope is not None:
            function = scope.function
            is_parameter = isinstance(function, FunctionNode) and node.id in {a.arg for a in _arguments(function)}
            if scope.owner is not None and isinstance(function, FunctionNode) and _instance_name(function) == node.id:
                return scope.owner
            bindings = self._scope_bindings(scope).get(node.id)
            value = (
                self._last_binding(node, bindings, scope, is_parameter or node.id in scope.bound)
                if bindings
                else UNKNOWN
            )
            if not known(value) and node.id in scope.bound:
                value = scope.bound[node.id]
            elif not known(value) and is_parameter:
                value = self._parameter(node.id, scope)
            if items := self._scope_bindings(scope).get(_items_of(node.id)):
                value = self._with_items(value, node, items, scope)
            if known(value) or is_parameter or node.id in scope.bound:
                return value
            if bindings and scope.function is not None:
                return UNKNOWN
            scope = scope.outer
        return self._definition(frame.document, node.id)

    def _scope_bindings(self, frame: Frame) -> dict[str, list[_Binding]]:
        scope: ast.AST = frame.function if frame.function is not None else frame.document.tree
        if scope not in self._bindings:
            self._bindings[scope] = _bindings_of(scope)
        return self._bindings[scope]

    def _last_binding(self, node: ast.Name, bindings: list[_Binding], frame: Frame, is_parameter: bool) -> Any:
        """The value of the last assignment before `node` that a condition does not exclude.

        Else of one after it, in a loop, of a name that is no parameter.
        """
        position = _position_in(frame, node)
        line = position or _AT_END
        before = [b for b in bindings if b.position < line and node not in all_nodes(b.value)]
        if not is_parameter:
            before = before or [b for b in bindings if node not in all_nodes(b.value)]
        around = set(ancestors(frame.document.tree, node)) if position is not None else set()
        for binding in sorted(before, key=lambda b: b.order(around), reverse=True)[:MAX_BINDINGS]:
            if any(part in around and part not in binding.around for part in binding.siblings):
                continue  # in the other branch
            if any(self.truth(test, frame) is not wanted for test, wanted in binding.tests(around) if
                   self.truth(test, frame) is not None):  # fmt: skip
                continue
            value = self._bound_value(node.id, binding, frame)
            if known(value) and value is not None:
                return value
            if value is not None and not any(True for _ in binding.tests(around)):
                return UNKNOWN  # it replaces the earlier ones
        return UNKNOWN

    def _with_items(self, value: Any, node: ast.Name, items: list[_Binding], frame: Frame) -> Any:
        """`value` with the items that are assigned before `node`: a sample whose image is transformed, a pair of images."""
        line = _position_in(frame, node) or _AT_END
        for item in items:
            if item.position >= line or item.key is None or node in all_nodes(item.value):
                continue
            if any(self.truth(test, frame) is (not wanted) for test, wanted in item.tests(set())):
                continue
            key, new = self.value(item.key, frame), self.value(item.value, frame)
            for index in item.path:
                new = item_of(new, index)
            if known(new):
                value = with_item(value, key, new)
        return value

    def _bound_value(self, name: str, binding: _Binding, frame: Frame) -> Any:
        value = self.value(binding.value, frame)
        if binding.is_item:
            value = items_in(self._as_listing(value))
        for index in binding.path:
            value = item_of(value, index)
        if value == () or (isinstance(value, Listing) and not known(value.item)):
            return self._collected(name, frame)
        return value

    def _collected(self, name: str, frame: Frame) -> Any:
        """A list that begins empty, with the items that its scope appends: ``frames.append(image)``."""
        scope: ast.AST = frame.function if frame.function is not None else frame.document.tree
        for call in _additions(scope, name):
            item = self._added(call, frame)
            if known(item):
                return Listing(item=item, length=self._trips(call, scope, frame))
        return Listing(item=UNKNOWN)

    def _added(self, call: ast.Call, frame: Frame) -> Any:
        item = self.value(call.args[0], frame)
        return items_in(self._as_listing(item)) if last_name(call.func) == "extend" else item

    def _trips(self, node: ast.AST, scope: ast.AST, frame: Frame) -> int | None:
        """How often the loops around `node` in its scope run it."""
        count = 1
        for loop in ancestors(frame.document.tree, node):
            if loop is scope:
                return count
            if isinstance(loop, ast.While):
                return None
            if isinstance(loop, ast.For):
                length = _length(self.value(loop.iter, frame))
                if length is None:
                    return None
                count *= length
        return count

    def _parameter(self, name: str, frame: Frame) -> Any:
        """What the callers of a function pass; its default if none of them passes anything."""
        function = frame.function
        assert isinstance(function, FunctionNode)
        if not frame.is_called:
            for call, caller in self._callers(frame):
                passed = argument(call, name, _place_of_parameter(function, name))
                value = self.value(passed, caller) if passed is not None else UNKNOWN
                if known(value):
                    return value
        default = default_of(function.args, name)
        return self.value(default, Frame(frame.document)) if default is not None else UNKNOWN

    def _callers(self, frame: Frame) -> Iterator[tuple[ast.Call, Frame]]:
        """The calls of the function of `frame`, with their frames."""
        function = frame.function
        assert isinstance(function, FunctionNode)
        owner = frame.owner
        if owner is not None and function.name in ("__init__", "__call__", "forward"):
            yield from self._constructions(owner) if function.name == "__init__" else ()
            return
        module = frame.document.path.stem if frame.document.path is not None else None
        count = 0
        for document in (frame.document, *(d for d in self.documents if d is not frame.document)):
            if owner is None:
                calls = [passing for _, passing in calls_of(function.name, document, module)]
            else:
                calls = [c for c in _method_calls(document.tree).get(function.name, ()) if c.args or c.keywords]
            for call in calls:
                try:
                    caller = self._frame_at(document, call)
                except KeyError:
                    continue  # a call that stands for another one
                if caller.function is not function:
                    yield call, caller
                    count += 1
                if count == MAX_CALLERS:
                    return

    def _constructions(self, owner: Instance) -> Iterator[tuple[ast.Call, Frame]]:
        module = owner.document.path.stem if owner.document.path is not None else None
        for document in (owner.document, *(d for d in self.documents if d is not owner.document)):
            for call, _ in calls_of(owner.node.name, document, module)[:MAX_CALLERS]:
                yield call, self._frame_at(document, call)

    # definitions

    def _definition(self, document: Document, name: str, depth: int = 0) -> Any:
        """The class or function `name` of a document, or of a file that it imports it from."""
        facts = facts_of(document.tree)
        node = facts.functions.get(name) or facts.classes.get(name)
        if node is not None:
            return _defined(document, node)
        path = document.path
        if depth > 3 or path is None:
            return UNKNOWN
        root = repository_root(path)
        for statement in (n for n in all_nodes(document.tree) if isinstance(n, ast.ImportFrom)):
            for alias in statement.names:
                if alias.name != "*" and (alias.asname or alias.name) != name:
                    continue
                wanted = name if alias.name == "*" else alias.name
                for file in module_files(statement.module or "", statement.level, path):
                    other = self._document(file) if file.is_relative_to(root) else None
                    found = self._exported(other, wanted, depth) if other is not None else UNKNOWN
                    if known(found):
                        return found
        return UNKNOWN

    def _exported(self, document: Document, name: str, depth: int) -> Any:
        """The definition or the variable `name` of a module."""
        found = self._definition(document, name, depth + 1)
        if known(found):
            return found
        frame = Frame(document)
        bindings = self._scope_bindings(frame).get(name)
        return self._bound_value(name, bindings[-1], frame) if bindings else UNKNOWN

    def _module_attribute(self, document: Document, text: str, attribute: str) -> Any:
        """The definition `attribute` of a module that `document` imports as `text`."""
        origin = facts_of(document.tree).origins.get(text.partition(".")[0])
        if origin is None or document.path is None:
            return UNKNOWN
        name = ".".join([origin, *text.split(".")[1:]])
        level = len(name) - len(name.lstrip("."))
        root = repository_root(document.path)
        for file in module_files(name.lstrip("."), level, document.path):
            other = self._document(file) if file.is_relative_to(root) else None
            if other is not None:
                return self._exported(other, attribute, 0)
        return UNKNOWN

    # parts of values

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        text = dotted_name(node.value)
        if text is not None and text.partition(".")[0] in facts_of(frame.document.tree).origins:
            found = self._module_attribute(frame.document, text, node.attr)
            if known(found):
                return found
            if self._is_of_library(node.value, frame):
                return node.attr  # np.float32, cv2.COLOR_BGR2RGB
        owner = self.value(node.value, frame)
        if isinstance(owner, Array):
            if node.attr == "shape" and owner.sizes is not None:
                return tuple(UNKNOWN if size is None else size for size in owner.sizes)
            if node.attr == "T" and owner.sizes is not None:
                return owner.of(owner.sizes[::-1])
            return owner if node.attr in ("data", "values", "real") else UNKNOWN
        if isinstance(owner, Instance):
            return self.attribute_of(owner, node.attr)
        if isinstance(owner, Listing) and node.attr == "dataset":
            return UNKNOWN
        return item_of(owner, node.attr) if isinstance(owner, Mapping) else UNKNOWN

    def attribute_of(self, owner: Instance, name: str) -> Any:
        """The attribute of an object: a method, or what its constructor or another method assigns."""
        for document, node in self._with_bases(owner.document, owner.node):
            for method in (m for m in node.body if isinstance(m, FunctionNode)):
                if method.name == name:
                    function = Function(document=document, node=method, owner=owner)
                    is_property = any(last_name(d) in ("property", "cached_property") for d in method.decorator_list)
                    return self.call(function, Arguments()) if is_property else function
            for method, target, value in _attribute_assignments(node, name):
                frame = self._method_frame(document, method, owner)
                test = next(
                    (t for t in _if_tests(document.tree, target) if self.truth(t[0], frame) is (not t[1])), None
                )
                found = self.value(value, frame) if test is None else UNKNOWN
                if found == () or (isinstance(found, Listing) and not known(found.item)):
                    found = self._collected_attribute(document, node, owner, name)
                if known(found) and found is not None:
                    return found
            for statement in node.body:
                for target_node, value in assigned(statement):
                    if isinstance(target_node, ast.Name) and target_node.id == name:
                        return self.value(value, Frame(document))
        return UNKNOWN

    def _collected_attribute(self, document: Document, node: ast.ClassDef, owner: Instance, name: str) -> Any:
        for method in (m for m in node.body if isinstance(m, FunctionNode)):
            instance = _instance_name(method)
            for call in _additions(method, f"{instance}.{name}"):
                return Listing(item=self._added(call, self._method_frame(document, method, owner)))
        return UNKNOWN

    def _method_frame(self, document: Document, method: FunctionNode, owner: Instance) -> Frame:
        if method.name == "__init__" and isinstance(owner.made, Frame) and owner.made.function is method:
            return owner.made
        for frame in (kept for kept in self._kept if isinstance(kept, Frame)):
            if frame.function is method and frame.owner is owner:
                return frame
        frame = Frame(document, method, owner=owner, outer=Frame(document))
        self._kept.append(frame)
        return frame

    def _with_bases(
        self, document: Document, node: ast.ClassDef, depth: int = 0
    ) -> Iterator[tuple[Document, ast.ClassDef]]:
        yield document, node
        for base in node.bases if depth < 4 else ():
            name = last_name(base)
            found = (
                self._definition(document, name)
                if isinstance(base, ast.Name)
                else self._attribute_class(document, base)
            )
            if isinstance(found, _Class) and found.node is not node:
                yield from self._with_bases(found.document, found.node, depth + 1)

    def _attribute_class(self, document: Document, base: ast.expr) -> Any:
        text = dotted_name(base.value) if isinstance(base, ast.Attribute) else None
        return self._module_attribute(document, text, last_name(base)) if text is not None else UNKNOWN

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "__dict__":
            return self._member(node.value.value, self.value(node.slice, frame), frame)
        owner = self.value(node.value, frame)
        if isinstance(owner, Array):
            return self._indexed(owner, node.slice, frame)
        if isinstance(node.slice, ast.Slice):
            size = self._difference(node.slice.lower, node.slice.upper, frame) if not known(owner) else None
            if size is not None:
                return Array(sizes=(size,))  # a window of a signal, as long as nothing else is known
            return owner if isinstance(owner, Listing) else self._sliced(owner, node.slice, frame)
        index = self.value(node.slice, frame)
        if isinstance(owner, Instance):
            return self.call_method(owner, "__getitem__", Arguments(positional=(index,)))
        if isinstance(owner, Listing) and isinstance(index, (Array, Listing)):
            return owner
        if isinstance(owner, (tuple, Mapping)) and not known(index):
            return next(iter(owner.values() if isinstance(owner, Mapping) else owner), UNKNOWN)
        return item_of(owner, index)

    def _sliced(self, owner: Any, part: ast.Slice, frame: Frame) -> Any:
        bounds = [self.value(b, frame) if b is not None else None for b in (part.lower, part.upper, part.step)]
        is_known = isinstance(owner, (tuple, str)) and all(bound is None or type(bound) is int for bound in bounds)
        return owner[slice(*bounds)] if is_known else UNKNOWN

    def _indexed(self, array: Array, index: ast.expr, frame: Frame) -> Any:
        """``array[0]``, ``array[:, top:top + size]``, ``array[..., None]``, ``array[permutation]``."""
        if array.sizes is None:
            return array
        parts = list(index.elts) if isinstance(index, ast.Tuple) else [index]
        ellipsis = next((i for i, p in enumerate(parts) if isinstance(p, ast.Constant) and p.value is ...), None)
        is_new = [(isinstance(p, ast.Constant) and p.value is None) or last_name(p) == "newaxis" for p in parts]
        if ellipsis is not None:
            missing = len(array.sizes) - (len(parts) - 1 - sum(is_new))
            parts[ellipsis : ellipsis + 1] = [ast.Slice()] * max(missing, 0)
        sizes: list[int | None] = []
        rest = list(array.sizes)
        for part in parts:
            if (isinstance(part, ast.Constant) and part.value is None) or last_name(part) == "newaxis":
                sizes.append(1)
                continue
            if not rest:
                return array.of(None)
            size = rest.pop(0)
            if isinstance(part, ast.Slice):
                sizes.append(self._slice_size(size, part, frame))
                continue
            value = self.value(part, frame)
            picked = as_array(value) if isinstance(value, (Array, Listing, tuple)) else None
            if isinstance(picked, Array):
                if picked.sizes is None:
                    return array.of(None)
                sizes += [None] if picked.dtype == "bool" else picked.sizes
            elif type(value) is not int and isinstance(part, ast.Name) and not self._is_counter(part, frame):
                return array.of(None)
        return array.of((*sizes, *rest))

    def _is_counter(self, node: ast.Name, frame: Frame) -> bool:
        """Whether a variable without a known value is a number: that of a loop, or the index of an item."""
        if isinstance(frame.function, FunctionNode) and frame.function.name == "__getitem__":
            return True
        return any(b.is_item for scope in _chain(frame) for b in self._scope_bindings(scope).get(node.id, ()))

    def _slice_size(self, size: int | None, part: ast.Slice, frame: Frame) -> int | None:
        if part.lower is None and part.upper is None and part.step is None:
            return size
        difference = self._difference(part.lower, part.upper, frame)
        if difference is not None:
            return difference
        bounds = [self.value(b, frame) if b is not None else None for b in (part.lower, part.upper, part.step)]
        if any(bound is not None and type(bound) is not int for bound in bounds):
            return None
        if size is not None:
            return len(range(size)[slice(*bounds)]) if bounds[2] != 0 else None
        start, end = bounds[0] or 0, whole(bounds[1])
        return end - start if end is not None and 0 <= start < end and bounds[2] is None else None

    def _difference(self, lower: ast.expr | None, upper: ast.expr | None, frame: Frame) -> int | None:
        """The size of ``start : start + size``, whatever the start."""
        if lower is None or upper is None:
            return None
        if isinstance(upper, ast.Name):
            bindings = self._scope_bindings(frame).get(upper.id, ())
            upper = bindings[-1].value if len(bindings) == 1 and not bindings[0].path else upper
        if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add):
            for same, size in ((upper.left, upper.right), (upper.right, upper.left)):
                if ast.dump(same) == ast.dump(lower):
                    return whole(self.value(size, frame))
        return None

    def _combined(self, kind: type[ast.AST], left: Any, right: Any) -> Any:
        if isinstance(left, Array) or isinstance(right, Array):
            return broadcast(left, right)
        if kind is ast.Mult and isinstance(left, Listing) and not isinstance(right, Listing):
            count = whole(right)
            return Listing(item=left.item, length=left.length * count if left.length and count is not None else None)
        if kind is ast.Add and isinstance(left, Listing) and isinstance(right, Listing):
            return left
        if not (_is_plain(left) and _is_plain(right)) or kind not in _OPERATORS:
            return UNKNOWN
        if kind is ast.Pow and not (type(right) is int and 0 <= right < 64):
            return UNKNOWN
        try:
            result = _OPERATORS[kind](left, right)
        except (ArithmeticError, TypeError, ValueError):
            return UNKNOWN
        return result if not isinstance(result, (str, tuple)) or len(result) < 10_000 else UNKNOWN

    def _comparison(self, node: ast.Compare, frame: Frame) -> Any:
        left, right = self.value(node.left, frame), self.value(node.comparators[0], frame)
        if len(node.ops) > 1:
            return UNKNOWN
        kind = type(node.ops[0])
        if kind in (ast.Is, ast.IsNot) and right is None and known(left):
            return (left is None) is (kind is ast.Is)
        if kind is ast.In and _is_plain(left) and isinstance(right, (tuple, str, dict)):
            is_comparable = isinstance(left, str) if isinstance(right, str) else all(map(_is_plain, right))
            return left in right if is_comparable else UNKNOWN
        return self._combined(kind, left, right)

    def _boolean(self, node: ast.BoolOp, frame: Frame) -> Any:
        is_and = isinstance(node.op, ast.And)
        result: Any = UNKNOWN
        for part in node.values:
            truth = self.truth(part, frame)
            if truth is (not is_and):
                return self.value(part, frame)
            result = self.value(part, frame)
            if truth is None:
                return UNKNOWN
        return result

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, frame: Frame) -> Any:
        inner = Frame(frame.document, frame.function, owner=frame.owner, outer=frame)
        self._kept.append(inner)
        only = node.generators[0]
        parts = self.value(only.iter, inner)
        if isinstance(parts, tuple) and len(node.generators) == 1 and not only.ifs and len(parts) <= MAX_PARTS:
            values = []
            for part in parts:
                each = Frame(frame.document, frame.function, owner=frame.owner, outer=frame)
                self._kept.append(each)
                _bind(each.bound, only.target, part)
                values.append(self.value(node.elt, each))
            return tuple(values)
        length: int | None = 1
        for generator in node.generators:
            iterated = self._as_listing(self.value(generator.iter, inner))
            _bind(inner.bound, generator.target, items_in(iterated))
            count = _length(iterated) if not generator.ifs else None
            length = length * count if length is not None and count is not None else None
        return Listing(item=self.value(node.elt, inner), length=length)

    # calls

    def _call(self, node: ast.Call, frame: Frame) -> Any:
        name = last_name(node.func)
        if name == "len" and node.args:
            length = _length(self.value(node.args[0], frame))
            return length if length is not None else UNKNOWN
        if name in ("deque", "list") and not node.args:
            return ()
        if name == "getattr" and len(node.args) > 1:
            return self._member(node.args[0], self.value(node.args[1], frame), frame)
        if name in ("next", "choice") and node.args:
            return items_in(self._as_listing(self.value(node.args[0], frame)))
        if name == "crop" and len(node.args) == 1:
            return self._cropped(node, frame)
        if name == "zip" and len(node.args) == 1 and isinstance(node.args[0], ast.Starred):
            rows = self._as_listing(self.value(node.args[0], frame))
            item = items_in(rows)
            return (
                tuple(Listing(item=part, length=_length(rows)) for part in item) if isinstance(item, tuple) else UNKNOWN
            )
        if name in _LOOPS:
            parts = tuple(items_in(self._as_listing(self.value(part, frame))) for part in node.args)
            lengths = [_length(self.value(part, frame)) for part in node.args]
            item = parts if name == "zip" else (UNKNOWN, *parts[:1])
            return Listing(item=item, length=next((n for n in lengths if n is not None), None))
        if name == "range" and isinstance(node.func, ast.Name):
            size = self._difference(node.args[0], node.args[1], frame) if len(node.args) == 2 else None
            values = [size] if size is not None else [self.value(part, frame) for part in node.args]
            return self._range(values)
        if name == "map" and len(node.args) == 2:
            function = self.value(node.args[0], frame)
            item = items_in(self._as_listing(self.value(node.args[1], frame)))
            return Listing(item=self._apply(function, Arguments(positional=(item,))))
        callee = (
            self.value(node.func, frame) if not isinstance(node.func, ast.Name) or name not in OPERATIONS else UNKNOWN
        )
        if isinstance(node.func, ast.Name) and not known(callee):
            callee = self._name(node.func, frame)
        if isinstance(callee, (_Class, Function)):
            return self._apply(callee, None, node, frame)
        arguments = self._arguments(node, frame)
        if isinstance(callee, (Instance, Transform)):
            return self._apply(callee, arguments)
        return self._library_call(callee if isinstance(callee, str) else name, node, arguments, frame)

    def _range(self, values: list[Any]) -> Any:
        bounds = [value for value in values if type(value) is int]
        return Listing(item=UNKNOWN, length=len(range(*bounds)) if len(bounds) == len(values) and bounds else None)

    def _cropped(self, node: ast.Call, frame: Frame) -> Any:
        """``picture.crop((left, top, left + width, top + height))``."""
        picture = self.value(node.func.value, frame) if isinstance(node.func, ast.Attribute) else UNKNOWN
        box = node.args[0]
        if not isinstance(picture, Array) or picture.sizes is None:
            return picture
        if not isinstance(box, ast.Tuple) or len(box.elts) != 4:
            return picture.of(None)
        left, top, right, bottom = box.elts
        ends = []
        for start, end in ((top, bottom), (left, right)):
            size = self._difference(start, end, frame)
            numbers = self.value(start, frame), self.value(end, frame)
            is_plain = all(type(number) is int for number in numbers)
            ends.append(size if size is not None else numbers[1] - numbers[0] if is_plain else None)
        return Array(sizes=(*ends, *picture.sizes[2:]), dtype=picture.dtype, is_picture=True)

    def _library_call(self, name: str, node: ast.Call, arguments: Arguments, frame: Frame) -> Any:
        owner = arguments.owner
        if name in IMAGES:
            return data_set(name, arguments)
        if name == _BATCHES:
            return self._loader(arguments)
        if name in ("Subset", "ConcatDataset", "random_split", "prefetch"):
            inner = arguments.get(0, "dataset", "datasets")
            inner = items_in(inner) if name == "ConcatDataset" and isinstance(inner, tuple) else inner
            return Listing(item=inner) if name == "random_split" else inner
        if name == "TensorDataset":
            return Listing(item=tuple(item_of(as_array(value)) for value in arguments.positional))
        if name == "open" and (origin_of(node.func, facts_of(frame.document.tree).origins) or "").endswith(
            "Image.open"
        ):
            return Array(sizes=(None, None, 3), dtype="uint8", is_picture=True)
        if name in _BUILTINS and isinstance(node.func, ast.Name):
            value = arguments.get(0)
            try:
                return _BUILTINS[name](value) if type(value) in (int, float, str) else self._converted(name, arguments)
            except ValueError:
                return UNKNOWN
        if name in ("max", "min") and isinstance(node.func, ast.Name) and not isinstance(arguments.get(0), Array):
            values = arguments.positional
            return max(values) if name == "max" and all(type(v) is int for v in values) and len(values) > 1 else UNKNOWN
        if isinstance(owner, Mapping):
            if name == "get":
                return item_of(owner, arguments.get(0)) if known(arguments.get(0)) else UNKNOWN
            if name in ("items", "values", "keys"):
                pairs = tuple((key, value) for key, value in owner.items())
                column = {"items": pairs, "values": tuple(owner.values()), "keys": tuple(owner)}
                return column[name]
        if isinstance(owner, str):
            return getattr(owner, name)() if name in ("lower", "upper", "strip") else UNKNOWN
        if isinstance(owner, Array) and owner.is_picture and name not in OPERATIONS:
            return owner
        if name in OPERATIONS:
            if isinstance(owner, (Listing, tuple)) and name not in ("copy",):
                return UNKNOWN
            return OPERATIONS[name](arguments)
        if name[:1].isupper() and self._is_library(node.func, frame):
            return transform(name, arguments, self._apply)
        return UNKNOWN

    def _converted(self, name: str, arguments: Arguments) -> Any:
        return OPERATIONS[name](arguments) if name in OPERATIONS else UNKNOWN

    def _is_library(self, function: ast.expr, frame: Frame) -> bool:
        """Whether a class is that of a library that transforms images."""
        origins = facts_of(frame.document.tree).origins
        head = (dotted_name(function) or "").partition(".")[0]
        return any(word in origins.get(head, head) for word in ("transforms", "albumentations", "transform", "augment"))

    def _loader(self, arguments: Arguments) -> Any:
        """The batches of a DataLoader: what its collation makes of the items of its data set."""
        size = whole(arguments.get(1, "batch_size", default=1))
        item = items_in(self._as_listing(arguments.get(0, "dataset")))
        collate = arguments.get(None, "collate_fn")
        if isinstance(collate, (Function, Instance)):
            return Listing(item=self._apply(collate, Arguments(positional=(Listing(item=item, length=size),))))
        return Listing(item=joined(item, size))

    def _as_listing(self, value: Any) -> Any:
        """`value` as what a loop goes through: a data set of the program gives the items that its methods return."""
        if not isinstance(value, Instance):
            return value
        for name in ("__getitem__", "__iter__", "__next__", "__call__"):
            method = self.attribute_of(value, name)
            if isinstance(method, Function):
                result = self.call(method, Arguments(positional=(UNKNOWN,)))
                return Listing(item=result) if name in ("__getitem__", "__next__") else self._as_iterator(result)
        return UNKNOWN

    def _as_iterator(self, value: Any) -> Any:
        return value if isinstance(value, (Listing, tuple, Array)) else UNKNOWN

    def _arguments(self, node: ast.Call, frame: Frame) -> Arguments:
        positional: list[Any] = []
        for part in node.args:
            value = self.value(part, frame)
            if isinstance(part, ast.Starred):
                positional += value if isinstance(value, tuple) else [UNKNOWN]
            else:
                positional.append(value)
        named: dict[str, Any] = {}
        for word in node.keywords:
            value = self.value(word.value, frame)
            if word.arg is not None:
                named[word.arg] = value
            elif isinstance(value, Mapping):
                named.update({key: item for key, item in value.items() if isinstance(key, str)})
        owner: Any = UNKNOWN
        is_method = isinstance(node.func, ast.Attribute) and not self._is_of_library(node.func.value, frame)
        if isinstance(node.func, ast.Attribute) and is_method:
            owner = self.value(node.func.value, frame)
        return Arguments(positional=tuple(positional), named=named, owner=owner, is_method=is_method)

    def _is_of_library(self, node: ast.expr, frame: Frame) -> bool:
        """Whether an expression is an imported module, or a part of one."""
        head = (dotted_name(node) or "").partition(".")[0]
        is_bound = any(head in scope.bound or head in self._scope_bindings(scope) for scope in _chain(frame))
        return head in facts_of(frame.document.tree).origins and not is_bound

    def _member(self, node: ast.expr, name: Any, frame: Frame) -> Any:
        """The attribute of an object or a module whose name is computed: ``getattr(datasets, name)``."""
        if not isinstance(name, str):
            return UNKNOWN
        attribute = ast.copy_location(ast.Attribute(value=node, attr=name, ctx=ast.Load()), node)
        return self._attribute(attribute, frame)

    def _apply(
        self, callee: Any, arguments: Arguments | None, node: ast.Call | None = None, frame: Frame | None = None
    ) -> Any:
        """The value of a call of something of the program."""
        if isinstance(callee, Transform):
            return self._transformed(callee, arguments or Arguments())
        if isinstance(callee, Instance):
            for name in ("__call__", "forward"):
                method = self.attribute_of(callee, name)
                if isinstance(method, Function):
                    return self.call(method, arguments or Arguments())
            return UNKNOWN
        if arguments is None and node is not None and frame is not None:
            arguments = self._arguments(node, frame)
        if isinstance(callee, _Class):
            return self._made(callee, arguments or Arguments())
        return self.call(callee, arguments or Arguments()) if isinstance(callee, Function) else UNKNOWN

    def _transformed(self, change: Transform, arguments: Arguments) -> Any:
        """``transform(picture)``, or of albumentations ``transform(image=picture, mask=mask)["image"]``."""
        if arguments.positional:
            return change.apply(arguments.positional[0])
        return {name: change.apply(value) for name, value in arguments.named.items()}

    def _made(self, kind: _Class, arguments: Arguments) -> Any:
        instance = Instance(document=kind.document, node=kind.node)
        for document, node in self._with_bases(kind.document, kind.node):
            method = next((m for m in node.body if isinstance(m, FunctionNode) and m.name == "__init__"), None)
            if method is not None:
                made = Instance(document=kind.document, node=kind.node, made=None)
                frame = Frame(document, method, owner=made, outer=Frame(document), is_called=True)
                frame.bound.update(_passed(method, arguments, skip=1))
                object.__setattr__(made, "made", frame)
                return made
        return instance

    def call_method(self, owner: Instance, name: str, arguments: Arguments) -> Any:
        """The value of ``owner.name(...)``."""
        method = self.attribute_of(owner, name)
        return self.call(method, arguments) if isinstance(method, Function) else UNKNOWN

    def call(self, function: Function, arguments: Arguments) -> Any:
        """What a function of the program returns; of a generator, a list of what it yields."""
        node = function.node
        if self._depth > MAX_DEPTH - 10:
            return UNKNOWN
        if isinstance(node, ast.Lambda):
            frame = Frame(function.document, None, outer=function.frame, is_called=True)
            frame.bound.update(_passed(node, arguments, skip=0))
            self._kept.append(frame)
            return self.value(node.body, frame)
        is_static = any(last_name(d) == "staticmethod" for d in node.decorator_list)
        frame = Frame(function.document, node, owner=function.owner, outer=Frame(function.document), is_called=True)
        frame.bound.update(_passed(node, arguments, skip=int(function.owner is not None and not is_static)))
        self._kept.append(frame)
        results = [n for n in walk_scope(node) if isinstance(n, (ast.Return, ast.Yield)) and n.value is not None]
        for result in sorted(results, key=lambda n: n.lineno):
            if any(
                self.truth(test, frame) is (not wanted) for test, wanted in _if_tests(function.document.tree, result)
            ):
                continue
            assert result.value is not None
            value = self.value(result.value, frame)
            if known(value) and value is not None:
                return Listing(item=value) if isinstance(result, ast.Yield) else value
        return UNKNOWN


@dataclass(frozen=True, slots=True, eq=False)
class _Class:
    document: Document
    node: ast.ClassDef


@dataclass(frozen=True, slots=True, eq=False)
class _Binding:
    """An assignment of a name: `path` are the indices of ``a, b = value``; `is_item` if a loop assigns it.

    With a `key`, an assignment of one item of it: ``sample["image"] = value``.

    `conditions` are the ``if`` statements around it, the innermost first, with whether it is in their first branch.
    """

    value: ast.expr
    position: tuple[int, int]
    path: tuple[int, ...] = ()
    is_item: bool = False
    conditions: tuple[tuple[ast.If, bool], ...] = ()
    key: ast.expr | None = None

    @property
    def around(self) -> frozenset[ast.AST]:
        """The statements of the branches that it is in."""
        return frozenset(part for node, is_body in self.conditions for part in (node.body if is_body else node.orelse))

    @property
    def siblings(self) -> frozenset[ast.AST]:
        """The statements of the branches that it is not in."""
        return frozenset(part for node, is_body in self.conditions for part in (node.orelse if is_body else node.body))

    def tests(self, around: set[ast.AST]) -> Iterator[tuple[ast.expr, bool]]:
        """The conditions that must hold for it, apart from those that hold `around` a place."""
        return ((node.test, is_body) for node, is_body in self.conditions if node not in around)

    def order(self, around: set[ast.AST]) -> tuple[int, ...]:
        """Later ones are greater; of two branches of one ``if``, the first is."""
        outer = next((pair for pair in reversed(self.conditions) if pair[0] not in around), None)
        if outer is None:
            return (self.position[0], 1, *self.position)
        return (outer[0].end_lineno or 0, int(outer[1]), *self.position)


def _bindings_of(scope: ast.AST) -> dict[str, list[_Binding]]:
    found: dict[str, list[_Binding]] = {}

    def add(target: ast.expr, value: ast.expr, conditions: tuple[tuple[ast.If, bool], ...], *, is_item: bool,
            path: tuple[int, ...] = ()) -> None:  # fmt: skip
        if isinstance(target, ast.Name):
            position = (
                (value.lineno, value.col_offset) if is_item else (target.end_lineno or 0, target.end_col_offset or 0)
            )
            binding = _Binding(value, position, path, is_item, conditions)
            found.setdefault(target.id, []).append(binding)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            position = target.end_lineno or 0, target.end_col_offset or 0
            binding = _Binding(value, position, path, is_item, conditions, target.slice)
            found.setdefault(_items_of(target.value.id), []).append(binding)
        elif isinstance(target, (ast.Tuple, ast.List)) and not any(isinstance(e, ast.Starred) for e in target.elts):
            for index, element in enumerate(target.elts):
                add(element, value, conditions, is_item=is_item, path=(*path, index))

    def visit(statements: list[ast.stmt], conditions: tuple[tuple[ast.If, bool], ...]) -> None:
        for statement in statements:
            if isinstance(statement, ast.For):
                add(statement.target, statement.iter, conditions, is_item=True)
            if isinstance(statement, ast.With):
                for item in statement.items:
                    if item.optional_vars is not None:
                        add(item.optional_vars, item.context_expr, conditions, is_item=False)
            for target, value in assigned(statement):
                add(target, value, conditions, is_item=False)
            if isinstance(statement, ast.If):
                visit(statement.body, ((statement, True), *conditions))
                visit(statement.orelse, ((statement, False), *conditions))
            elif not isinstance(statement, (*FunctionNode.__args__, ast.ClassDef)):
                for block in ("body", "orelse", "finalbody"):
                    visit(getattr(statement, block, []), conditions)

    visit(getattr(scope, "body", []) if isinstance(getattr(scope, "body", None), list) else [], ())
    return found


def _position_in(frame: Frame, node: ast.Name) -> tuple[int, int] | None:
    """Line and column of `node`; None if it is not in the function of `frame`, or made up."""
    is_inside = frame.function is None or any(part is node for part in walk_scope(frame.function))
    return (node.lineno, node.col_offset) if is_inside and hasattr(node, "lineno") else None


def _items_of(name: str) -> str:
    """The key of `_bindings_of` for assignments to items of the variable `name`."""
    return f"{name}[]"


def _additions(scope: ast.AST, name: str) -> Iterator[ast.Call]:
    """The calls in `scope` that add items to the list `name`."""
    calls = (
        node for node in walk_scope(scope) if isinstance(node, ast.Call) and last_name(node.func) in _ADDS and node.args
    )
    yield from (call for call in calls if dotted_name(getattr(call.func, "value", call)) == name)


def _chain(frame: Frame) -> Iterator[Frame]:
    scope: Frame | None = frame
    while scope is not None:
        yield scope
        scope = scope.outer


def _if_tests(tree: ast.Module, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions around `node` in its function, and the value that leads to it."""
    current = node
    for parent in ancestors(tree, node):
        if isinstance(parent, (*FunctionNode.__args__, ast.ClassDef)):
            return
        if isinstance(parent, ast.If):
            yield parent.test, current in parent.body
        current = parent


def _arguments(function: Any) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _instance_name(function: FunctionNode) -> str:
    return function.args.args[0].arg if function.args.args else ""


def _place_of_parameter(function: FunctionNode, name: str) -> int | None:
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    return names.index(name) if name in names else None


def _passed(function: Any, arguments: Arguments, skip: int) -> dict[str, Any]:
    """The parameters that `arguments` bind: those without a value keep their default."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][skip:]
    bound = dict(zip(names, arguments.positional, strict=False))
    keywords = {a.arg for a in _arguments(function)}
    bound.update({name: value for name, value in arguments.named.items() if name in keywords})
    if function.args.vararg is not None:
        bound[function.args.vararg.arg] = arguments.positional[len(names) :]
    if function.args.kwarg is not None:
        bound[function.args.kwarg.arg] = {k: v for k, v in arguments.named.items() if k not in keywords}
    return bound


def _defined(document: Document, node: Any) -> Any:
    return _Class(document, node) if isinstance(node, ast.ClassDef) else Function(document=document, node=node)


def _attribute_assignments(node: ast.ClassDef, name: str) -> Iterator[tuple[FunctionNode, ast.expr, ast.expr]]:
    """(method, target, value) of the assignments of an attribute, those of the constructor first."""
    methods = [m for m in node.body if isinstance(m, FunctionNode)]
    for method in sorted(methods, key=lambda m: m.name != "__init__"):
        instance = _instance_name(method)
        for inner in walk_scope(method):
            for target, value in assigned(inner):
                elements = target.elts if isinstance(target, ast.Tuple) else [target]
                for index, element in enumerate(elements):
                    if isinstance(element, ast.Attribute) and dotted_name(element) == f"{instance}.{name}":
                        part = value
                        if element is not target:
                            part = ast.Subscript(value=value, slice=ast.Constant(value=index), ctx=ast.Load())
                            ast.fix_missing_locations(ast.copy_location(part, value))
                        yield method, target, part


@lru_cache(maxsize=64)
def _method_calls(tree: ast.Module) -> dict[str, list[ast.Call]]:
    calls: dict[str, list[ast.Call]] = {}
    for node in all_nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            calls.setdefault(node.func.attr, []).append(node)
    return calls


def _bind(bound: dict[str, Any], target: ast.expr, value: Any) -> None:
    if isinstance(target, ast.Name):
        bound[target.id] = value
    elif isinstance(target, (ast.Tuple, ast.List)):
        for index, element in enumerate(target.elts):
            _bind(bound, element, item_of(value, index))


def _length(value: Any) -> int | None:
    if isinstance(value, Listing):
        return value.length
    if isinstance(value, Array):
        return value.sizes[0] if value.sizes else None
    return len(value) if isinstance(value, (tuple, str)) else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _plain(value: Any) -> Any:
    """What the evaluator found, as a value of the data path: numbers, texts, and lists and tables of them."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (Tensor, np.ndarray)):
        kind = str(value.dtype).removeprefix("torch.")
        return Array(sizes=tuple(value.shape), dtype=None if kind == "float32" else kind)
    return value if _is_plain(value) else UNKNOWN
