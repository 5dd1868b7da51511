"""The form in which an author writes inputs that run in several forms: images rather than flat rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from torch import Tensor

from profiler_kit.loading.input_search.facts import CLIP_FRAMES, Facts
from profiler_kit.loading.input_search.outcomes import Outcome
from profiler_kit.loading.input_search.states import State, texts_by_name, with_dim, with_size, with_text
from profiler_kit.loading.inputs import InputText

_FLATTENING: Final = frozenset({"view", "reshape", "flatten"})
_SPLITTING: Final = frozenset({"split", "chunk", "unbind", "tensor_split"})
_TINY: Final = 3
_FLAT_IMAGES: Final = tuple((channels, side) for channels in (1, 3) for side in (28, 32, 64, 96, 128))


def _as_sequences(state: State, outcome: Outcome, facts: Facts) -> Iterator[State]:
    """A sequence instead of one value per example, if forward splits its input into steps for a recurrent cell."""
    for name, text in texts_by_name(state).items():
        if text.shape[1:] == (1,) and outcome.consumers.get(name) in _SPLITTING and not text.is_whole:
            yield with_text(state, replace(text, shape=(text.shape[0], facts.sequence_length)))


def _as_images(state: State, outcome: Outcome, facts: Facts) -> Iterator[State]:
    """Images instead of flat rows, if forward flattens its input."""
    for name, text in texts_by_name(state).items():
        if text.is_whole or outcome.consumers.get(name) not in _FLATTENING:
            continue
        if len(text.shape) == 3 and text.shape[1] == text.shape[2]:
            yield with_text(state, replace(text, shape=(text.shape[0], 1, *text.shape[1:])))
        if len(text.shape) != 2:
            continue
        for channels, side in _FLAT_IMAGES:
            if channels * side * side == text.shape[1]:
                yield with_text(state, replace(text, shape=(text.shape[0], channels, side, side)))


def _named_sizes(state: State, outcome: Outcome, facts: Facts) -> Iterator[State]:
    """Each input with the size that an argument of its name gives; the only other one gets the rest of the sum.

    Several inputs that are concatenated only have to add up: ``Critic(state_dim, action_dim)`` runs with both exchanged.
    """
    texts = {name: text for name, text in texts_by_name(state).items() if len(text.shape) > 1 and not text.is_whole}
    dims = {name: 1 if len(text.shape) in (4, 5) else len(text.shape) - 1 for name, text in texts.items()}
    sizes = {name: size for name in texts if (size := facts.size_of(name)) is not None}
    others = [name for name in texts if name not in sizes]
    if len(texts) > 1 and len(others) == 1:
        sizes[others[0]] = sum(text.shape[dims[name]] for name, text in texts.items()) - sum(sizes.values())
    if len(texts) < 2 or any(size < 1 for size in sizes.values()):
        return
    changed = state
    for name, size in sizes.items():
        changed = with_text(changed, with_size(texts[name], dims[name], size))
    if changed != state:
        yield changed


def _without_ones(state: State, outcome: Outcome, facts: Facts) -> Iterator[State]:
    """One vector per example instead of a 1x1 map, if forward makes the map itself: ``c.view(c.size(0), c.size(1), 1, 1)``."""
    for name, text in texts_by_name(state).items():
        is_vector = len(text.shape) > 2 and set(text.shape[2:]) == {1} and not text.is_whole
        if is_vector and outcome.consumers.get(name) in _FLATTENING:
            yield with_text(state, replace(text, shape=text.shape[:2]))


def _with_usual_sizes(state: State, outcome: Outcome, facts: Facts) -> Iterator[State]:
    """Usual sizes instead of tiny ones that no layer fixes: no program has clouds of three points, or clips of one frame."""
    for text in texts_by_name(state).values():
        first = 1 if len(text.shape) == 3 else 2  # dimension that is not the channels
        sizes = text.shape[first:]
        if len(text.shape) < 3 or text.is_whole or max(sizes) == 1 or (first == 2 and max(sizes) <= _TINY):
            continue  # a generator begins with maps of one pixel
        usual = facts.sequence_length if first == 1 else facts.frames or CLIP_FRAMES
        for dim, size in enumerate(sizes, first):
            if size <= _TINY and (first == 2 or size > 1):
                yield with_text(state, with_dim(text, dim, usual))


def is_tiny(text: InputText) -> bool:
    """Whether `text` is an image or a volume of a few pixels."""
    return len(text.shape) > 3 and not text.is_whole and all(size <= _TINY for size in text.shape[2:])


def as_containers(output: Any) -> Any:
    """`output` as nested tuples and dicts: the fields of a dataclass or another object with tensors in its attributes."""
    if isinstance(output, (Tensor, tuple, list, dict)) or output is None:
        return output
    return dict(vars(output)) if hasattr(output, "__dict__") else output


# Each yields states to run instead of the state that ran.
PREFERRED_FORMS: Final = (_as_images, _as_sequences, _named_sizes, _without_ones, _with_usual_sizes)
