"""Schedules of input shapes, parsed from a list, a file of recorded shapes, or generated around the current shape."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler_kit.errors import UsageError
from profiler_kit.records.target import InputInfo

AUTO: Final = "auto"
GENERATED: Final = "generated"
GIVEN: Final = "given"
# Sizes of a generated schedule: few enough to search algorithms for each of them.
GENERATED_SIZES: Final = 12
# The first cycle runs new shapes. Two more without new shapes show the steady time and its scatter.
CYCLES: Final = 3
SIZES_BELOW: Final = 5  # of the sizes generated for an image, the number below the current size
HINT: Final = "write sizes (192,224x256), whole shapes (8x3x512x512), a file with one shape per line, or auto"
_SHAPE: Final = re.compile(r"[0-9]{1,9}(?:[xX][0-9]{1,9})*\Z")
_LIST_ITEM: Final = re.compile(r".*\[[0-9]+\]\Z")  # the name of an input that is an item of a list
_LIST_CHANNELS: Final = (1, 3, 4)  # of an image in a list: gray, color, color with alpha

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Varied:
    """The input whose size changes: its name, current shape, and changing dimensions.

    `kind`: ``image`` (N, C, then spatial sizes; or an item of a list: C, H, W), ``signal`` (N, C, length), ``tokens``
    (N, length) or ``other``. `dims`: the dimensions that are sizes; empty if unknown, then only whole shapes are accepted.
    `batched`: the first dimension is the batch.
    """

    name: str
    shape: Shape
    kind: str
    dims: tuple[int, ...]
    batched: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step: its cycle (from 1), the varied input's shape, and whether it is a smaller last batch."""

    cycle: int
    shape: Shape
    last_batch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Steps of changing shapes. `source`: ``generated``, ``given`` or a file name. `notes`: how other inputs follow."""

    source: str
    varied: Varied
    steps: tuple[PlannedStep, ...]
    notes: tuple[str, ...] = ()

    def follow(self, shape: Shape, step: PlannedStep) -> Shape:
        """The shape in `step` of a tensor that has `shape` in the current batch.

        - A tensor that ends with the varied input's spatial sizes (image, mask, label map) gets the new sizes.
        - A tensor whose second dimension is the varied input's length gets the new length, and so does a mask of length by
          length.
        - A tensor with the same batch size gets the new batch size.
        - All other dimensions stay unchanged.
        """
        return _followed(self.varied, shape, step.shape)


def schedule_source(text: str) -> str:
    """The source of the shapes in `text`: ``generated``, ``given``, or a file name."""
    schedule_text = text.strip()
    if schedule_text == AUTO:
        return GENERATED
    return Path(schedule_text).name if not _is_list(schedule_text) else GIVEN


def parse_schedule(text: str, inputs: tuple[InputInfo, ...]) -> Schedule:
    """Parse the schedule `text` for a target with these `inputs`.

    `text` is a list such as ``192,224x256,8x3x512x512``, the path of a file with one shape per line, or ``auto``. An item is:

    - one number: the edge of all spatial dimensions of the first image-like input, or the length of a sequence;
    - as many numbers as spatial dimensions: their sizes;
    - as many numbers as the input has dimensions: its whole shape, batch included.

    A list runs three times. A file runs once, in its order and with its repeats. ``auto`` generates 12 sizes around the
    current one (for tokens: up to it) in a fixed mixed order; each of its three cycles ends with a smaller batch.

    Raises:
        UsageError: the text is not a schedule, or does not fit the inputs.
    """
    where = f"--shapes {text.strip()}"
    varied = _varied(inputs, where)
    schedule_text = text.strip()
    if schedule_text == AUTO:
        return _planned(GENERATED, varied, inputs, _generated(varied, where), _no_last_batch_note(varied))
    if _is_list(schedule_text):
        shapes = [_shape(item.strip(), varied, where) for item in schedule_text.split(",")]
        return _planned(GIVEN, varied, inputs, [(cycle, shape) for cycle in range(1, CYCLES + 1) for shape in shapes])
    recorded = [_shape(line, varied, location) for line, location in _lines(Path(schedule_text), where)]
    return _planned(Path(schedule_text).name, varied, inputs, [(1, shape) for shape in recorded])


def sizes_text(shape: Sequence[int]) -> str:
    """A shape as text: ``8x3x256x256``."""
    return "x".join(map(str, shape)) or "()"


def _is_list(schedule_text: str) -> bool:
    return all(_SHAPE.match(item.strip()) for item in schedule_text.split(","))


def _lines(path: Path, where: str) -> list[tuple[str, str]]:
    """The shapes in a file of recorded shapes, each with its location (file:line)."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or an invalid path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a text file"
        raise UsageError(f"neither a list of shapes nor a readable file: {reason}", where=where, hint=HINT) from error
    shapes = []
    for number, line in enumerate(text.splitlines(), start=1):
        shape = line.partition("#")[0].strip()
        if shape:
            shapes.append((shape, f"{path}:{number}"))
    if not shapes:
        raise UsageError("the file contains no shapes", where=str(path), hint="write one shape per line, as 224x256")
    return shapes


