"""All sources of inputs, the most trusted first: the first that has inputs is used.

The last one is a search on meta tensors for inputs that no file shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from torch import Tensor

from profiler_kit.errors import TargetError
from profiler_kit.loading.command import next_command
from profiler_kit.loading.evidence.announcements import NO_GUESS_HINT, announcement, choice_of, input_note
from profiler_kit.loading.evidence.input_check import input_texts, named_texts
from profiler_kit.loading.evidence.model_calls import from_model_call
from profiler_kit.loading.evidence.program_inputs import from_programs
from profiler_kit.loading.evidence.record import Evidence, Provider
from profiler_kit.loading.evidence.recorded_run import from_run
from profiler_kit.loading.evidence.stated import from_caller, from_example, from_loader, from_options, from_recipe
from profiler_kit.loading.evidence.subject import Subject, without_names
from profiler_kit.loading.evidence.training_batch import in_training_batch, training_batch
from profiler_kit.loading.input_search.facts import facts_of
from profiler_kit.loading.input_search.outcomes import Failure, InputGuess, NoFitError, NoGuess
from profiler_kit.loading.input_search.proposals import data_inputs
from profiler_kit.loading.inputs import parse_inputs
from profiler_kit.loading.scripts.import_errors import missing_module
from profiler_kit.loading.scripts.placeholders import UnavailableError, missing_package
from profiler_kit.loading.solve import MAX_REPEATS
from profiler_kit.meta.batch import Batch, batch_size, resized
from profiler_kit.records.notes import Choice
from profiler_kit.user_code.locations import display_path, one_line_message


def from_earlier_search(subject: Subject) -> Evidence | None:
    """The result of the search of an earlier load of this target."""
    pinned = subject.spec.pinned
    if pinned is None or not pinned.inputs:
        return None
    batch, _ = subject.create(parse_inputs(pinned.inputs))
    return Evidence(value=batch, where=subject.name, strength="assumed", source="search", pinned=pinned.inputs)


def from_search(subject: Subject) -> Evidence:
    """Inputs that the search found to run. Raises TargetError if there are none, or if guesses are not allowed."""
    guess = subject.guess()
    where = subject.source.at(None) if subject.source is not None else None
    count = len(subject.forward.required) or 1
    message = f"no input shape: {subject.forward} needs {count} input{'s' if count > 1 else ''}"
    if not isinstance(guess, InputGuess):
        if guess is not None and guess.failure is not None:
            line = guess.failure.line
            where = f"{display_path(line[0])}:{line[1]}" if line is not None else where
            if guess.is_unavoidable:
                raise _unavoidable(subject, guess, guess.failure, where)
            error = one_line_message(guess.failure.error)
            hint = NO_GUESS_HINT
            if guess.repeats >= MAX_REPEATS:
                message = (
                    f"{subject.forward} raised {error} with each of the {guess.repeats} inputs that got to this line"
                )
                hint = f"read the line: if it does not depend on the inputs, fix it or what it needs; else {hint}"
            else:
                message += f", and {guess.trials} combinations of shapes failed. The closest one "
                message += f"({' '.join(map(str, guess.texts))}) raised {error}"
            texts = named_texts(guess.texts, subject.forward)
            raise NoFitError(message, where=where, hint=hint, failure=guess.failure, texts=texts)
        raise TargetError(message, where=where, hint=NO_GUESS_HINT)
    if not subject.spec.allow_guess:
        options = tuple(map(str, guess.texts))
        raise TargetError(message, where=where, hint=f"set it: {next_command(subject.spec, inputs=options)}")
    texts = in_training_batch(subject, guess.texts) if not guess.doubt else guess.texts
    stated = training_batch(subject) if texts != guess.texts else None
    options = tuple(map(str, texts))
    batch, _ = subject.create(texts)
    choice = choice_of(replace(guess, texts=texts), subject.forward, stated.where if stated is not None else "")
    command = next_command(subject.spec, inputs=options)
    return _searched(subject, batch, choice, command, pinned=options)


def layer_inputs(subject: Subject) -> Iterator[Evidence]:
    """One input that a layer of the model takes, the most usual first, which may not fit forward."""
    if not subject.spec.allow_guess:
        return
    facts = facts_of(subject.model, subject.candidate.bound if subject.candidate is not None else {})
    for text in without_names(tuple(data_inputs("input", facts))):
        yield _searched(subject, subject.created_in_size((text,)), Choice(subject="inputs", value=str(text)))


def _searched(
    subject: Subject, batch: Batch, choice: Choice, command: str = "", pinned: tuple[str, ...] = ()
) -> Evidence:
    return Evidence(
        value=batch, where=subject.name, strength="assumed", source="search", notes=(announcement(choice, command),),
        pinned=pinned, choices=(choice,),
    )  # fmt: skip


def _unavoidable(subject: Subject, guess: NoGuess, failure: Failure, where: str | None) -> TargetError:
    """The error for a `failure` of forward that no input avoids."""
    package = missing_package(failure.error)
    if package is None:
        message = f"{subject.forward} raised {one_line_message(failure.error)} with each input, whatever its shape"
        hint = "fix this line, or pass other arguments with --kw: no tried input avoids it"
        texts = named_texts(guess.texts, subject.forward)
        return NoFitError(message, where=where, hint=hint, failure=failure, texts=texts)
    cause = package.cause if isinstance(package, UnavailableError) else package
    where = package.where if isinstance(package, UnavailableError) else where
    name = getattr(cause, "name", None) or str(package)
    file = subject.source.file if subject.source is not None else None
    message = f"forward() needs the package {name}, which is not installed"
    return missing_module(subject.spec, file, name, where or subject.spec.spec, message)


PROVIDERS: Final[tuple[Provider, ...]] = (
    from_caller,  # of the Python function
    from_options,  # -i
    from_loader,  # train_loader, get_loader() of the file
    from_run,  # of the same program, recorded while it ran
    from_recipe,  # the configuration of a model zoo
    from_earlier_search,
    from_example,  # inputs returned with the model, example_inputs, example_input_array
    from_programs,  # the data that a training loop passes
    from_model_call,  # a call of the model in a script, a README or a docstring
    from_search,  # on meta tensors; raises an error if nothing runs
)


def find_inputs(subject: Subject) -> Evidence:
    """The evidence of the first provider, in the requested batch size. Raises TargetError or UsageError."""
    evidence = next(filter(None, (provider(subject) for provider in PROVIDERS)), None)
    assert evidence is not None  # the search raises
    size = subject.size(evidence.value)
    if size is None:
        return _in_training_batch(subject, evidence) if evidence.source == "evidence" else evidence
    notes = evidence.notes
    if evidence.loader is not None:
        replaced = f"the batch size of {evidence.loader.name}, whose other batches are not used"
        notes += (input_note(f"--batch {size} replaces {replaced}"),)
    return replace(evidence, value=resized(evidence.value, size), notes=notes, loader=None)


def _in_training_batch(subject: Subject, evidence: Evidence) -> Evidence:
    """The example of a call outside of a training program, in the batch of the training program, if forward runs with it."""
    training = training_batch(subject)
    if training is None or batch_size(evidence.value) not in (1, 2):
        return evidence
    value = resized(evidence.value, training.size)
    texts = named_texts(input_texts(value, subject.forward), subject.forward)
    has_data = all(isinstance(item, Tensor) for item in value.values())
    if not has_data or not subject.runs(texts):
        return evidence
    note = input_note(f"{' '.join(map(str, texts))} in the batch of {training.where}")
    return replace(evidence, value=value, notes=(*evidence.notes, note))
