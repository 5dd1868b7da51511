"""Texts to schedules of input shapes: a list, a recorded file, or sizes made up around the present one."""

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
# Of a generated schedule: more than a network sees by chance, few enough to search algorithms for each.
SIZES: Final = 12
CYCLES: Final = 3  # the first meets new shapes; two that meet none show what is steady and how far it scatters
BELOW: Final = 5  # of the sizes made up for an image, how many lie below the present one
HINT: Final = "write sizes as 192,224x256 or whole shapes as 8x3x512x512, name a file with one a line, or take auto"
_SHAPE: Final = re.compile(r"[0-9]{1,9}(?:[xX][0-9]{1,9})*\Z")
_LISTED: Final = re.compile(r".*\[[0-9]+\]\Z")  # how an input is named that is one of a list
_CHANNELS: Final = (1, 3, 4)  # of an image that is one of a list: grey, colour, colour with alpha

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Varied:
    """The input whose size changes: its name and present shape, and which of its dimensions change.

    `dims` is empty where no dimension is a size: then whole shapes alone say what it becomes. `kind` is ``image``
    (N, C, then one size per spatial dimension; or an image of a list, C, H, W), ``signal`` (N, C, length), ``tokens``
    (N, length) or ``other``. `batched`: its first dimension is the batch.
    """

    name: str
    shape: Shape
    kind: str
    dims: tuple[int, ...]
    batched: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step to run: its cycle (the first is 1), the varied input's shape, and whether its batch is a smaller one."""

    cycle: int
    shape: Shape
    last_batch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Steps of changing shapes. `source` is ``generated``, ``given`` or a file's name; `notes` say how other inputs follow."""

    source: str
    varied: Varied
    steps: tuple[PlannedStep, ...]
    notes: tuple[str, ...] = ()

    def follow(self, shape: Shape, step: PlannedStep) -> Shape:
        """What a tensor of the present batch, of this `shape`, becomes in `step`.

        A tensor that ends in the same spatial sizes as the varied input (an image, a mask, a map of labels) gets its new
        ones. One whose second dimension is the same length gets the new length; so does a mask of length by length. One with
        the same batch size gets the new batch size. Every other dimension stays.
        """
        return _followed(self.varied, shape, step.shape)


def source_of(text: str) -> str:
    """Where the shapes of `text` come from: ``generated``, ``given``, or the name of a file."""
    written = text.strip()
    if written == AUTO:
        return GENERATED
    return Path(written).name if not _is_list(written) else GIVEN


def schedule(text: str, inputs: tuple[InputInfo, ...]) -> Schedule:
    """The steps that `text` asks for, for a target with these `inputs`.

    `text` is a list such as ``192,224x256,8x3x512x512``, the path of a file with one shape a line, or ``auto``. A number is
    the edge of all spatial dimensions of the first image-like input, or the length of a sequence; as many numbers as there
    are spatial dimensions are their sizes; as many as the input has dimensions are its whole shape, batch included. A list
    runs three times, a file once, with its order and its repeats. ``auto`` makes 12 sizes around the present one (of tokens,
    up to it), in an order that is mixed but always the same, and each of its three cycles ends with a smaller batch.

    Raises: UsageError for a text that is no schedule, or that does not fit the inputs.
    """
    where = f"--shapes {text.strip()}"
    varied = _varied(inputs, where)
    written = text.strip()
    if written == AUTO:
        return _planned(GENERATED, varied, inputs, _generated(varied, where), _too_small(varied))
    if _is_list(written):
        shapes = [_shape(item.strip(), varied, where) for item in written.split(",")]
        return _planned(GIVEN, varied, inputs, [(cycle, shape) for cycle in range(1, CYCLES + 1) for shape in shapes])
    recorded = [_shape(line, varied, place) for line, place in _lines(Path(written), where)]
    return _planned(Path(written).name, varied, inputs, [(1, shape) for shape in recorded])


