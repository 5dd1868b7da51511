"""Notes about inputs: those of a choice state which inputs were guessed, and why."""

from __future__ import annotations

from typing import Final

from profiler_kit.loading.input_search.outcomes import InputGuess
from profiler_kit.loading.inputs import InputText
from profiler_kit.meta.batch import Forward
from profiler_kit.records.notes import Choice, Note

NO_GUESS_HINT: Final = "pass the inputs with -i, once for each, or define example_inputs in the file"


def input_note(text: str) -> Note:
    """A note about the inputs."""
    return Note(subject="inputs", text=text)


def announcement(choice: Choice, command: str = "") -> Note:
    """``inputs: guessed x=1,3,32,32. To set them, run ...``; `command` sets the same inputs with ``-i``."""
    reason = f" ({choice.why})" if choice.why else ""
    how = f". To set them, run {command}" if command else ""
    return Note(subject=choice.subject, code="guessed", text=f"guessed {choice.value}{reason}{how}")


def choice_of(guess: InputGuess, forward: Forward, batch_at: str = "") -> Choice:
    """The inputs of `guess` with the names of `forward`, and the sizes that the model states.

    `batch_at`: the line of a training program that states their batch size.
    """
    names = list(forward.positional)
    listed = ", ".join(
        _named(text, names[index] if index < len(names) else None) for index, text in enumerate(guess.texts)
    )
    stated = [f"in the batch of {batch_at}"] if batch_at else []
    reasons = [*_reasons(guess), *stated, *([guess.doubt] if guess.doubt else [])]
    return Choice(subject="inputs", value=listed or "none", why="; ".join(reasons))


def _named(text: InputText, name: str | None) -> str:
    return f"{name}={text}" if text.name is None and name is not None else str(text)


def _reasons(guess: InputGuess) -> list[str]:
    """Which names of the model or its programs state sizes."""
    facts = guess.facts
    shapes = [text.shape for text in guess.texts]
    reasons = []
    if facts.image_name is not None and any(shape[-2:] == facts.image for shape in shapes if len(shape) > 2):
        reasons.append(f"as {facts.image_name} says")
    if facts.length_name is not None and any(facts.sequence_length in shape for shape in shapes):
        limit = "" if facts.length == facts.sequence_length else f", limited to {facts.sequence_length:,}"
        reasons.append(f"as {facts.length_name} says{limit}")
    return reasons
