"""Changes of the inputs that may repair a failed forward pass, the most certain first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isqrt, prod
from typing import Final

from torch import Tensor, nn

from profiler_kit.loading.input_search.facts import DENSE_IMAGE_SIZE, IMAGE_CHANNELS, Facts
from profiler_kit.loading.input_search.mismatches import DimensionMismatch, SizeMismatch, mismatches, named_tensors
from profiler_kit.loading.input_search.outcomes import Failure, input_name, origins
from profiler_kit.loading.input_search.proposals import (
    GENERIC_WIDTHS,
    as_list,
    data_inputs,
    layer_inputs,
    tokens,
)
from profiler_kit.loading.input_search.roles import role_of
from profiler_kit.loading.input_search.states import (
    State,
    texts_by_name,
    with_batch,
    with_dim,
    with_side,
    with_size,
    with_text,
    with_value,
)
from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.messages import item_count, numbers, reports
from profiler_kit.loading.vocabulary import Role
from profiler_kit.meta.batch import tensors_in

# Image sizes of data sets, pretrained models and papers: ImageNet, CIFAR, MNIST, GANs, AlexNet, STL-10, Inception, Atari; the
# last one is U-Net's, whose convolutions without padding need maps that stay even.
USUAL_SIZES: Final = (224, 32, 64, 28, 128, 256, 96, 227, 299, 512, 84, 112, 48, 16, 160, 384, 8, 572)


def repairs(state: State, failure: Failure, facts: Facts, *, corrects: bool = False) -> Iterator[State]:
    """States that differ from `state` in what `failure` suggests. Some of them may repeat.

    With `corrects`, the first states change only the size that is wrong.
    """
    names = frozenset(text.name for value in state for text in value if text.name is not None)
    if reports(failure.error, "single_row"):
        yield with_batch(state, 2)
        return
    yield from _dtypes(state, failure, facts)
    causes = mismatches(failure, names)
    if corrects:
        for mismatch in causes:
            if isinstance(mismatch, SizeMismatch):
                yield from _sizes(state, mismatch, facts)
            else:
                yield from _dimensions(state, mismatch, facts)
    yield from _direct(state, failure, facts)
    for mismatch in causes:
        if isinstance(mismatch, SizeMismatch):
            yield from _sizes(state, mismatch, facts)
        else:
            yield from _dimensions(state, mismatch, facts)
    yield from _larger(state, failure)
    yield from _structures(state, failure, facts)
    yield from _same_shapes(state, failure)
    yield from _stated_numbers(state, failure)


def _dtypes(state: State, failure: Failure, facts: Facts) -> Iterator[State]:
    texts = texts_by_name(state)
    tensors = [t for t in tensors_in([*failure.arguments, *failure.module_arguments]) if origins(t)]
    names = dict.fromkeys(name for tensor in tensors for name in sorted(origins(tensor)) if name in texts)
    is_table = isinstance(failure.module, (nn.Embedding, nn.EmbeddingBag))
    for name in names:
        text = texts[name]
        if (is_table or reports(failure.error, "needs_integers")) and not text.is_integer:
            rows = failure.module.num_embeddings if isinstance(failure.module, nn.Embedding) else facts.rows or 2
            ids = tokens(name, facts, rows=rows)
            if len(text.shape) in (1, 2) and text.shape[0] != ids.shape[0]:
                ids = replace(ids, shape=text.shape)
            yield with_text(state, ids)
            yield with_text(state, replace(ids, shape=text.shape[:1]))
            yield with_text(state, replace(ids, shape=text.shape))
        if reports(failure.error, "needs_bools") and text.dtype != "bool":
            yield with_text(state, replace(text, dtype="bool", low=None, high=None))
        if reports(failure.error, "needs_floats") and text.is_whole:
            yield with_text(state, replace(text, dtype=None, low=None, high=None))


def _direct(state: State, failure: Failure, facts: Facts) -> Iterator[State]:
    """For a layer that received an input unchanged: the inputs that this layer takes."""
    if failure.module is None or (
        isinstance(failure.module, (nn.Embedding, nn.EmbeddingBag)) and not failure.module_arguments
    ):
        return
    for tensor in tensors_in(list(failure.module_arguments[:1])):
        name = input_name(tensor)
        if name is None or name not in texts_by_name(state):
            continue
        batch = 2 if texts_by_name(state)[name].shape[:1] == (2,) else 1
        for text in layer_inputs(failure.module, facts, name=name, batch=batch):
            if needed_fits(text, tensor):
                yield with_text(state, text)


def needed_fits(text: InputText, tensor: Tensor) -> bool:
    """Whether `text` differs from what `tensor` already is."""
    return text.shape != tuple(tensor.shape) or text.is_integer == tensor.is_floating_point()


def _sizes(state: State, mismatch: SizeMismatch, facts: Facts) -> Iterator[State]:
    texts = texts_by_name(state)
    got, need = mismatch.got, mismatch.need
    names = sorted(mismatch.names & texts.keys())
    for name in names:
        text = texts[name]
        for dim in _dims_by_preference(text, mismatch):
            if text.shape[dim] == got:
                yield with_text(state, with_size(text, dim, need))
        for dim in range(len(text.shape) - 2, len(text.shape)) if len(text.shape) in (4, 5) else ():
            if text.shape[dim] == got:  # four dimensions are no image in graphs and time series
                yield with_text(state, with_dim(text, dim, need))
    if any(len(texts[name].shape) == 4 for name in names):
        yield from _shares(state, mismatch, facts)
    for name in names:
        text = texts[name]
        if mismatch.is_flat and text.shape[1:] != (need,) and not text.is_integer:
            yield with_text(state, replace(text, shape=(*text.shape[:1], need)))
        for dim in _dims_by_preference(text, mismatch)[:-1]:
            size = text.shape[dim]
            if size + need - got > 0:
                yield with_text(state, with_size(text, dim, size + need - got))
            if got and size * need % got == 0 and size != size * need // got:
                yield with_text(state, with_size(text, dim, size * need // got))
    yield from _shares(state, mismatch, facts)


def _shares(state: State, mismatch: SizeMismatch, facts: Facts) -> Iterator[State]:
    """For features of several inputs that are concatenated: a share of the needed size for each of them.

    First with the sizes that the constructor states for some of them by their names.
    """
    texts = texts_by_name(state)
    floats = [text for name, text in texts.items() if name in mismatch.names and not text.is_whole]
    # images have three channels, the rest is features; noise has more features than labels and codes
    floats.sort(key=lambda text: (-len(text.shape), role_of(text.name or "") is not Role.NOISE))
    if len(floats) < 2 or any(len(text.shape) < 2 for text in floats):
        return
    stated = {text: size for text in floats if (size := facts.size_of(text.name or "")) is not None}
    if stated:
        yield from _shared(state, stated, [text for text in floats if text not in stated], mismatch.need)
    first, others = floats[0], floats[1:]
    for share in (IMAGE_CHANNELS, 1) if len(first.shape) == 4 else (mismatch.need - GENERIC_WIDTHS[1] * len(others),):
        yield from _shared(state, {first: share}, others, mismatch.need)


def _shared(state: State, sizes: Mapping[InputText, int], others: list[InputText], need: int) -> Iterator[State]:
    """`state` with `sizes` for their inputs, and equal parts of what is left of `need` for the `others`."""
    remainder = (need - sum(sizes.values())) // len(others) if others else 0
    if min(sizes.values()) < 1 or (others and remainder < 1):
        return
    for text, size in (*sizes.items(), *((other, remainder) for other in others)):
        state = with_text(state, with_size(text, 1, size))
    yield state


def _dims_by_preference(text: InputText, mismatch: SizeMismatch) -> list[int]:
    """The dimensions of `text`, that of the mismatch first and the batch last; one for both sides of an image."""
    dims = list(range(1, len(text.shape) - 1 if len(text.shape) in (4, 5) else len(text.shape))) or [0]
    position = mismatch.dim + len(text.shape) if mismatch.dim < 0 else mismatch.dim
    return [*sorted(dims, key=lambda dim: dim != position), 0]


def _dimensions(state: State, mismatch: DimensionMismatch, facts: Facts) -> Iterator[State]:
    texts = texts_by_name(state)
    for name in sorted(mismatch.names & texts.keys()):
        text = texts[name]
        rank = len(text.shape) + mismatch.need - mismatch.got
        if rank < 1:
            continue
        for shape in _shapes_of_rank(text.shape, rank, facts):
            yield with_text(state, replace(text, shape=shape))
        for other in data_inputs(name, facts):
            if len(other.shape) == rank:
                yield with_text(state, other)


def _shapes_of_rank(shape: tuple[int, ...], rank: int, facts: Facts) -> Iterator[tuple[int, ...]]:
    """`shape` with dimensions removed or added: the usual shape with that number of dimensions."""
    size = len(shape)
    if rank == size - 1:
        yield (*shape[:1], *shape[2:])
        yield shape[:-1]
        yield shape[1:]
    elif rank == size - 2:
        yield (shape[0], *shape[3:])
        yield shape[:-2]
    elif rank == size + 1:
        if size == 2:
            yield (shape[0], facts.sequence_length, shape[1])
            yield (shape[0], 1, shape[1])
            yield (shape[0], shape[1], facts.sequence_length)
        elif size == 4:
            yield (shape[0], 8, *shape[1:])
        elif size == 1:
            yield (1, *shape)
            yield (*shape, 1)
        else:
            if shape[0] > 1:  # an image without a batch
                yield (1, *shape)
            yield (shape[0], 1, *shape[1:])
            yield (shape[0], 3, *shape[1:])
            yield (1, *shape)
    elif rank == size + 2 and size == 2:
        side = isqrt(shape[1])
        if side * side == shape[1]:
            yield (shape[0], 1, side, side)
        for channels in dict.fromkeys((facts.channels or 3, 3, 1)):
            yield (shape[0], channels, *facts.image_size(channels))


def _larger(state: State, failure: Failure) -> Iterator[State]:
    """For a map that became too small: larger images and longer sequences."""
    if not reports(failure.error, "too_small"):
        return
    for text in texts_by_name(state).values():
        if len(text.shape) < 3 or text.is_whole:
            continue
        spatial = len(text.shape) - 2
        side = text.shape[-1]
        sizes = sorted(size for size in USUAL_SIZES if size > side) if spatial > 1 else [side * 4, side * 64]
        for size in sizes:
            yield with_text(state, with_side(text, size))
        for size in sizes if len(text.shape) == 4 else ():  # (N, H, W, C)
            yield with_text(state, replace(text, shape=(text.shape[0], size, size, text.shape[3])))


def _structures(state: State, failure: Failure, facts: Facts) -> Iterator[State]:
    """Arrays, lists, numbers and flags instead of a tensor."""
    error = failure.error
    texts = texts_by_name(state)
    uses_arrays = reports(error, "needs_array") or reports(failure.source, "needs_array")
    if uses_arrays and not failure.needs_values:
        # what a sampler of NumPy returns; all of them, since a loop passes one kind
        yield tuple(tuple(replace(text, is_array=not text.literal) for text in value) for value in state)
    tensors = [*tensors_in(list(failure.arguments)), *named_tensors(failure)]
    names = [name for name in dict.fromkeys(map(input_name, tensors)) if name is not None and name in texts]
    for name in names:
        text = texts[name]
        if text.item is not None:
            continue
        if reports(error, "needs_list"):
            count = min(item_count(error), 8)
            for item in (text, *data_inputs(name, facts)[:3]):
                yield with_value(state, as_list(item, count))
        if reports(error, "needs_number"):
            for literal in ("1", "16", "0.5"):
                yield with_value(state, (InputText(name=name, shape=(), literal=literal),))
        reads_flag = failure.needs_values or reports(error, "needs_flag")
        if reads_flag and re.match(rf"(el)?if (not )?{re.escape(name)}\b", failure.source):
            yield with_value(state, (InputText(name=name, shape=(), literal="False"),))
        if reports(error, "needs_none"):
            yield with_value(state, (InputText(name=name, shape=(), literal="None"),))


def _same_shapes(state: State, failure: Failure) -> Iterator[State]:
    """For an operation on several inputs: the same shape for all of them."""
    texts = texts_by_name(state)
    names = [
        n
        for n in dict.fromkeys(n for t in tensors_in(list(failure.arguments)) for n in sorted(origins(t)))
        if n in texts
    ]
    if reports(failure.error, "same_sizes"):  # ids and targets, also if both are hidden in views
        names += [name for name, text in texts.items() if text.is_integer and name not in names]
    for first in names:
        for second in names:
            if texts[first].shape != texts[second].shape:
                yield with_text(state, replace(texts[second], shape=texts[first].shape))


def _stated_numbers(state: State, failure: Failure) -> Iterator[State]:
    """Sizes that a failed assertion or another message of the user's code states."""
    if (
        not isinstance(failure.error, (AssertionError, ValueError, RuntimeError))
        and "inops" not in type(failure.error).__name__
    ):
        return
    stated = [*numbers(failure.error), *_asserted_numbers(failure)]
    texts = texts_by_name(state)
    related = {name for tensor in named_tensors(failure) for name in origins(tensor)} or set(texts)
    for number in [n for n in dict.fromkeys(stated) if n > 1][:4]:
        for name in sorted(related & texts.keys()):
            text = texts[name]
            if len(text.shape) in (4, 5) and text.shape[-1] != number:
                yield with_text(state, with_side(text, number))
            for dim in range(1, len(text.shape)):
                if text.shape[dim] != number:
                    yield with_text(state, with_size(text, dim, number))


