"""Make the table of prices of a device from a recording of `record_prices`, and measure its error.

    python -m scripts.lab.price_table            # error on networks that the table does not know; a row per family of ops
    python -m scripts.lab.price_table --write    # also write profiler_kit/devices/prices/h100.csv.gz

Each network's kernel time is predicted with the calls of all other networks.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.forecast.prices import PriceTable, Recorded, write_table
from profiler_kit.forecast.step import interval_factor
from profiler_kit.forecast.work import Arithmetic, Work, work_of
from profiler_kit.records.calls import OpCall, TensorFacts

RECORDING: Final = Path(__file__).parent / "prices" / "h100.jsonl.gz"
TABLE: Final = Path(__file__).parents[2] / "profiler_kit" / "devices" / "prices" / "h100.csv.gz"
SOURCE: Final = "NVIDIA H100 80GB HBM3, torch 2.11.0+cu130, cuDNN 9.19.0, 2026-11-28"
# Families of single ops at random sizes: they are recorded for the table, and are no networks.
SINGLE_OPS: Final = frozenset(("convolutions", "products", "operators", "convs", "mats", "misc"))
CELL: Final = {"memory": 0.5, "optimizer": 0.5}  # recorded calls in one cell of sizes become one row
BYTES: Final = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1,
}  # fmt: skip
_TENSOR: Final = re.compile(r"([a-z]+\d*)\[([\d,]*)\](?:/\(([\d,]*)\))?")


class Call(NamedTuple):
    """A recorded call: the number of its network, its work, calls per step, time and kernels of one."""

    network: int
    work: Work
    calls: int
    ns: float
    kernels: int


@dataclass(frozen=True, slots=True)
class Network:
    """A recorded network: its family of models, its precision, its shortest step without the profiler, and its kernel time."""

    family: str
    precision: str
    step_ns: float
    kernel_ns: float


def read_recording(path: Path) -> tuple[list[Network], list[Call]]:
    """The networks and calls of a recording."""
    networks, calls = [], []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            record = json.loads(line)
            kernel_ns = sum(count * us * 1e3 for _, _, _, count, us, *_ in record["rows"])
            networks.append(Network(record["family"], record["mode"]["p"], min(record["step_ns"]), kernel_ns))
            arithmetic = Arithmetic(tf32_products=record["mode"]["p"] == "tf32")
            for op, arguments, results, count, us, kernels, *_ in record["rows"]:
                work = work_of(OpCall(op, parse(arguments), outputs=parse(results)), arithmetic) if "." in op else None
                if work is not None and op.startswith("aten."):
                    calls.append(Call(len(networks) - 1, work, count, us * 1e3, kernels))
    return networks, calls


def parse(signature: str) -> tuple[Any, ...]:
    """The arguments that `meta.call_signatures.call_signature` wrote, with facts in place of tensors."""
    text = _TENSOR.sub(lambda match: repr(match[0]) if match[1] in BYTES else match[0], signature)
    text = re.sub(r"(?<![\w'\"./])-(?=[,\]]|$)", "None", text)
    text = re.sub(r"\b(\w+)=", "", text)
    text = re.sub(r"(?<![\w'\"])((?!None\b|True\b|False\b)[A-Za-z_][\w.]*(?:\([^)]*\))?)(?![\w'\"\[])", r"'\1'", text)
    try:
        value = ast.literal_eval(f"({text},)" if text else "()")
    except (SyntaxError, ValueError):
        return tuple(_facts(match[0]) for match in _TENSOR.finditer(signature) if match[1] in BYTES)
    return tuple(map(_value, value))


def _value(value: Any) -> Any:
    if isinstance(value, str) and _TENSOR.fullmatch(value):
        return _facts(value)
    return tuple(map(_value, value)) if isinstance(value, (list, tuple)) else value


def _facts(text: str) -> TensorFacts:
    match = _TENSOR.fullmatch(text)
    assert match is not None
    shape = tuple(int(size) for size in match[2].split(",") if size)
    if match[3] is not None:
        strides = tuple(int(stride) for stride in match[3].split(",") if stride)
    else:
        strides = tuple(math.prod(max(size, 1) for size in shape[place + 1 :]) for place in range(len(shape)))
    return TensorFacts(shape, strides, match[1], BYTES[match[1]])


def rows_of(calls: Iterable[Call]) -> Iterator[Recorded]:
    """The rows of a table: the mean ratio of the calls that share network, classes and a cell of sizes."""
    assert H100.peaks is not None
    cells: dict[tuple[Any, ...], list[tuple[Call, float]]] = defaultdict(list)
    for call in calls:
        cell = CELL.get(call.work.family, 0.05)
        sizes = tuple(round(size / cell) for size in call.work.sizes)
        key = (call.network, call.work.family, call.work.classes, sizes, call.ns == 0)
        cells[key].append((call, call.ns / call.work.roofline_ns(H100.peaks)))
    rows_at: dict[tuple[Any, ...], int] = defaultdict(int)
    for (network, family, classes, sizes, _), members in cells.items():
        place = (family, classes, sizes)
        rows_at[place] += 1
        if rows_at[place] <= 2:  # two networks are enough at one place: each can be left out
            first = members[0][0]
            mean = sum(ratio for _, ratio in members) / len(members)
            yield Recorded(network, family, classes, first.work.sizes, mean, first.kernels)


def errors(table: PriceTable, networks: list[Network], calls: list[Call]) -> None:
    """Print the error on each network when its own calls are left out."""
    measured, predicted = defaultdict[int, float](float), defaultdict[int, float](float)
    parts: dict[int, list[tuple[str, float, float]]] = defaultdict(list)
    by_family: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for call in calls:
        price = table.price(call.work, without=call.network)
        pair = (call.calls * call.ns, call.calls * price.ns)
        measured[call.network] += pair[0]
        predicted[call.network] += pair[1]
        parts[call.network].append((call.work.op, pair[1], price.spread))
        if call.ns:
            by_family[call.work.family].append(pair)
    print(f"{'family of ops':24}{'calls':>8}{'share %':>9}{'median error %':>16}{'bias %':>8}")
    total_ns = sum(measured.values())
    for name, pairs in by_family.items():
        columns = np.array(pairs)
        error = np.median(np.abs(columns[:, 1] / columns[:, 0] - 1))
        bias, share = columns[:, 1].sum() / columns[:, 0].sum() - 1, columns[:, 0].sum() / total_ns
        print(f"{name:24}{len(pairs):8}{100 * share:9.1f}{100 * error:16.1f}{100 * bias:8.1f}")
    groups: dict[str, list[float]] = defaultdict(list)
    inside = 0
    for number, network in enumerate(networks):
        if network.family in SINGLE_OPS or not measured[number]:
            continue
        error = predicted[number] / measured[number] - 1
        inside += abs(math.log(predicted[number] / measured[number])) <= math.log(interval_factor(parts[number]))
        for group in ("all", network.family, f"in {network.precision}"):
            groups[group].append(error)
    print(f"\n{'networks':24}{'number':>8}{'median error %':>16}{'90 % below':>12}{'median bias %':>15}")
    for name, values in groups.items():
        size = np.abs(values)
        median, most, bias = 100 * np.median(size), 100 * np.quantile(size, 0.9), 100 * np.median(values)
        print(f"{name:24}{len(values):8}{median:16.1f}{most:12.1f}{bias:15.1f}")
    print(f"\ninside the 80 % interval: {100 * inside / len(groups['all']):.0f} %")


def host_costs(networks: list[Network], calls: list[Call]) -> None:
    """Print the host's time for an op with a kernel, for each further kernel, and for an op without one, and their error.

    They are fitted to networks whose kernels take less than half of the step, with relative errors.
    """
    counts = np.zeros((len(networks), 3))
    for call in calls:
        counts[call.network] += call.calls * np.array([call.kernels > 0, max(call.kernels - 1, 0), call.kernels == 0])
    steps = np.array([network.step_ns for network in networks])
    bound = [
        number
        for number, network in enumerate(networks)
        if network.family not in SINGLE_OPS and network.kernel_ns < 0.5 * network.step_ns
    ]
    relative = counts[bound] / steps[bound, None]
    costs, *_ = np.linalg.lstsq(relative, np.ones(len(bound)), rcond=None)
    error = 100 * np.abs(relative @ costs - 1)
    shown = ", ".join(f"{cost / 1e3:.1f} us" for cost in costs)
    print(
        f"host: {shown} for an op with a kernel, each further kernel, an op without; {len(bound)} networks, "
        f"{np.median(error):.0f} % median error, {np.quantile(error, 0.9):.0f} % nine of ten"
    )


def main() -> None:
    """Print the errors; write the table with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument("--write", action="store_true", help="write the table")
    options = parser.parse_args()
    networks, calls = read_recording(options.recording)
    rows = list(rows_of(calls))
    assert H100.peaks is not None
    data = write_table(rows, SOURCE)
    print(f"{len(networks)} networks, {len(calls)} calls, {len(rows)} rows, {len(data)} bytes")
    errors(PriceTable(rows, H100.peaks, SOURCE), networks, calls)
    host_costs(networks, calls)
    if options.write:
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_bytes(data)


if __name__ == "__main__":
    main()
