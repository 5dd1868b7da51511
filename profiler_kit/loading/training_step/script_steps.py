"""Finds the training step of a model in its documents: the loss that a script computes from the model's output."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from torch import Tensor, nn
from torch.optim import Optimizer

from profiler_kit.loading.candidates.sites import CallSite
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.model_use import ModelUse, trains
from profiler_kit.loading.program.names import bound_names, calls_in, dotted_name, in_order, last_name, used_names
from profiler_kit.loading.program.places import Place, place_of
from profiler_kit.loading.program.programs import in_program_order
from profiler_kit.loading.program.slices import facts_of
from profiler_kit.loading.scripts.execution import EvaluationError
from profiler_kit.loading.scripts.source import Source
from profiler_kit.loading.training_step.file_losses import file_losses
from profiler_kit.loading.training_step.losses import LOSS_NAMES
from profiler_kit.loading.training_step.script_loss import ScriptLoss, compile_loss
from profiler_kit.loading.training_step.script_optimizer import (
    optimizer_in,
    optimizer_problem,
    optimizer_sites,
    optimizer_text,
)
from profiler_kit.loading.training_step.step_code import (
    Decide,
    StepCode,
    find_called_losses,
    find_step_codes,
)
from profiler_kit.meta.batch import Forward

MAX_STEPS: Final = 8  # examined training steps
MAX_DERIVATIONS: Final = 5  # statements between the data of a loop and a label
_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptimizer:
    """An optimizer of a script: a function that builds it for a model, its location, and its settings."""

    build: Callable[[nn.Module], Optimizer | None]
    where: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSteps:
    """Searches the documents of a target for its training step.

    `use` is how they use the model. `site` is the call that builds it; its document comes first.
    """

    source: Source
    model: nn.Module
    forward: Forward
    use: ModelUse
    site: CallSite | None = None

    def _documents(self) -> Iterator[Document]:
        """The documents that may train the model: its file and the files that import it."""
        documents = [document for document in self.source.documents if document.kind in ("target", "importer")]
        return iter(in_program_order(documents, self.site.document if self.site is not None else None))

    def losses(self) -> Iterator[ScriptLoss | str]:
        """The losses in the documents, in order. A text says why one cannot be used.

        Losses with ``backward()`` come first, then calls of loss functions, then the functions of the file with such a name.
        """
        count = 0
        for find in (self._codes, self._called_losses):
            for document in self._documents():
                names = self.use.names(document)
                for code in find(document, names):
                    yield self._loss(document, names, code)
                    count += 1
                    if count == MAX_STEPS:
                        return
            if count:
                return
        yield from file_losses(self.source)

    def named_loss(self) -> tuple[str | None, str]:
        """(name, line) of the first loss of torch in a document that trains; (None, "") without one."""
        for document in self._documents():
            for call in calls_in(document.tree) if trains(document.tree) else ():
                name = LOSS_NAMES.get(last_name(call.func))
                if name is not None:
                    return name, document.at(call.lineno)
        return None, ""

    def passed_parameters(self) -> frozenset[str]:
        """The parameters of forward that a call of the model in the documents passes."""
        positional = self.forward.positional
        passed: set[str] = set()
        for document in self._documents():
            for call in self.use.calls(document):
                if call.kind == "forward":
                    passed.update(positional[: len(call.call.args)])
                    passed.update(word.arg for word in call.call.keywords if word.arg is not None)
        return frozenset(passed)

    def optimizer(self) -> tuple[ScriptOptimizer | None, str]:
        """(optimizer, reason): the first optimizer of a script for this model, or None with the first failure."""
        failure, count = "", 0
        for document in self._documents():
            names = self.use.names(document)
            for site in optimizer_sites(document.tree, names):
                place = place_of(document, site)
                if self.source.evaluator.reaches(place, _bindings(names, self.model)) is False:
                    continue
                candidate = ScriptOptimizer(build=self._builder(place, site.value, names), where=place.where)
                optimizer, problem = optimizer_problem(candidate.build, self.model)
                if optimizer is not None:
                    return replace(candidate, text=optimizer_text(optimizer)), ""
                failure = failure or f"{candidate.where}: {problem}"
                count += 1
                if count == MAX_STEPS:
                    return None, failure
        return None, failure

    def _builder(
        self, place: Place, expression: ast.expr, names: frozenset[str]
    ) -> Callable[[nn.Module], Optimizer | None]:
        def build(model: nn.Module) -> Optimizer | None:
            return optimizer_in(self.source.evaluator.value(place, expression, _bindings(names, model)))

        return build

    def _codes(self, document: Document, names: frozenset[str]) -> Iterator[StepCode]:
        return find_step_codes(document.tree, names, self._decide(document, names))

    def _called_losses(self, document: Document, names: frozenset[str]) -> Iterator[StepCode]:
        return find_called_losses(document.tree, names, self._decide(document, names))

    def _decide(self, document: Document, names: frozenset[str]) -> Decide:
        def decide(test: ast.expr, statement: ast.stmt) -> bool | None:
            value = self._value(document, statement, test, names)
            return bool(value) if isinstance(value, (bool, int, str, float, type(None), list, tuple, dict)) else None

        return decide

    def _value(self, document: Document, statement: ast.stmt, expression: ast.expr, names: frozenset[str]) -> Any:
        try:
            place = place_of(document, statement)
            return self.source.evaluator.value(place, expression, _bindings(names, self.model))
        except EvaluationError:
            return _MISSING

    def _loss(self, document: Document, names: frozenset[str], code: StepCode) -> ScriptLoss | str:
        where = document.at(code.line)
        inputs = {name: self._input(key) for name, key in reversed(code.inputs)}
        free = [name for name in code.free_names if name not in inputs]
        derived = _Derivations(code, inputs)
        statements: list[ast.stmt] = []
        constants: dict[str, Any] = {}
        labels: list[str] = []
        model_variables: list[str] = []
        while free:
            name = free.pop(0)
            if name in inputs or name in constants or name in labels or name in model_variables:
                continue
            attribute = code.attributes.get(name)
            if name in names or (attribute is not None and dotted_name(attribute) in names):
                model_variables.append(name)
                continue
            statement = derived.statement(name)
            if statement is not None:
                statements.insert(0, statement)
                reads = used_names(statement) - facts_of(document.tree).builtins - bound_names(statement)
                free += in_order(reads, [statement])
                continue
            if derived.is_data(name) and not _is_called(name, code, directly=True):
                labels.append(name)
                continue
            variable = attribute or ast.copy_location(ast.Name(id=name, ctx=ast.Load()), code.statement)
            value = self._value(document, code.statement, variable, names)
            if value is _MISSING:
                if _is_called(name, code):
                    return f"the training step at {where} is not used, because the value of {name} is unknown"
                labels.append(name)
            elif isinstance(value, nn.Module) and any(p.requires_grad for p in value.parameters()):
                return f"the training step at {where} is not used, because it needs another network, {name}"
            else:
                constants[name] = value
        code = replace(code, statements=(*statements, *code.statements))
        variables = tuple(name for name in inputs if name in code.free_names or _reads(statements, name))
        order = {name: index for index, name in enumerate(derived.data_order())}
        labels.sort(key=lambda name: order.get(name, len(order)))
        spelled = {attribute.attr: name for name, attribute in code.attributes.items()}
        criterion = constants.get(spelled.get(code.label, code.label))
        label = type(criterion).__name__ if isinstance(criterion, nn.Module) else code.label
        return ScriptLoss(
            is_in_test=document.is_test,
            name=label,
            text=code.text,
            where=where,
            code=compile_loss(
                code.statements, code.loss, code.statement, (*variables, *labels), where.rpartition(":")[0]
            ),
            inputs=tuple((name, *inputs[name]) for name in variables),
            label_names=tuple(labels),
            constants={**constants, **dict.fromkeys(model_variables, self.model)},
            model_names=tuple(model_variables),
        )

    def _input(self, key: int | str) -> tuple[int | None, str | None]:
        """(position, parameter of forward) of the input `key` of the model's call."""
        positional = self.forward.positional
        if isinstance(key, int):
            return key, positional[key] if key < len(positional) else None
        return (positional.index(key) if key in positional else None), key


