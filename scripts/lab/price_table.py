"""Make the table of prices of a device from a recording of `record_prices`, and measure its error.

    python -m scripts.lab.price_table            # error on networks that the table does not know; a row per family of ops
    python -m scripts.lab.price_table --write    # also write profiler_kit/devices/prices/h100.json.gz
    python -m scripts.lab.price_table --factors CARD RECORDING...    # `price_factors` of another card, and their error

It needs LightGBM: pip install lightgbm. The kernel time of each step is predicted with the calls of nine tenths of the networks,
of which its own is none.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.device import Device
from profiler_kit.devices.registry import devices, find_device
from profiler_kit.forecast.host import KIND_NS, host_kind
from profiler_kit.forecast.prices import FamilyPrices, Price, prices_for, write_table
from profiler_kit.forecast.step import interval_factor
from profiler_kit.forecast.trees import Trees
from profiler_kit.forecast.work import Arithmetic, Work, work_of
from profiler_kit.records.calls import OpCall, TensorFacts
from scripts.lab.price_networks import FAMILIES

RECORDINGS: Final = Path(__file__).parent / "prices"
ALONE: Final = RECORDINGS / "h100_steps.json"  # written by `python -m scripts.bench.forecast steps`
TABLE: Final = Path(__file__).parents[2] / "profiler_kit" / "devices" / "prices" / "h100.json.gz"
SOURCE: Final = "NVIDIA H100 80GB HBM3, torch 2.11.0+cu130, cuDNN 9.19.0, 2026-11-28"
# Families of single ops at random sizes: they are recorded for the table, and are no networks.
SINGLE_OPS: Final = frozenset(
    ("convolutions", "products", "operators", "attention", "sequences", "convs", "mats", "misc")
)
HOST_LIMITED: Final = 0.6
# Fitted to 224 steps that were recorded beside other work on the host, and how strongly the kinds of ops are held near them.
EARLIER_NS: Final = {
    "attention": 43_000, "convolution": 84_000, "convolution_backward": 137_000, "memory": 21_000, "normalization": 45_000,
    "normalization_backward": 117_000, "optimizer": 121_000, "product": 68_000, "recurrent": 60_000, "further": 16_400,
    "view": 9_100,
}  # fmt: skip
HOLD: Final = 0.3
FOLDS: Final = 10
# Of LightGBM, found on the recordings of published networks with those of the others.
RATIO_TREES: Final = {
    "n_estimators": 250, "num_leaves": 63, "learning_rate": 0.08, "min_child_samples": 10, "objective": "huber", "alpha": 0.3,
}  # fmt: skip
SMALL_TREES: Final = {"n_estimators": 60, "num_leaves": 15, "learning_rate": 0.1, "min_child_samples": 20}
KERNEL_TREES: Final = {
    **SMALL_TREES,
    "objective": "huber",
    "alpha": 0.3,
}  # most calls launch one kernel, a few launch dozens
COMMON: Final = {
    "subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.6, "reg_lambda": 1.0, "max_bin": 127, "verbose": -1,
    "n_jobs": 1, "seed": 0, "deterministic": True, "force_row_wise": True,
}  # fmt: skip
# From the mean distance of the logarithms of times to the deviation with which 80 % of the steps lie in their interval.
SPREAD_FACTOR: Final = 1.25
LEAST_SHARE: Final = 1e-4  # of a step's time: calls below weigh as much as if they had it
SMOOTHING: Final = 5.0  # calls with the mean of all, in the mean of those with one text
BYTES: Final = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1,
}  # fmt: skip
_TENSOR: Final = re.compile(r"([a-z]+\d*)\[([\d,]*)\](?:/\(([\d,]*)\))?")


class Call(NamedTuple):
    """A recorded call: the numbers of its recorded step and of its network, its work, calls per step, time and kernels of one."""

    step: int
    network: int
    work: Work
    calls: int
    ns: float
    kernels: int


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded step: its network's family and parameters, the precision, and its kernel time.

    `alone_ns`: its time without the profiler and with no other work on the host, where that was measured.
    """

    family: str
    parameters: int
    precision: str
    kernel_ns: float
    alone_ns: float | None


