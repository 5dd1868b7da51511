"""What functions of torch, NumPy, PIL, OpenCV, torchvision and albumentations make of arrays whose sizes are partly known.

Each row of the tables has the names of functions or methods with the same effect. Others give an unknown value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final

from profiler_kit.loading.data_path.values import (
    UNKNOWN,
    Array,
    Listing,
    Size,
    Transform,
    as_array,
    items_in,
    known,
    sizes_of,
    whole,
)

# (channels, height, width) of the images of torchvision.datasets, from https://pytorch.org/vision/stable/datasets.html and
# the papers that it names. Other data sets have images of any size.
IMAGES: Final[dict[str, tuple[int, int, int]]] = {
    "MNIST": (1, 28, 28), "FashionMNIST": (1, 28, 28), "KMNIST": (1, 28, 28), "EMNIST": (1, 28, 28), "QMNIST": (1, 28, 28),
    "USPS": (1, 16, 16), "CIFAR10": (3, 32, 32), "CIFAR100": (3, 32, 32), "SVHN": (3, 32, 32), "STL10": (3, 96, 96),
    "Omniglot": (1, 105, 105), "PCAM": (3, 96, 96), "EuroSAT": (3, 64, 64), "GTSRB": (3, 32, 32), "CelebA": (3, 218, 178),
    "ImageNet": (3, 224, 224), "ImageFolder": (3, 224, 224), "Places365": (3, 256, 256), "Food101": (3, 224, 224),
    "Flowers102": (3, 224, 224), "OxfordIIITPet": (3, 224, 224), "LSUN": (3, 256, 256), "Caltech101": (3, 224, 224),
    "StanfordCars": (3, 224, 224), "FGVCAircraft": (3, 224, 224), "FakeData": (3, 224, 224),
}  # fmt: skip
_CHANNELS: Final = (1, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The values that a call passes. `owner` is the object of a method; UNKNOWN for a function.

    `is_method`: it is the method of an object, which may be unknown.
    """

    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    owner: Any = UNKNOWN
    is_method: bool = False

    def get(self, position: int | None, *names: str, default: Any = UNKNOWN) -> Any:
        """The argument with one of `names`, or at `position`."""
        for name in names:
            if name in self.named:
                return self.named[name]
        if position is not None and position < len(self.positional):
            return self.positional[position]
        return default

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The arguments as sizes: ``f(2, 3)`` and ``f((2, 3))``."""
        first = self.get(0, "size", "shape")
        if isinstance(first, tuple):
            return tuple(map(whole, first))
        return tuple(map(whole, self.positional or (first,)))


Operation = Callable[[Arguments], Any]


def _dtype(arguments: Arguments, position: int | None = None) -> str | None:
    value = arguments.get(position, "dtype")
    return DTYPES.get(value) if isinstance(value, str) else None


# The names of types in torch and NumPy, and of methods that convert to them
DTYPES: Final[dict[str, str | None]] = {
    "float32": None, "float": None, "FloatTensor": None, "float64": "float64", "double": "float64", "half": "float16",
    "long": "int64", "int64": "int64", "LongTensor": "int64", "int": "int32", "int32": "int32", "IntTensor": "int32",
    "uint8": "uint8", "ByteTensor": "uint8", "bool": "bool", "BoolTensor": "bool",
}  # fmt: skip


def _created(arguments: Arguments) -> Array:
    return Array(sizes=arguments.sizes, dtype=_dtype(arguments))


def _random_integers(arguments: Arguments) -> Any:
    sizes = arguments.get(None, "size")
    last = next((value for value in arguments.positional[::-1] if isinstance(value, tuple)), UNKNOWN)
    sizes = sizes_of(sizes if sizes is not UNKNOWN else last)
    return Array(sizes=sizes, dtype="int64") if sizes is not None else UNKNOWN


def _like(arguments: Arguments) -> Any:
    array = as_array(arguments.get(0))
    dtype = _dtype(arguments, 1)
    has_dtype = "dtype" in arguments.named
    return replace(array, dtype=dtype) if isinstance(array, Array) and has_dtype else array


def _converted(dtype: str | None) -> Operation:
    def convert(arguments: Arguments) -> Any:
        array = as_array(arguments.owner if isinstance(arguments.owner, Array) else arguments.get(0))
        if not isinstance(array, Array) and arguments.positional and dtype is not None:
            return UNKNOWN
        if not isinstance(array, Array) and all(whole(value) is not None for value in arguments.positional):
            return Array(sizes=arguments.sizes, dtype=dtype) if arguments.positional else UNKNOWN
        return replace(array, dtype=dtype) if isinstance(array, Array) else UNKNOWN

    return convert


def _typed(arguments: Arguments) -> Any:
    """``array.astype(np.int64)``, ``tensor.to(device)``, ``tensor.to(torch.long)``."""
    array, rest = _array(arguments)
    names = [*(rest[:1]), arguments.get(None, "dtype")]
    name = next((name for name in names if isinstance(name, str) and name in DTYPES), None)
    return array if array is None or name is None else replace(array, dtype=DTYPES[name])


def _tensor_class(dtype: str | None) -> Operation:
    """``FloatTensor``: of sizes, or of the values of an array or a list."""

    def make(arguments: Arguments) -> Any:
        values = arguments.positional
        if values and all(type(value) is int for value in values):
            return Array(sizes=tuple(values), dtype=dtype)
        array = as_array(arguments.get(0))
        return replace(array, dtype=dtype) if isinstance(array, Array) else UNKNOWN

    return make


def _array(arguments: Arguments) -> tuple[Array | None, tuple[Any, ...]]:
    """(the array, the other arguments) of ``array.f(...)`` and of ``torch.f(array, ...)``."""
    if isinstance(arguments.owner, Array) or arguments.is_method:
        return (arguments.owner if isinstance(arguments.owner, Array) else None), arguments.positional
    first = arguments.get(0, "input", "a", "x", "arr", "src", "image", "img")
    array = first if isinstance(first, Array) else as_array(first)
    return (array if isinstance(array, Array) else None), arguments.positional[1:]


def _on_array(change: Callable[[Array, tuple[Any, ...], Arguments], Any]) -> Operation:
    def apply(arguments: Arguments) -> Any:
        array, rest = _array(arguments)
        if array is None:
            return UNKNOWN
        if array.is_picture and change not in _OF_PICTURES:
            return array  # PIL's methods of the same name: transpose(FLIP_LEFT_RIGHT), expand(border)
        return change(array, rest, arguments) if array.sizes is not None else array

    return apply


def _position(value: Any, rank: int) -> int | None:
    return value % rank if type(value) is int and rank and -rank <= value < rank else None


def _sizes(array: Array) -> list[Size]:
    return list(array.sizes or ())


def _view(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    first = arguments.get(None, "shape", "newshape", default=rest[0] if rest else UNKNOWN)
    wanted: tuple[Any, ...] = first if isinstance(first, tuple) else rest or (first,)
    if any(isinstance(value, (Array, str)) for value in wanted):
        return array.of(None)
    sizes = [whole(value) for value in wanted]
    open_ones = [index for index, value in enumerate(wanted) if value == -1]
    total = math.prod(array.sizes) if None not in (array.sizes or (None,)) else None  # type: ignore[arg-type]
    rest_total = math.prod(size for size in sizes if size is not None)
    if total is not None and len(open_ones) == 1 and sizes.count(None) == 1 and rest_total and total % rest_total == 0:
        sizes[open_ones[0]] = total // rest_total
    return array.of(tuple(sizes))


def _view_of_any(arguments: Arguments) -> Any:
    """``array.view(2, 3)``, also of an array about which nothing is known."""
    array, rest = _array(arguments)
    if array is None and not arguments.is_method:
        return UNKNOWN
    if any(size is not None for size in arguments.sizes) or (array is not None and array.sizes is not None):
        return _view(array or Array(sizes=None), rest, arguments)
    return array or UNKNOWN


def _permute(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    order = rest[0] if rest and isinstance(rest[0], tuple) else rest
    sizes = _sizes(array)
    if not order:
        return array.of(tuple(sizes[::-1]))
    positions = [_position(value, len(sizes)) for value in order]
    if len(order) == 2 and len(sizes) != 2:
        return _swap(array, tuple(order), arguments)
    if None in positions or len(positions) != len(sizes):
        return array.of(None)
    return array.of(tuple(sizes[p] for p in positions if p is not None))


def _swap(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    sizes = _sizes(array)
    a, b = (_position(value, len(sizes)) for value in (*rest, UNKNOWN, UNKNOWN)[:2])
    if a is None or b is None:
        return array.of(tuple(sizes[::-1])) if not rest and len(sizes) == 2 else array.of(None)
    sizes[a], sizes[b] = sizes[b], sizes[a]
    return array.of(tuple(sizes))


def _move(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    sizes = _sizes(array)
    source, goal = (_position(value, len(sizes)) for value in (*rest, UNKNOWN, UNKNOWN)[:2])
    if source is None or goal is None:
        return array.of(None)
    sizes.insert(goal, sizes.pop(source))
    return array.of(tuple(sizes))


def _unsqueeze(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    sizes = _sizes(array)
    position = _position(arguments.get(None, "dim", "axis", default=rest[0] if rest else UNKNOWN), len(sizes) + 1)
    if position is None:
        return array.of(None)
    return array.of((*sizes[:position], 1, *sizes[position:]))


def _squeeze(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    sizes = _sizes(array)
    dim = arguments.get(None, "dim", "axis", default=rest[0] if rest else None)
    position = _position(dim, len(sizes))
    if dim is None:
        return array.of(tuple(size for size in sizes if size != 1)) if None not in sizes else array.of(None)
    if position is None or sizes[position] not in (1, None):
        return array
    return array.of((*sizes[:position], *sizes[position + 1 :]))


def _flatten(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    sizes = _sizes(array)
    start = _position(arguments.get(None, "start_dim", default=rest[0] if rest else 0), len(sizes)) or 0
    flat = sizes[start:]
    total = math.prod(s for s in flat if s is not None) if None not in flat else None
    return array.of((*sizes[:start], total))


def _reduced(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Any:
    dim = arguments.get(None, "dim", "axis", default=rest[0] if rest else None)
    sizes = _sizes(array)
    if dim is None:
        return array.of(())
    position = _position(dim, len(sizes))
    if position is None:
        return array.of(None)
    kept = [1] if arguments.get(None, "keepdim", "keepdims") is True else []
    return array.of((*sizes[:position], *kept, *sizes[position + 1 :]))


def _extreme(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Any:
    reduced = _reduced(array, rest, arguments)
    is_pair = bool(rest or arguments.named) and isinstance(reduced, Array)
    return (reduced, replace(reduced, dtype="int64")) if is_pair else reduced


def _arg_extreme(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Any:
    return replace(_reduced(array, rest, arguments), dtype="int64")


def _repeat(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    counts = rest[0] if rest and isinstance(rest[0], tuple) else rest
    sizes = _sizes(array)
    if len(counts) < len(sizes):
        return array.of(None)
    padded = [1] * (len(counts) - len(sizes)) + sizes
    pairs = zip(padded, map(whole, counts), strict=True)
    return array.of(tuple(size * count if size is not None and count is not None else None for size, count in pairs))


def _expand(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    wanted = rest[0] if rest and isinstance(rest[0], tuple) else rest
    sizes = _sizes(array)
    padded = [None] * (len(wanted) - len(sizes)) + sizes
    return array.of(tuple(old if new == -1 else whole(new) for old, new in zip(padded, wanted, strict=False)))


def _size(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Any:
    sizes = tuple(UNKNOWN if size is None else size for size in _sizes(array))
    position = _position(arguments.get(None, "dim", default=rest[0] if rest else UNKNOWN), len(sizes))
    return sizes if not rest else sizes[position] if position is not None else UNKNOWN


def _one_hot(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    return Array(sizes=(*_sizes(array), whole(arguments.get(None, "num_classes", default=rest[0] if rest else None))),
                 dtype="int64")  # fmt: skip


def _resized_to(array: Array, height: Size, width: Size) -> Array:
    """`array` with other sides: the first two dimensions of a picture, else the last two, or those before the channels."""
    if array.sizes is None or len(array.sizes) < 2:
        return array
    sizes = _sizes(array)
    is_last = array.is_picture or (len(sizes) == 3 and sizes[-1] in _CHANNELS and sizes[0] not in _CHANNELS)
    first = len(sizes) - 3 if is_last and len(sizes) > 2 else len(sizes) - 2
    sizes[first : first + 2] = [height, width]
    return replace(array, sizes=tuple(sizes))


def _side_pair(value: Any) -> tuple[Size, Size] | None:
    sizes = sizes_of(value)
    if sizes is None or len(sizes) not in (1, 2):
        return None
    return (sizes[0] or None, sizes[-1] or None)  # OpenCV's (0, 0) is for factors


def _resize_picture(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    """``cv2.resize(image, (width, height))``, ``picture.resize((width, height))``; ``torch.resize_`` gets sizes."""
    pair = _side_pair(arguments.get(None, "dsize", "size", "output_shape", default=rest[0] if rest else UNKNOWN))
    return _resized_to(array, pair[1], pair[0]) if pair is not None else _resized_to(array, None, None)


def _resize_image(arguments: Arguments) -> Any:
    """As `_resize_picture`; what OpenCV resizes is a picture, also where nothing else is known about it."""
    array, rest = _array(arguments)
    if array is None and not arguments.is_method and arguments.get(1, "dsize", "output_shape") is not UNKNOWN:
        array, rest = Array(sizes=(None, None, 3), dtype="uint8"), arguments.positional[1:]
    return _resize_picture(array, rest, arguments) if array is not None else UNKNOWN


def _interpolate(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    pair = _side_pair(arguments.get(None, "size", "output_shape", "img_size", default=rest[0] if rest else UNKNOWN))
    return _resized_to(array, *pair) if pair is not None else _resized_to(array, None, None)


def _resize_shorter(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    """torchvision's Resize: one number is the shorter side, whose ratio to the other is usually near one."""
    value = arguments.get(None, "size", default=rest[0] if rest else UNKNOWN)
    if type(value) is int and array.sizes is not None and len(array.sizes) > 1:
        first = 0 if array.is_picture else len(array.sizes) - 2
        height, width = array.sizes[first : first + 2]
        if height and width:
            return _resized_to(array, height * value // min(height, width), width * value // min(height, width))
    return _interpolate(array, rest, arguments)


def _to_tensor(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    sizes = _sizes(array)
    if len(sizes) == 2:
        return Array(sizes=(1, *sizes))
    return Array(sizes=(sizes[-1], *sizes[:-1]) if len(sizes) == 3 else tuple(sizes))


def _to_picture(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    sizes = _sizes(array)
    if array.is_picture or len(sizes) not in (2, 3):
        return array
    is_tensor = len(sizes) == 3 and sizes[0] in _CHANNELS
    sizes = [*sizes[1:], sizes[0]] if is_tensor else sizes if len(sizes) == 3 else [*sizes, 1]
    return Array(sizes=tuple(sizes), is_picture=True)


def _gray(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    channels = whole(arguments.get(None, "num_output_channels", default=rest[0] if rest else 1)) or 1
    sizes = _sizes(array)
    if array.is_picture or (len(sizes) == 3 and sizes[-1] in _CHANNELS and sizes[0] not in _CHANNELS):
        return replace(array, sizes=(*sizes[:2], channels))
    return replace(array, sizes=(*sizes[:-3], channels, *sizes[-2:]))


def _color(array: Array, rest: tuple[Any, ...], arguments: Arguments) -> Array:
    """``picture.convert("L")``, ``cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)``."""
    kind = rest[0] if rest and isinstance(rest[0], str) else ""
    sizes = _sizes(array)
    if array.is_picture and kind in ("L", "1", "P", "RGB", "RGBA") and len(sizes) == 3:
        return replace(array, sizes=(*sizes[:2], {"RGB": 3, "RGBA": 4}.get(kind, 1)))
    return array.of(tuple(sizes[:2])) if kind.endswith("GRAY") else array


def _picture(arguments: Arguments) -> Array:
    return Array(sizes=(None, None, 3), dtype="uint8", is_picture=True)


def _read_image(arguments: Arguments) -> Array:
    flag = arguments.get(1, "flags")
    is_gray = flag == 0 or (isinstance(flag, str) and flag.endswith("GRAYSCALE"))
    return Array(sizes=(None, None) if is_gray else (None, None, 3), dtype="uint8")


def _numbers(picture: Any) -> Any:
    """The array of a picture: without a dimension for a single channel."""
    if isinstance(picture, Array) and picture.is_picture and picture.sizes is not None and len(picture.sizes) == 3:
        sizes = picture.sizes[:2] if picture.sizes[2] == 1 else picture.sizes
        return Array(sizes=sizes, dtype=picture.dtype)
    return picture


def _like_numbers(arguments: Arguments) -> Any:
    changed = (_numbers(arguments.get(0, "object", "a")), *arguments.positional[1:])
    return _like(replace(arguments, positional=changed))


def _stack(arguments: Arguments) -> Any:
    value = arguments.get(0, "tensors", "arrays")
    array = as_array(value)
    dim = arguments.get(1, "dim", "axis", default=0)
    if not isinstance(array, Array) or array.sizes is None or not array.sizes:
        return array
    return _move(array, (0, dim), arguments)


def _concatenate(arguments: Arguments) -> Any:
    value = arguments.get(0, "tensors", "arrays")
    dim = arguments.get(1, "dim", "axis", default=0)
    parts = [as_array(part) for part in value] if isinstance(value, tuple) else []
    if isinstance(value, Listing):
        array = as_array(value.item)
        if not isinstance(array, Array) or array.sizes is None:
            return UNKNOWN
        position = _position(dim, len(array.sizes))
        if position is None:
            return array.of(None)
        one = array.sizes[position]
        total = one * value.length if one is not None and value.length is not None else None
        return array.of((*array.sizes[:position], total, *array.sizes[position + 1 :]))
    arrays = [part for part in parts if isinstance(part, Array) and part.sizes is not None]
    if not arrays or len({len(part.sizes or ()) for part in arrays}) != 1:
        return UNKNOWN
    rank = len(arrays[0].sizes or ())
    position = _position(dim, rank)
    if position is None:
        return arrays[0].of(None)
    columns = list(zip(*(part.sizes or () for part in arrays), strict=True))
    sizes = [next((size for size in column if size is not None), None) for column in columns]
    is_whole = len(arrays) == len(parts) and None not in columns[position]
    sizes[position] = sum(size or 0 for size in columns[position]) if is_whole else None
    return arrays[0].of(tuple(sizes))


def _padded(arguments: Arguments) -> Any:
    array = as_array(arguments.get(0, "sequences"))
    if not isinstance(array, Array) or array.sizes is None:
        return array
    sizes = list(array.sizes)
    if len(sizes) > 1:
        sizes[1] = None
    is_first = arguments.get(1, "batch_first", default=False) is True
    return array.of(tuple(sizes) if is_first else (*sizes[1::-1], *sizes[2:]))


def _splits(arguments: Arguments) -> Any:
    """Two parts of each array, which differ in the number of rows."""
    parts = [as_array(value) for value in arguments.positional]
    cut = [part.of((None, *part.sizes[1:])) if isinstance(part, Array) and part.sizes else part for part in parts]
    return tuple(part for part in cut for _ in range(2))


def _sampled(arguments: Arguments) -> Any:
    """``random.sample(memory, 32)``: so many of the items."""
    if arguments.is_method and not isinstance(arguments.owner, Listing):
        return UNKNOWN
    return Listing(item=items_in(arguments.get(0, "population")), length=whole(arguments.get(1, "k")))


def _first(arguments: Arguments) -> Any:
    return arguments.get(0)


def _range(arguments: Arguments) -> Any:
    values = arguments.positional
    if len(values) == 1:
        return Array(sizes=(whole(values[0]),), dtype="int64")
    return Array(sizes=(None,), dtype="int64")


def broadcast(a: Any, b: Any) -> Any:
    """What an elementwise operation of `a` and `b` gives; the numbers of lists and unknown values do not matter."""
    arrays = [value for value in (a, b) if isinstance(value, Array)]
    if len(arrays) < 2:
        return arrays[0].of(arrays[0].sizes) if arrays else UNKNOWN
    left, right = arrays
    if left.sizes is None or right.sizes is None:
        return left.of(None)
    pairs = list(zip_longest(left.sizes[::-1], right.sizes[::-1], fillvalue=1))[::-1]
    sizes = tuple(y if x == 1 else x if x is not None or y == 1 else y for x, y in pairs)
    return replace(left.of(sizes), dtype=left.dtype if left.dtype == right.dtype else None)


_OF_PICTURES: Final = (_resize_picture, _interpolate, _to_tensor, _color, _to_picture)
_ROWS: Final[tuple[tuple[str, Operation], ...]] = (
    ("randn rand zeros ones empty full normal random standard_normal uniform", _created),
    ("randint", _random_integers),
    ("arange", _range),
    ("from_numpy as_tensor tensor Variable Parameter asarray ascontiguousarray copy deepcopy array asfarray", _like_numbers),
    ("zeros_like ones_like randn_like rand_like empty_like full_like abs exp log log10 log1p sqrt clip clamp normalize relu "
     "sigmoid tanh softmax flip fliplr flipud roll sort nan_to_num power where rot90 standardize GaussianBlur medianBlur "
     "autocast pad_if_needed vflip hflip rotate adjust_brightness adjust_contrast", _on_array(lambda a, r, g: a.of(a.sizes))),
    ("to astype type", lambda arguments: value if (value := _typed(arguments)) is not None else UNKNOWN),
    ("cuda cpu contiguous clone detach requires_grad_ type_as pin_memory share_memory_ numpy data squeeze_ sub_ div_ mul_ add_ "
     "sub div mul add clamp_ tolist next_to fillna masked_fill copy_ numpy_ cuda_ half_ to_numpy transform fit_transform",
     _on_array(lambda a, r, g: a.of(a.sizes))),
    ("view reshape", _view_of_any),
    ("permute transpose", _on_array(_permute)),
    ("swapaxes swapdims", _on_array(_swap)),
    ("moveaxis movedim rollaxis", _on_array(_move)),
    ("t", _on_array(_permute)),
    ("unsqueeze expand_dims", _on_array(_unsqueeze)),
    ("squeeze", _on_array(_squeeze)),
    ("flatten ravel", _on_array(_flatten)),
    ("mean sum prod std var any all norm amax amin", _on_array(_reduced)),
    ("max min topk", _on_array(_extreme)),
    ("argmax argmin", _on_array(_arg_extreme)),
    ("repeat tile", _on_array(_repeat)),
    ("expand broadcast_to", _on_array(_expand)),
    ("size", _on_array(_size)),
    ("one_hot", _on_array(_one_hot)),
    ("interpolate upsample", _on_array(_interpolate)),
    ("resize imresize", _resize_image),
    ("to_tensor pil_to_tensor", _on_array(_to_tensor)),
    ("convert cvtColor", _on_array(_color)),
    ("fromarray to_pil_image", _on_array(_to_picture)),
    ("imread read_image imageio_read", _read_image),
    ("stack", _stack),
    ("cat concatenate concat hstack vstack", _concatenate),
    ("pad_sequence", _padded),
    ("train_test_split", _splits),
    ("sample choices", _sampled),
    ("tqdm trange_of iter cycle list tuple sorted shuffle reversed deque prepare prepare_data_loader set", _first),
)  # fmt: skip
OPERATIONS: Final[dict[str, Operation]] = {
    **{name: operation for names, operation in _ROWS for name in names.split()},
    **{name: (_tensor_class if name.endswith("Tensor") else _converted)(dtype) for name, dtype in DTYPES.items()},
    "Tensor": _tensor_class(None),
}

# Classes whose objects change pictures: of torchvision.transforms, and of albumentations, which take height and width apart.
_TRANSFORMS: Final[tuple[tuple[str, Callable[[Array, tuple[Any, ...], Arguments], Any]], ...]] = (
    ("Resize Scale", _resize_shorter),
    ("CenterCrop RandomCrop RandomResizedCrop RandomSizedCrop RandomCropPad RandomSizedBBoxSafeCrop", _interpolate),
    ("ToTensor ToTensorV2 PILToTensor ToImage", _to_tensor),
    ("Grayscale", _gray),
    ("ToPILImage ToPIL", _to_picture),
)
TRANSFORMS: Final = {name: change for names, change in _TRANSFORMS for name in names.split()}


def transform(name: str, arguments: Arguments, call: Callable[[Any, Arguments], Any]) -> Transform:
    """The transform that the class `name` makes: a change of sizes, a composition, or one that keeps them.

    `call(part, arguments)` is the value of a call of an object or a function of the program.
    """
    if name in ("Compose", "Sequential"):
        return composition(arguments.get(0, "transforms"), call)
    change = TRANSFORMS.get(name)
    if change is None:
        return Transform(apply=lambda array: array)
    pair = arguments.get(None, "height"), arguments.get(None, "width")
    if (
        pair[0] is UNKNOWN
        and name != "Grayscale"
        and len(arguments.positional) > 1
        and type(arguments.positional[1]) is int
    ):
        pair = arguments.positional[0], arguments.positional[1]
    sized = replace(arguments, positional=(pair,), named={}) if pair[0] is not UNKNOWN else arguments

    def apply(array: Any) -> Any:
        return change(array, sized.positional, sized) if isinstance(array, Array) and array.sizes is not None else array

    return Transform(apply=apply)


def composition(parts: Any, call: Callable[[Any, Arguments], Any]) -> Transform:
    """The transforms `parts` one after the other; one of which the result is unknown keeps the sizes."""

    def apply(array: Any) -> Any:
        for part in parts if isinstance(parts, tuple) else ():
            if isinstance(part, Transform):
                array = part.apply(array)
            elif known(changed := call(part, Arguments(positional=(array,)))):
                array = changed
        return array

    return Transform(apply=apply)


def data_set(name: str, arguments: Arguments) -> Listing:
    """A data set of torchvision: items of an image after its transform, and a class."""
    channels, height, width = IMAGES[name]
    picture: Any = Array(sizes=(height, width, channels), is_picture=True)
    change = arguments.get(None, "transform", default=None)
    if change is not None and not isinstance(change, Transform):
        return Listing(item=(UNKNOWN, 0))  # transformed in a way that the text does not show
    picture = change.apply(picture) if change is not None else picture
    if isinstance(picture, Array) and picture.is_picture:
        picture = _to_tensor(picture, (), arguments)
    return Listing(item=(picture, 0))