def told(shape: Sequence[int]) -> str:
    """A shape as it is written: ``8x3x256x256``."""
    return "x".join(map(str, shape)) or "()"


def _is_list(written: str) -> bool:
    return all(_SHAPE.match(item.strip()) for item in written.split(","))


def _lines(path: Path, where: str) -> list[tuple[str, str]]:
    """The lines of a recorded file that hold a shape, each with its place."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # a ValueError is text that is no UTF-8, or a path that is none
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text file"
        raise UsageError(f"neither shapes nor a file that can be read: {reason}", where=where, hint=HINT) from error
    shapes = []
    for number, line in enumerate(text.splitlines(), start=1):
        shape = line.partition("#")[0].strip()
        if shape:
            shapes.append((shape, f"{path}:{number}"))
    if not shapes:
        raise UsageError("the file holds no shape", where=str(path), hint="write one a line, as 224x256")
    return shapes


def _varied(inputs: tuple[InputInfo, ...], where: str) -> Varied:
    """The input that sizes are about: the first image-like one, else the first sequence, else the first that has dimensions."""
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


def _image(given: InputInfo) -> Varied | None:
    if not _is_floating(given):
        return None
    rank = len(given.shape)
    if rank == 3 and _LISTED.match(given.name) and given.shape[0] in _CHANNELS:
        return Varied(name=given.name, shape=given.shape, kind="image", dims=(1, 2), batched=False)
    return Varied(name=given.name, shape=given.shape, kind="image", dims=tuple(range(2, rank))) if rank >= 4 else None


def _is_floating(given: InputInfo) -> bool:
    return given.dtype.startswith(("float", "bfloat", "complex"))


def _shape(text: str, varied: Varied, where: str) -> Shape:
    """The whole shape that one item of a text stands for."""
    if not _SHAPE.match(text):
        raise UsageError(f"{text!r} is no shape", where=where, hint=HINT)
    sizes = tuple(int(size) for size in text.lower().split("x"))
    now = f"{varied.name!r} is {told(varied.shape)}"
    if 0 in sizes:
        raise UsageError(f"{text}: a size is 0", where=where, hint="sizes are 1 or more")
    if len(sizes) == len(varied.shape) and (len(sizes) > 1 or not varied.dims):
        for i, (size, present) in enumerate(zip(sizes, varied.shape, strict=True)):
            changes = i in varied.dims or (varied.batched and i == 0) or not varied.dims
            if size != present and not changes:
                raise UsageError(
                    f"{text}: dimension {i} is {size}, but {now}",
                    where=where,
                    hint=f"its batch and sizes may change, the rest may not: {told(_resized(varied, sizes))}",
                )
        return sizes
    if not varied.dims:
        raise UsageError(
            f"{text}: {now}, in which no dimension is known to be a size",
            where=where,
            hint=f"write whole shapes, as {told(varied.shape)}",
        )
    if len(sizes) not in (1, len(varied.dims)):
        raise UsageError(
            f"{text}: {len(sizes)} sizes, but {now}, with {len(varied.dims)} of them to change",
            where=where,
            hint=f"write {told([varied.shape[i] for i in varied.dims])} or the whole shape, {told(varied.shape)}",
        )
    edges = sizes if len(sizes) == len(varied.dims) else sizes * len(varied.dims)
    return _with(varied.shape, varied.dims, edges)


def _resized(varied: Varied, sizes: Shape) -> Shape:
    """The present shape with batch and sizes of `sizes`."""
    kept = ((0,) if varied.batched else ()) + varied.dims
    return _with(varied.shape, kept, tuple(sizes[i] for i in kept))


def _with(shape: Shape, dims: Sequence[int], sizes: Sequence[int]) -> Shape:
    changed = dict(zip(dims, sizes, strict=True))
    return tuple(changed.get(i, size) for i, size in enumerate(shape))


def _generated(varied: Varied, where: str) -> list[tuple[int, Shape]]:
    if not varied.dims:
        raise UsageError(
            f"{AUTO} knows no size to change: {varied.name!r} is {told(varied.shape)}",
            where=where,
            hint=f"write whole shapes, as {told(varied.shape)}",
        )
    edges = [_sizes(varied.shape[i], up_to=varied.kind == "tokens") for i in varied.dims]
    if max(varied.shape[i] for i in varied.dims) > 1:  # one frame, or one row, stays one
        edges = [[1] * SIZES if varied.shape[i] == 1 else e for i, e in zip(varied.dims, edges, strict=True)]
    shapes = [_with(varied.shape, varied.dims, sizes) for sizes in zip(*edges, strict=False)]
    # Mixed, as data comes: sizes that grow step by step would make every new shape also the largest so far.
    random.Random(0).shuffle(shapes)
    smaller = _smaller_batch(varied)
    if smaller is not None:
        shapes.append((smaller, *shapes[-1][1:]))
    return [(cycle, shape) for cycle in range(1, CYCLES + 1) for shape in shapes]


def _sizes(edge: int, *, up_to: bool) -> list[int]:
    """Up to 12 sizes around `edge`, multiples of a power of two: 16 around 256, 8 around 128, as resizing and padding give.

    The power is at most a twelfth of the edge, so that the sizes span about a third of it to either side. With `up_to` none
    is larger: a table of positions ends where the longest sequence does.
    """
    step = 1
    while step * 2 * SIZES <= edge:
        step *= 2
    nearest = edge // step * step if up_to else max(step, round(edge / step) * step)
    if up_to:
        return [size for size in range(nearest - (SIZES - 1) * step, nearest + 1, step) if size > 0]
    low = max(step, nearest - BELOW * step)
    return [low + i * step for i in range(SIZES)]


def _smaller_batch(varied: Varied) -> int | None:
    """Half the batch; not 1 where it can be helped, because batch norm over single values cannot train."""
    batch = varied.shape[0]
    if not varied.batched or batch < 2:
        return None
    return batch // 2 if batch >= 4 else batch - 1


def _too_small(varied: Varied) -> tuple[str, ...]:
    if _smaller_batch(varied) is not None:
        return ()
    return ("No smaller last batch was run: " + ("the batch is 1." if varied.batched else "the batch is a list."),)


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
    """The size of the smaller batch: the smaller and rarer one, where there are two sizes; None where there is no such thing."""
    if not varied.batched:
        return None
    sizes = Counter(shape[0] for shape in shapes)
    if len(sizes) != 2:
        return None
    small, large = min(sizes), max(sizes)
    return small if sizes[small] < sizes[large] else None


def _followers(varied: Varied, inputs: tuple[InputInfo, ...], steps: tuple[PlannedStep, ...]) -> tuple[str, ...]:
    """How the inputs beside the varied one follow it, in a sentence."""
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
        sentence += f"; {', '.join(stay)} stays as it is" if len(stay) == 1 else f"; {', '.join(stay)} stay as they are"
    return (f"{sentence}.",)


def _followed(varied: Varied, shape: Shape, new: Shape) -> Shape:
    now, dims = varied.shape, varied.dims
    if shape == now:
        return new
    followed = list(shape)
    if varied.kind == "tokens":
        for i in _lengths(shape, now):
            followed[i] = new[1]
    elif dims and len(shape) >= max(2, len(dims)) and shape[-len(dims) :] == tuple(now[i] for i in dims):
        followed[-len(dims) :] = [new[i] for i in dims]
    if varied.batched and shape and followed[0] == shape[0] == now[0]:
        followed[0] = new[0]
    return tuple(followed)


def _lengths(shape: Shape, now: Shape) -> tuple[int, ...]:
    """The dimensions of `shape` that are the length of the tokens: the second one, or both of a mask's last two."""
    batch, length = now
    rank = len(shape)
    if rank == 4 and shape[-2:] == (length, length):
        return (2, 3)
    if rank == 2 and shape == (length, length) and length != batch:
        return (0, 1)
    return (1,) if rank >= 2 and shape[1] == length else ()