def read_recordings(paths: Iterable[Path]) -> tuple[list[Step], list[Call]]:
    """The steps and calls of recordings. Steps of one network in several modes have the same number of the network."""
    steps: list[Step] = []
    calls: list[Call] = []
    networks: dict[tuple[str, int], int] = {}
    alone: dict[str, list[float]] = json.loads(ALONE.read_text())["step_ns"]
    for record in (json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()):
        kernel_ns = sum(count * us * 1e3 for _, _, _, count, us, *_ in record["rows"])
        mode, times = record["mode"]["p"], alone.get(" ".join(map(str, (record["family"], *record["mode"].values()))))
        alone_ns = float(np.median(times)) if times else None
        steps.append(Step(record["family"], record.get("params", len(steps)), mode, kernel_ns, alone_ns))
        network = networks.setdefault((steps[-1].family, steps[-1].parameters), len(networks))
        arithmetic = Arithmetic(tf32_products=mode == "tf32")
        for op, arguments, results, count, us, kernels, *_ in record["rows"]:
            work = work_of(OpCall(op, parse(arguments), outputs=parse(results)), arithmetic) if "." in op else None
            if work is not None and op.startswith("aten."):
                calls.append(Call(len(steps) - 1, network, work, count, us * 1e3, kernels))
    return steps, calls


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


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The distinct works of each network of one family of ops, as columns.

    `weights`: by their shares of their steps, and less for a network with many works.
    """

    works: list[Work]
    network: NDArray[np.int64]
    log_ratios: NDArray[np.float64]
    kernels: NDArray[np.float64]
    weights: NDArray[np.float64]


def samples_of(calls: Sequence[Call], steps: Sequence[Step]) -> dict[str, Samples]:
    """The samples of each family of ops. Works without a kernel have a ratio of 1 and no weight in it."""
    assert H100.peaks is not None
    times: dict[tuple[int, Work], list[float]] = defaultdict(list)
    shares: dict[tuple[int, Work], float] = defaultdict(float)
    kernels: dict[tuple[int, Work], int] = {}
    for call in calls:
        key = (call.network, call.work)
        times[key].append(call.ns)
        shares[key] += call.calls * call.ns / max(steps[call.step].kernel_ns, 1)
        kernels[key] = max(kernels.get(key, 0), call.kernels if call.ns else 0)
    by_family: dict[str, list[tuple[int, Work]]] = defaultdict(list)
    for key in times:
        by_family[key[1].family].append(key)
    samples = {}
    for family, keys in by_family.items():
        network = np.array([number for number, _ in keys])
        ratio = np.array([np.mean(times[key]) / key[1].ideal_ns(H100.peaks) for key in keys])
        share = np.array([shares[key] for key in keys])
        weights = np.sqrt((share + LEAST_SHARE) / np.bincount(network)[network]) * (ratio > 0)
        log_ratios = np.log(np.where(ratio > 0, ratio, 1.0))
        counts = np.array([kernels[key] for key in keys], float)
        samples[family] = Samples([work for _, work in keys], network, log_ratios, counts, weights)
    return samples


def fitted(samples: Samples, chosen: NDArray[np.bool_], spreads: NDArray[np.float64] | None = None) -> FamilyPrices:
    """Prices by the `chosen` samples. `spreads`: the distance of each sample from its price where it was not used."""
    working = chosen & (samples.weights > 0)
    numbers = tuple(
        _numbers(texts, samples, working) for texts in zip(*(work.classes for work in samples.works), strict=True)
    )
    nothing = Trees.of_columns({"feature": [], "number": [], "right": []})
    ops: dict[str, bool] = {}
    for work, is_chosen, weight in zip(samples.works, chosen, samples.weights, strict=True):
        if is_chosen:
            ops[work.op] = ops.get(work.op, False) or weight > 0
    ops = {op: bool(ops[op]) for op in sorted(ops)}
    prices = FamilyPrices(numbers, nothing, nothing, nothing, ops)
    rows = prices.rows(samples.works)
    return replace(
        prices,
        ratio=_trees(rows, samples.log_ratios, working, samples.weights, RATIO_TREES),
        spread=nothing
        if spreads is None
        else _trees(rows, SPREAD_FACTOR * spreads, working, samples.weights, SMALL_TREES),
        kernels=_trees(rows, np.log(np.maximum(samples.kernels, 1)), working, None, KERNEL_TREES),
    )


def _numbers(texts: Sequence[str], samples: Samples, chosen: NDArray[np.bool_]) -> dict[str, float]:
    """The rank of each chosen text by the mean of its logarithms, so that a threshold separates slow ones from fast ones."""
    by_text: dict[str, list[float]] = defaultdict(list)
    for text, value, is_chosen in zip(texts, samples.log_ratios.tolist(), chosen, strict=True):
        if is_chosen:
            by_text[text].append(value)
    mean = float(samples.log_ratios[chosen].mean())
    values = {text: (sum(all_) + SMOOTHING * mean) / (len(all_) + SMOOTHING) for text, all_ in by_text.items()}
    return {text: float(rank) for rank, text in enumerate(sorted(values, key=lambda text: (values[text], text)))}


def _trees(
    rows: NDArray[np.float64],
    values: NDArray[np.float64],
    chosen: NDArray[np.bool_],
    weights: NDArray[np.float64] | None,
    options: Mapping[str, Any],
) -> Trees:
    import lightgbm

    least = min(options["min_child_samples"], max(1, int(chosen.sum()) // 10))
    model = lightgbm.LGBMRegressor(**COMMON, **{**options, "min_child_samples": least})
    # LightGBM holds leaves back by the sum of their weights, so that has to be the number of samples.
    weight = None if weights is None else weights[chosen] / weights[chosen].mean()
    model.fit(rows[chosen], values[chosen], sample_weight=weight)
    return Trees.of_lightgbm(model.booster_.dump_model()["tree_info"])


def cross_validated(samples: Mapping[str, Samples]) -> tuple[dict[tuple[int, Work], Price], dict[str, FamilyPrices]]:
    """The price of each work of each network by networks that do not include it, and prices by all of them."""
    assert H100.peaks is not None
    networks = max(int(each.network.max()) for each in samples.values()) + 1
    fold = np.random.default_rng(0).permutation(networks) % FOLDS
    unused: dict[tuple[int, Work], Price] = {}
    families = {}
    for name, each in samples.items():
        ideal_ns = np.array([work.ideal_ns(H100.peaks) for work in each.works])
        outside = np.zeros(len(each.works))
        parts: list[tuple[NDArray[np.int64], FamilyPrices]] = []
        for number in range(FOLDS):
            is_left_out = fold[each.network] == number
            if is_left_out.any():
                prices = fitted(each, ~is_left_out)
                places = np.flatnonzero(is_left_out)
                parts.append((places, prices))
                outside[places] = prices.ratio.predict(prices.rows([each.works[place] for place in places]))
        families[name] = fitted(each, np.ones(len(each.works), bool), np.abs(outside - each.log_ratios))
        for places, prices in parts:
            with_spread = replace(prices, spread=families[name].spread, texts=prices.texts)
            members = [each.works[place] for place in places]
            found = with_spread.prices(members, ideal_ns[places])
            unused.update(zip(zip(each.network[places].tolist(), members, strict=True), found, strict=True))
    return unused, families


def errors(prices: Mapping[tuple[int, Work], Price], steps: Sequence[Step], calls: Sequence[Call]) -> None:
    """Print the error on each step by `prices`, those of each work of a network without that network."""
    measured, predicted = defaultdict[int, float](float), defaultdict[int, float](float)
    parts: dict[int, list[tuple[str, float, float]]] = defaultdict(list)
    by_family: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for call in calls:
        price = prices[call.network, call.work]
        pair = (call.calls * call.ns, call.calls * price.ns)
        measured[call.step] += pair[0]
        predicted[call.step] += pair[1]
        parts[call.step].append((call.work.op, pair[1], price.spread))
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
    for number, step in enumerate(steps):
        if step.family in SINGLE_OPS or not measured[number]:
            continue
        error = predicted[number] / measured[number] - 1
        inside += abs(math.log(predicted[number] / measured[number])) <= math.log(interval_factor(parts[number]))
        kind = step.family if step.family in FAMILIES else "other names"
        for group in ("all", kind, f"in {step.precision}"):
            groups[group].append(error)
    print(f"\n{'steps of networks':24}{'number':>8}{'median error %':>16}{'90 % below':>12}{'median bias %':>15}")
    for name, values in groups.items():
        size = np.abs(values)
        median, most, bias = 100 * np.median(size), 100 * np.quantile(size, 0.9), 100 * np.median(values)
        print(f"{name:24}{len(values):8}{median:16.1f}{most:12.1f}{bias:15.1f}")
    print(f"\ninside the 80 % interval: {100 * inside / len(groups['all']):.0f} %")


def host_costs(steps: Sequence[Step], calls: Sequence[Call]) -> None:
    """Print the host's time for each kind of op, for each further kernel, and for an op without one, and their error.

    They are fitted to the steps timed alone whose kernels take less than `HOST_LIMITED` of the time, with relative errors, and
    held near earlier values. The error is that on the steps of a network with the values fitted to the others.
    """
    kinds = [*KIND_NS, "further", "view"]
    counts = np.zeros((len(steps), len(kinds)))
    for call in calls:
        kind = host_kind(call.work) if call.kernels else "view"
        counts[call.step, kinds.index(kind)] += call.calls
        counts[call.step, kinds.index("further")] += call.calls * max(call.kernels - 1, 0)
    bound = [
        number
        for number, step in enumerate(steps)
        if step.alone_ns is not None and step.kernel_ns < HOST_LIMITED * step.alone_ns
    ]
    relative = counts[bound] / np.array([steps[number].alone_ns for number in bound])[:, None]
    names = np.array([steps[number].family for number in bound])
    earlier = np.array([EARLIER_NS[kind] for kind in kinds])

    def fitted(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        matrix = np.vstack([rows, np.diag(HOLD / earlier)])
        costs, *_ = np.linalg.lstsq(matrix, np.append(np.ones(len(rows)), np.full(len(kinds), HOLD)), rcond=None)
        return np.asarray(costs)

    for kind, cost in zip(kinds, fitted(relative), strict=True):
        print(f"host: {kind:24}{cost / 1e3:8.1f} us")
    errors = np.concatenate([relative[names == name] @ fitted(relative[names != name]) - 1 for name in set(names)])
    print(
        f"{len(bound)} steps that their host limits: {100 * np.median(np.abs(errors)):.0f} % median error, "
        f"{100 * np.quantile(np.abs(errors), 0.9):.0f} % nine of ten"
    )


def print_factors(card: Device, steps: Sequence[Step], calls: Sequence[Call]) -> None:
    """Print the factor of each family of ops on `card`, and the errors of steps by the factors of the other networks."""
    nearest = prices_for(H100)
    assert nearest is not None
    prices = {work: price.ns for work, price in nearest[0].prices([call.work for call in calls], card.peaks).items()}
    measured = np.array([call.calls * call.ns for call in calls])
    plain = np.array([call.calls * prices[call.work] for call in calls])
    adjusted = plain.copy()
    family, network, step = (
        np.array(column) for column in zip(*((c.work.family, c.network, c.step) for c in calls), strict=True)
    )
    for name in sorted(set(family)):
        own = family == name
        print(f"{name:24}{measured[own].sum() / plain[own].sum():8.3f}")
        for left_out in set(network[own]):
            others = own & (network != left_out)
            if plain[others].any():
                adjusted[own & ~others] *= measured[others].sum() / plain[others].sum()
    totals = np.bincount(step, measured)
    for title, predicted in (("by datasheet", plain), ("with factors", adjusted)):
        errors = np.abs(np.bincount(step, predicted)[totals > 0] / totals[totals > 0] - 1)
        print(f"{title}: {len(errors)} steps, {100 * np.median(errors):.1f} / {100 * np.quantile(errors, 0.9):.1f} %")


def main() -> None:
    """Print the errors; write the table with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="*", default=sorted(RECORDINGS.glob("h100*.jsonl.gz")))
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("--factors", metavar="CARD", help="print the factors of this card by its recordings")
    options = parser.parse_args()
    if options.factors:
        print_factors(find_device(options.factors, "--factors", devices()), *read_recordings(options.recordings))
        return
    steps, calls = read_recordings(options.recordings)
    samples = samples_of(calls, steps)
    unused, families = cross_validated(samples)
    data = write_table(families, SOURCE)
    print(f"{len(steps)} steps, {len(calls)} calls, {len(data)} bytes")
    errors(unused, steps, calls)
    host_costs(steps, calls)
    if options.write:
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_bytes(data)


if __name__ == "__main__":
    main()