def _asserted_numbers(failure: Failure) -> Iterator[int]:
    """The integers among the attributes that a failed assertion reads: ``assert h == self.size``."""
    owner = failure.names.get("self")
    if not failure.source.startswith("assert") or owner is None:
        return
    for attribute in re.findall(r"self\.(\w+)", failure.source):
        value = getattr(owner, attribute, None)
        for size in value if isinstance(value, (tuple, list)) else (value,):
            if type(size) is int:
                yield size


def usual_sides(text: InputText, got: int, need: int) -> list[int]:
    """Sides to try for an image or a sequence: those first that are near the side for `need` instead of `got` elements."""
    side, spatial = text.shape[-1], min(len(text.shape) - 2, 2)
    ratio = need / max(got, 1)
    likely = max(1, round(side * ratio ** (1 / max(spatial, 1))))
    exact = isqrt(need)
    # networks that halve a sequence and join it with itself need powers of two
    lengths = {likely, *(likely + step for step in (-2, -1, 1, 2)), *(1 << power for power in range(5, 17))}
    sizes = {*USUAL_SIZES, DENSE_IMAGE_SIZE} if spatial > 1 else lengths
    if spatial > 1 and prod(text.shape[1:]) == got and exact * exact == need:
        sizes.add(exact)
    return sorted((size for size in sizes if size > 0), key=lambda size: abs(size - likely) / (size + likely))[:10]