def _bindings(names: frozenset[str], model: nn.Module) -> dict[str, Any]:
    """`model` as the value of the variables, and of the attributes of ``self``, among `names`."""
    return dict.fromkeys((name for name in names if name.count(".") < 2), model)


def _is_called(name: str, code: StepCode, *, directly: bool = False) -> bool:
    """Whether `code` calls `name` or, unless `directly`, an attribute of it that tensors do not have."""
    calls = (call for statement in (*code.statements, code.loss) for call in calls_in(statement))
    for head, _, attribute in ((dotted_name(call.func) or "").partition(".") for call in calls):
        if head == name and (not attribute if directly else not (attribute and hasattr(Tensor, attribute))):
            return True
    return False


def _reads(statements: list[ast.stmt], name: str) -> bool:
    return any(name in used_names(statement) for statement in statements)


class _Derivations:
    """Which names of a step are data, and which follow from inputs and constants by a statement of the step."""

    def __init__(self, code: StepCode, inputs: Mapping[str, Any]) -> None:
        self._code = code
        self._inputs = inputs
        self._bindings: dict[str, list[ast.stmt]] = {}
        self._derived: dict[str, ast.stmt | None] = {}
        for statement in code.before:
            for name in in_order(bound_names(statement), [statement]):
                self._bindings.setdefault(name, []).append(statement)

    def is_data(self, name: str, depth: int = 0) -> bool:
        """Whether `name` depends on values of a data loader."""
        if name in self._code.loop_names:
            return True
        if depth > MAX_DERIVATIONS:
            return False
        statements = [s for s in self._bindings.get(name, ()) if not isinstance(s, (ast.FunctionDef, ast.ClassDef))]
        reads = {n for statement in statements for n in used_names(statement)}
        return any(self.is_data(n, depth + 1) for n in reads - {name} - self._inputs.keys())

    def statement(self, name: str) -> ast.stmt | None:
        """The assignment of `name` if it reads only inputs and constants, of which at least one input."""
        if name not in self._derived:
            self._derived[name] = None  # names that need each other follow from nothing
            self._derived[name] = self._derivation(name)
        return self._derived[name]

    def _derivation(self, name: str) -> ast.stmt | None:
        statement = next(reversed(self._bindings.get(name, [])), None)
        if not isinstance(statement, ast.Assign):
            return None
        reads = used_names(statement)
        from_inputs = any(n in self._inputs or self.statement(n) is not None for n in reads if n != name)
        return statement if from_inputs and name not in reads and not self.is_data(name) else None

    def data_order(self) -> list[str]:
        """The names of data in the order in which the loop and the step bind them."""
        return [*self._code.loop_names, *self._bindings]
