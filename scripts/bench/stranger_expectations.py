"""What a maintainer of each listed file expects `count` to find: class, parameters, inputs. Read from strangers.json.

Inputs are written as the tool shows them: ``N,3,32,32`` or ``N,T:int64``, several inputs separated by ``;``. A letter is any
size, the same letter is the same size, and ``H>=64`` is a lower bound. Without a dtype, any floating-point type fits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

EXPECTATIONS: Final = Path(__file__).with_name("strangers.json")
MACS_TOLERANCE: Final = 0.02  # published figures are rounded, and some leave out small layers
_SIZE: Final = re.compile(r"(?P<symbol>[A-Za-z]\w*)(?:>=(?P<least>\d+))?")

Role = Literal["model", "no_model", "unscored"]
Shape = tuple[tuple[int, ...], str]  # dimensions and dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedModel:
    """One acceptable answer.

    - `build`: how the model is built by hand, run in the file's definitions. Empty if only the class can be stated.
    - `parameters`: the count of that model; None if the data set or the user decides a size.
    - `inputs`: patterns of acceptable inputs; empty accepts all.
    - `macs`: a published or derived count of multiply-adds of one forward pass with `macs_inputs`.
    - `source`: where class, arguments and figures come from.
    """

    class_name: str
    build: str = ""
    parameters: int | None = None
    inputs: tuple[str, ...] = ()
    macs: float | None = None
    macs_inputs: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFile:
    """A file of a repository and its acceptable models. `reason` explains why there is none, or why the file has no score."""

    path: str
    role: Role = "model"
    models: tuple[ExpectedModel, ...] = ()
    packages: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A public repository at a commit."""

    name: str
    commit: str
    group: str
    files: tuple[ExpectedFile, ...]

    @property
    def folder_names(self) -> tuple[str, ...]:
        """Names that a checkout of this repository may have in a folder of checkouts."""
        owner, _, project = self.name.partition("/")
        return (f"{owner}+{project}", f"{owner}__{project}", project)


def read_expectations(path: Path = EXPECTATIONS) -> tuple[Repository, ...]:
    """Return the repositories of `path`, in the order of the file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Repository(
            name=entry["name"],
            commit=entry["commit"],
            group=entry["group"],
            files=tuple(_read_file(file, entry.get("packages", ())) for file in entry["files"]),
        )
        for entry in data["repositories"]
    )


def find_difference(
    models: Sequence[ExpectedModel], class_name: str, parameters: int, inputs: Sequence[Shape], macs: float
) -> str:
    """Return what differs from the closest acceptable model; an empty text if the answer is acceptable."""
    differences = [_difference(model, class_name, parameters, inputs, macs) for model in models]
    return (
        ""
        if "" in differences
        else min(differences, key=lambda text: _PARTS.index(text.split(" ")[0]), default="no model")
    )


_PARTS: Final = ("macs", "inputs", "parameters", "class")  # the later, the further from the expected answer


def _difference(model: ExpectedModel, class_name: str, parameters: int, inputs: Sequence[Shape], macs: float) -> str:
    if class_name != model.class_name:
        return f"class {class_name} instead of {model.class_name}"
    if model.parameters is not None and parameters != model.parameters:
        return f"parameters {parameters:,} instead of {model.parameters:,}"
    if model.inputs and not any(inputs_match(pattern, inputs) for pattern in model.inputs):
        return f"inputs {format_inputs(inputs)} instead of {' or '.join(model.inputs)}"
    if model.macs is not None and inputs_match(model.macs_inputs, inputs):
        batch = inputs[0][0][0]
        if abs(macs / batch / model.macs - 1) > MACS_TOLERANCE:
            return f"macs {macs / batch:.4g} instead of {model.macs:.4g} for one example"
    return ""


def inputs_match(pattern: str, inputs: Sequence[Shape]) -> bool:
    """Return whether `inputs` have the shapes and dtypes of `pattern`."""
    patterns = [text.strip() for text in pattern.split(";")]
    sizes: dict[str, int] = {}
    return len(patterns) == len(inputs) and all(
        _input_matches(text, dimensions, dtype, sizes)
        for text, (dimensions, dtype) in zip(patterns, inputs, strict=True)
    )


def _input_matches(text: str, dimensions: tuple[int, ...], dtype: str, sizes: dict[str, int]) -> bool:
    shape, _, expected_dtype = text.partition(":")
    items = [item for item in shape.split(",") if item]
    dtype_matches = dtype == expected_dtype if expected_dtype else dtype.startswith(("float", "bfloat"))
    return (
        dtype_matches
        and len(items) == len(dimensions)
        and all(_size_matches(item, size, sizes) for item, size in zip(items, dimensions, strict=True))
    )


def _size_matches(item: str, size: int, sizes: dict[str, int]) -> bool:
    if item.isdigit():
        return int(item) == size
    match = _SIZE.fullmatch(item)
    if match is None:
        raise ValueError(f"{item!r} is neither a size nor a symbol")
    return sizes.setdefault(match["symbol"], size) == size and size >= int(match["least"] or 1)


def format_inputs(inputs: Sequence[Shape]) -> str:
    """Return inputs in the notation of the expectations."""
    return "; ".join(
        ",".join(map(str, dimensions)) + ("" if dtype == "float32" else f":{dtype}") for dimensions, dtype in inputs
    )


def _read_file(entry: dict[str, Any], packages: Sequence[str]) -> ExpectedFile:
    role: Role = "no_model" if "no_model" in entry else "unscored" if "unscored" in entry else "model"
    return ExpectedFile(
        path=entry["path"],
        role=role,
        models=tuple(_read_model(model) for model in entry.get("models", ())),
        packages=tuple(entry.get("packages", packages)),
        reason=entry.get("no_model", entry.get("unscored", "")),
    )


def _read_model(entry: dict[str, Any]) -> ExpectedModel:
    inputs = entry.get("inputs", ())
    return ExpectedModel(
        class_name=entry["class"],
        build=entry.get("build", ""),
        parameters=entry.get("parameters"),
        inputs=(inputs,) if isinstance(inputs, str) else tuple(inputs),
        macs=entry.get("macs"),
        macs_inputs=entry.get("macs_inputs", ""),
        source=entry.get("source", ""),
    )
