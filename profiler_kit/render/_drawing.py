"""Shared by pictures: colors, text that fits a box, and axes in the units of the tables. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Final

from profiler_kit.command_lines import install_command
from profiler_kit.errors import UsageError
from profiler_kit.render._text import one_line
from profiler_kit.units import Unit, text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ft2font import FT2Font

INK, MUTED, LINE, UNKNOWN = "#1c2430", "#5b6675", "#d9dee5", "#c3ccd8"
WIDTH_INCHES: Final = 9.0
DOTS_PER_INCH: Final = 100
LABEL_POINTS: Final = 8.5
SMALL_POINTS: Final = 7.0
FONT: Final = "DejaVu Sans"  # comes with matplotlib, so that text has the same size everywhere
_STYLE: Final = {
    "figure.dpi": DOTS_PER_INCH,
    "savefig.dpi": DOTS_PER_INCH,
    "font.family": [FONT],
    "font.size": LABEL_POINTS,
    "text.color": INK,
    "text.parse_math": False,  # a "$" in a name is not mathematics
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "legend.frameon": False,
    "svg.hashsalt": "profiler_kit",  # the same chart gives the same bytes
}


def require_matplotlib() -> ModuleType:
    """The module matplotlib. Raises: UsageError with the install command if it is not installed."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise UsageError(
            "charts as pictures need matplotlib, which is not installed", hint=install_command("profiler-kit[plots]")
        ) from error
    return matplotlib


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's defaults and the style of charts, whatever the user's settings are."""
    matplotlib = require_matplotlib()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def canvas(title: str, height_inches: float) -> tuple[Figure, Axes]:
    """A figure with one set of axes under its title."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained", facecolor="white")
    figure.suptitle(fitted(title, 95 * WIDTH_INCHES, 11), x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure, figure.add_subplot()


@lru_cache(maxsize=1)
def _font() -> FT2Font:
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    font = FT2Font(findfont(FONT))
    font.set_size(100, 72)
    return font


@lru_cache(maxsize=1)
def _glyphs() -> frozenset[int]:
    return frozenset(_font().get_charmap())


@lru_cache(maxsize=10_000)
def _advance(char: str) -> float:
    """The width of `char` as a share of the font size."""
    return _font().load_char(ord(char)).linearHoriAdvance / 65536 / 100


def drawable(written: str) -> str:
    """`written` on one line; characters that the font lacks are replaced by the replacement character."""
    return "".join(char if ord(char) in _glyphs() else "\ufffd" for char in one_line(written))


def width(written: str, points: float) -> float:
    """The width of drawable text in dots of the picture."""
    return sum(map(_advance, written)) * points * DOTS_PER_INCH / 72


def fitted(written: str, dots: float, points: float = LABEL_POINTS) -> str:
    """`written`, drawable and at most `dots` wide, with an ellipsis in the middle where it is cut; "" if nothing fits."""
    plain = drawable(written)
    if width(plain, points) <= dots:
        return plain
    dots -= width("…", points)
    left, right = 0, len(plain)
    while dots > 0 and left < right:  # characters from both ends by turns
        from_left = left <= len(plain) - right
        dots -= width(plain[left] if from_left else plain[right - 1], points)
        if dots > 0:
            left, right = (left + 1, right) if from_left else (left, right - 1)
    return f"{plain[:left].rstrip()}…{plain[right:].lstrip()}" if left else ""


def name_axis(axes: Axes, names: Sequence[str], dots: float = 230) -> None:
    """The y axis with a name per row, the first one on top."""
    axes.set_yticks(range(len(names)), labels=[fitted(name, dots) for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)


def value_axis(axes: Axes, axis: Axis, unit: Unit, low: float, high: float) -> None:
    """`axis` from `low` to `high` with a grid and labels in `unit`; labels of bytes are round in binary units."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    span = high - low
    limits = (low, low + 1.0) if span <= 0 else (low, high)
    (axes.set_xlim if axis.axis_name == "x" else axes.set_ylim)(*limits)  # type: ignore[attr-defined]
    if unit == "bytes" and span > 0:
        size = 2.0 ** round(math.log2(span / 5))
        first, last = math.ceil(low / size), math.floor(high / size)
        axis.set_major_locator(FixedLocator([size * i for i in range(first, last + 1)]))
    else:
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    unit_axis(axis, unit)
    label = {"flops": "FLOPs", "macs": "MACs"}.get(unit)
    if label is not None:
        axis.set_label_text(label)


def unit_axis(axis: Axis, unit: Unit) -> None:
    """Labels in `unit`, without minor ticks, and a grid."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    written: Callable[[float, int | None], str] = lambda value, _: text(value, unit)  # noqa: E731
    axis.set_major_formatter(FuncFormatter(written))
    axis.set_minor_locator(NullLocator())
    axis.grid(True, linewidth=0.6)
    axis.set_tick_params(length=0)


def legend(figure: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """A legend below the axes with as many columns as fit; the picture becomes higher by its rows."""
    names = [fitted(label, 260) for label in labels]
    widest = max(width(name, LABEL_POINTS) for name in names) + 50
    columns = max(1, min(len(names), int(95 * WIDTH_INCHES / widest)))
    figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(names) / columns))
    # matplotlib leaves out labels that begin with an underscore
    texts = [f"\u200a{name}" if name.startswith("_") else name for name in names]
    figure.legend(handles, texts, loc="outside lower left", ncols=columns, fontsize=LABEL_POINTS, borderaxespad=0.2)


def ink_on(color: str) -> str:
    """The text color that is easier to read on `color`."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(color)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