def _varied(inputs: tuple[InputInfo, ...], where: str) -> Varied:
    """The input whose sizes change: the first image-like one, else the first sequence, else the first with dimensions."""
    for tensor in inputs:
        image = _image(tensor)
        if image is not None:
            return image
    for tensor in inputs:
        if not _is_floating(tensor) and len(tensor.shape) == 2:
            return Varied(name=tensor.name, shape=tensor.shape, kind="tokens", dims=(1,))
        if _is_floating(tensor) and len(tensor.shape) == 3:
            return Varied(name=tensor.name, shape=tensor.shape, kind="signal", dims=(2,))
    other = next((tensor for tensor in inputs if tensor.shape), None)
    if other is None:
        raise UsageError("no input has dimensions, so no shape can change", where=where, hint="leave out --shapes")
    return Varied(name=other.name, shape=other.shape, kind="other", dims=())


def _image(tensor: InputInfo) -> Varied | None:
    if not _is_floating(tensor):
        return None
    rank = len(tensor.shape)
    if rank == 3 and _LIST_ITEM.match(tensor.name) and tensor.shape[0] in _LIST_CHANNELS:
        return Varied(name=tensor.name, shape=tensor.shape, kind="image", dims=(1, 2), batched=False)
    dims = tuple(range(2, rank))
    return Varied(name=tensor.name, shape=tensor.shape, kind="image", dims=dims) if rank >= 4 else None


def _is_floating(tensor: InputInfo) -> bool:
    return tensor.dtype.startswith(("float", "bfloat", "complex"))


def _shape(text: str, varied: Varied, where: str) -> Shape:
    """Parse one item of a schedule to a whole shape."""
    if not _SHAPE.match(text):
        raise UsageError(f"{text!r} is not a shape", where=where, hint=HINT)
    sizes = tuple(int(size) for size in text.lower().split("x"))
    current = f"{varied.name!r} is {sizes_text(varied.shape)}"
    if 0 in sizes:
        raise UsageError(f"{text}: a size is 0", where=where, hint="sizes must be 1 or more")
    if len(sizes) == len(varied.shape) and (len(sizes) > 1 or not varied.dims):
        for i, (size, current_size) in enumerate(zip(sizes, varied.shape, strict=True)):
            may_change = i in varied.dims or (varied.batched and i == 0) or not varied.dims
            if size != current_size and not may_change:
                raise UsageError(
                    f"{text}: dimension {i} is {size}, but {current}",
                    where=where,
                    hint=f"only its batch and sizes may change, as in {sizes_text(_resized(varied, sizes))}",
                )
        return sizes
    if not varied.dims:
        raise UsageError(
            f"{text}: {current}, and its size dimensions are unknown",
            where=where,
            hint=f"write whole shapes, such as {sizes_text(varied.shape)}",
        )
    if len(sizes) not in (1, len(varied.dims)):
        raise UsageError(
            f"{text}: {len(sizes)} sizes, but {current}, with {len(varied.dims)} dimensions that change",
            where=where,
            hint=f"write {sizes_text([varied.shape[i] for i in varied.dims])} or the whole shape, {sizes_text(varied.shape)}",
        )
    edges = sizes if len(sizes) == len(varied.dims) else sizes * len(varied.dims)
    return _with(varied.shape, varied.dims, edges)


def _resized(varied: Varied, sizes: Shape) -> Shape:
    """The current shape with the batch and sizes of `sizes`."""
    changing_dims = ((0,) if varied.batched else ()) + varied.dims
    return _with(varied.shape, changing_dims, tuple(sizes[i] for i in changing_dims))


def _with(shape: Shape, dims: Sequence[int], sizes: Sequence[int]) -> Shape:
    changed = dict(zip(dims, sizes, strict=True))
    return tuple(changed.get(i, size) for i, size in enumerate(shape))


def _generated(varied: Varied, where: str) -> list[tuple[int, Shape]]:
    if not varied.dims:
        raise UsageError(
            f"{AUTO}: {varied.name!r} is {sizes_text(varied.shape)}, and its size dimensions are unknown",
            where=where,
            hint=f"write whole shapes, such as {sizes_text(varied.shape)}",
        )
    edges = [_sizes(varied.shape[i], up_to=varied.kind == "tokens") for i in varied.dims]
    if max(varied.shape[i] for i in varied.dims) > 1:  # a single frame or row stays single
        edges = [[1] * GENERATED_SIZES if varied.shape[i] == 1 else e for i, e in zip(varied.dims, edges, strict=True)]
    shapes = [_with(varied.shape, varied.dims, sizes) for sizes in zip(*edges, strict=False)]
    # Shuffled, as real data is: with ascending sizes, every new shape would also be the largest so far.
    random.Random(0).shuffle(shapes)
    smaller = _smaller_batch(varied)
    if smaller is not None:
        shapes.append((smaller, *shapes[-1][1:]))
    return [(cycle, shape) for cycle in range(1, CYCLES + 1) for shape in shapes]


def _sizes(edge: int, *, up_to: bool) -> list[int]:
    """Up to 12 sizes around `edge`, multiples of a power of two as from resizing or padding: of 16 around 256, of 8 around 128.

    The power is at most a twelfth of the edge, so the sizes span about a third of it in both directions. With `up_to`, no
    size exceeds `edge`: position embeddings end at the longest sequence.
    """
    step = 1
    while step * 2 * GENERATED_SIZES <= edge:
        step *= 2
    nearest = edge // step * step if up_to else max(step, round(edge / step) * step)
    if up_to:
        return [size for size in range(nearest - (GENERATED_SIZES - 1) * step, nearest + 1, step) if size > 0]
    low = max(step, nearest - SIZES_BELOW * step)
    return [low + i * step for i in range(GENERATED_SIZES)]


def _smaller_batch(varied: Varied) -> int | None:
    """Half the batch, or None. At least 2 if possible: batch norm cannot train on single values."""
    batch = varied.shape[0]
    if not varied.batched or batch < 2:
        return None
    return batch // 2 if batch >= 4 else batch - 1


def _no_last_batch_note(varied: Varied) -> tuple[str, ...]:
    if _smaller_batch(varied) is not None:
        return ()
    return ("No smaller last batch was run: " + ("the batch size is 1." if varied.batched else "the batch is a list."),)


def _planned(
    source: str,
    varied: Varied,
    inputs: tuple[InputInfo, ...],
    shapes: list[tuple[int, Shape]],
    notes: tuple[str, ...] = (),
) -> Schedule:
    last = _last_batch(varied, [shape for _, shape in shapes])
    steps = tuple(PlannedStep(cycle=cycle, shape=shape, last_batch=shape[0] == last) for cycle, shape in shapes)
    return Schedule(source=source, varied=varied, steps=steps, notes=(*_followers(varied, inputs, steps), *notes))


def _last_batch(varied: Varied, shapes: list[Shape]) -> int | None:
    """The size of the smaller last batch: the smaller and rarer of two batch sizes; None for any other number of sizes."""
    if not varied.batched:
        return None
    sizes = Counter(shape[0] for shape in shapes)
    if len(sizes) != 2:
        return None
    small, large = min(sizes), max(sizes)
    return small if sizes[small] < sizes[large] else None


def _followers(varied: Varied, inputs: tuple[InputInfo, ...], steps: tuple[PlannedStep, ...]) -> tuple[str, ...]:
    """Which other inputs change with the varied one, in a sentence."""
    others = [other for other in inputs if other.name != varied.name]
    if not others:
        return ()
    follow: list[str] = []
    stay: list[str] = []
    for other in others:
        changes = any(_followed(varied, other.shape, step.shape) != other.shape for step in steps)
        (follow if changes else stay).append(other.name)
    sentence = f"{varied.name} changes"
    if follow:
        sentence += f", {', '.join(follow)} with it"
    if stay:
        sentence += f"; {', '.join(stay)} {'stays' if len(stay) == 1 else 'stay'} unchanged"
    return (f"{sentence}.",)


def _followed(varied: Varied, shape: Shape, new: Shape) -> Shape:
    current, dims = varied.shape, varied.dims
    if shape == current:
        return new
    followed = list(shape)
    if varied.kind == "tokens":
        for i in _length_dims(shape, current):
            followed[i] = new[1]
    elif dims and len(shape) >= max(2, len(dims)) and shape[-len(dims) :] == tuple(current[i] for i in dims):
        followed[-len(dims) :] = [new[i] for i in dims]
    if varied.batched and shape and followed[0] == shape[0] == current[0]:
        followed[0] = new[0]
    return tuple(followed)


def _length_dims(shape: Shape, token_shape: Shape) -> tuple[int, ...]:
    """The dimensions of `shape` that are the length of the tokens: the second one, or both dimensions of a mask."""
    batch, length = token_shape
    rank = len(shape)
    if rank == 4 and shape[-2:] == (length, length):
        return (2, 3)
    if rank == 2 and shape == (length, length) and length != batch:
        return (0, 1)
    return (1,) if rank >= 2 and shape[1] == length else ()
