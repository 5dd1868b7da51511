"""Compare the forecast of a step with measurements on a CUDA device.

    python -m scripts.bench.forecast measure FOLDER --out measured.jsonl.gz     # on the device, at most 280 s
    python -m scripts.bench.forecast steps FOLDER --out steps.json              # on the device: steps alone, and its host
    python -m scripts.bench.forecast estimate FOLDER --out estimates.json       # on the device: torch's RuntimeEstimator
    python -m scripts.bench.forecast compare FOLDER --measured measured.jsonl.gz --steps steps.json --estimates estimates.json
    python -m scripts.bench.forecast changes --out changes.jsonl.gz             # on the device: pairs of random networks
    python -m scripts.bench.forecast ratios --measured changes.jsonl.gz         # anywhere: the predicted ratio of each pair

FOLDER holds a Python file per network, with ``build()``, which returns a model and a tuple of inputs, ``loss(output)``, and
``OPTIMIZER`` ("sgd", "adam" or "adamw"). A measurement is a recording as that of `scripts.lab.record_prices`: a line per network
and mode. A network that fails or hangs is a line on the terminal, and is skipped. ``--device cpu`` tests it without kernels.
`measure` parses traces in other processes, which delay steps that the host limits: `steps` times the steps alone, with the speed
of the host, which `compare` takes for the forecast.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import math
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import numpy as np
import torch

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.device import Device, Peaks
from profiler_kit.devices.registry import devices
from profiler_kit.forecast.prices import PriceTable, prices_for
from profiler_kit.forecast.step import forecast_step
from profiler_kit.forecast.work import Arithmetic
from profiler_kit.loading import from_model
from profiler_kit.memory import Setup, simulate_step
from profiler_kit.records.counts import Forecast
from profiler_kit.worker.host_speed import REFERENCE_NS, host_step_ns
from scripts.lab.price_networks import FAMILIES
from scripts.lab.price_networks.parts import Draw
from scripts.lab.price_table import SINGLE_OPS, Call, read_recordings
from scripts.lab.record_prices import (
    PARSERS,
    Mode,
    build_step,
    record_all,
    record_networks,
    record_step,
    step_of,
    step_times,
)

Network = tuple[torch.nn.Module, tuple[torch.Tensor, ...], Callable[[Any], torch.Tensor]]
T = TypeVar("T")
OPTIMIZERS: Final = {"sgd": "sgdm"}  # other names are those of `Mode`
TIMED_STEPS: Final = 12
HOST_INTERVAL: Final = 20  # cases between two measurements of the host
MEASURING_SECONDS: Final = 280.0
VISIBLE_CHANGE: Final = 0.05  # of the kernel time: a change whose sign must be right


# --- networks of a folder


@dataclass(frozen=True, slots=True)
class Case:
    """A network of a folder in one mode."""

    file: Path
    mode: Mode

    @property
    def key(self) -> tuple[str, ...]:
        """Its name and mode, as in a recording."""
        return (self.file.stem, *(str(value) for value in asdict(self.mode).values()))


def cases_of(folder: Path) -> list[Case]:
    """Every network of `folder` in every mode, ordered by mode: training before inference, float32 first."""
    files = sorted(folder.glob("*.py"))
    optimizers = {file: _module(file).OPTIMIZER for file in files}
    modes = product((True, False), (("fp32", False), ("bf16", False), ("tf32", False), ("fp32", True), ("bf16", True)))
    return [
        Case(file, Mode(precision, is_channels_last, trains, OPTIMIZERS.get(optimizers[file], optimizers[file])))
        for trains, (precision, is_channels_last) in modes
        for file in files
    ]


def _module(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"network_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def network_of(file: Path, device: str) -> Network:
    """Model, inputs and loss of a file, on `device`."""
    module = _module(file)
    torch.manual_seed(0)
    with torch.device(device):
        model, inputs = module.build()
    if any(parameter.device.type != device for parameter in model.parameters()):
        model.to(device)
    return model, tuple(each.to(device) for each in inputs), module.loss


def applies(mode: Mode, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether the mode changes anything: channels last is for images."""
    return not mode.cl or inputs[0].dim() == 4


def record_case(cases: list[Case], device: str, folder: Path, number: int) -> None:
    """Record the case `number`, unless its mode does not apply."""
    case = cases[number]
    model, inputs, loss = network_of(case.file, device)
    if applies(case.mode, inputs):
        step = step_of(model, inputs, loss, case.mode, device)
        record_step(case.file.stem, case.mode, lambda: (model, step), device, folder, number, TIMED_STEPS)


def write_step_times(folder: Path, out: Path, seconds: float, device: str) -> None:
    """Time the steps of each case of `folder` with no other work on the host, and the host itself again and again."""
    cases, hosts, steps = cases_of(folder), [host_step_ns()], {}

    def time_case(number: int) -> None:
        case = cases[number]
        model, inputs, loss = network_of(case.file, device)
        if applies(case.mode, inputs):
            torch.backends.cuda.matmul.allow_tf32 = case.mode.p == "tf32"
            step = step_of(model, inputs, loss, case.mode, device)
            step_times(step, 2, cuda=device == "cuda")
            steps[" ".join(case.key)] = step_times(step, TIMED_STEPS, cuda=device == "cuda")
        if number % HOST_INTERVAL == 0:
            hosts.append(host_step_ns())

    with tempfile.TemporaryDirectory() as scratch:
        record_networks(time_case, 0, len(cases) - 1, time.time() + seconds, device, Path(scratch))
    out.write_text(json.dumps({"host_ns": hosts, "step_ns": steps}))
    print(f"{len(steps)} cases in {out}; the host: {', '.join(f'{ns / 1e6:.2f}' for ns in hosts)} ms")


# --- predictions


def predict(case: Case, host_factor: float = 1.0, card: Device = H100) -> Forecast | None:
    """The forecast of a case on a card, as `count --gpu h100 --host FACTOR` makes it."""
    model, inputs, loss = network_of(case.file, "cpu")
    target = from_model(
        model.train(case.mode.train),
        inputs,
        loss_fn=loss,
        configure_optimizer=lambda copied: case.mode.optimizer(list(copied.parameters())),
        mode="train" if case.mode.train else "infer",
        amp="bfloat16" if case.mode.p == "bf16" else None,
        channels_last=case.mode.cl,
    )
    _, calls = simulate_step(target, card, Setup(records_calls=True))
    return forecast_step(calls, card, Arithmetic(tf32_products=case.mode.p == "tf32"), host_factor)


def estimate(case: Case) -> float | None:
    """The kernel time by torch's RuntimeEstimator in ns; it knows no TF32, no inference mode of ours and no channels last."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.runtime_estimator import RuntimeEstimator

    estimator = RuntimeEstimator()
    with FakeTensorMode():
        device = "cuda" if torch.cuda.is_available() else "cpu"
        step = step_of(*network_of(case.file, device), case.mode, device)
        step()  # the state of the optimizer exists afterwards
        with estimator("operator-level-cost-model"):
            step()
    return float(estimator.total_runtime) * 1e6


@dataclass(frozen=True, slots=True)
class Outcome:
    """A measured case beside its predictions, in ns; None where one failed."""

    name: str
    mode: str
    kernel_ns: float
    step_ns: float
    predicted_kernel_ns: float | None
    predicted_step_ns: float | None
    estimated_ns: float | None


def compare(folder: Path, measured: Path, steps: Path | None, estimates: Path | None) -> list[Outcome]:
    """Each measured case beside its predictions for the card of the measurement.

    `steps`: of `write_step_times`; `estimates`: of `write_estimates`.
    """
    cases = {case.key: case for case in cases_of(folder)}
    records = sorted((record for record in _lines(measured) if _key(record) in cases), key=_key)
    timed: dict[str, Any] = json.loads(steps.read_text()) if steps is not None else {}
    host_factor = statistics.median(timed.get("host_ns", [REFERENCE_NS])) / REFERENCE_NS
    predicted = partial(predict, host_factor=host_factor, card=_card(records))
    forecasts = _each(predicted, [cases[_key(record)] for record in records])
    estimated = json.loads(estimates.read_text()) if estimates is not None else {}
    return [
        Outcome(
            name=record["family"],
            mode=_mode_text(record["mode"]),
            kernel_ns=_kernel_ns(record),
            step_ns=float(np.median(timed.get("step_ns", {}).get(" ".join(_key(record)), record["step_ns"]))),
            predicted_kernel_ns=forecast.kernel_ns.median if forecast is not None else None,
            predicted_step_ns=forecast.step_ns.median if forecast is not None else None,
            estimated_ns=estimated.get(" ".join(_key(record))),
        )
        for record, forecast in zip(records, forecasts, strict=True)
    ]


def write_estimates(folder: Path, out: Path) -> None:
    """Write the kernel time of each case of `folder` by torch's RuntimeEstimator in ns; null where it fails."""
    cases = cases_of(folder)
    times = {" ".join(case.key): ns for case, ns in zip(cases, _each(estimate, cases), strict=True)}
    out.write_text(json.dumps(times, indent=1))
    print(f"{len(times)} estimates in {out}")


def _each(function: Callable[[Case], T | None], cases: Sequence[Case]) -> list[T | None]:
    """`function` of each case, in processes; None for a case that fails, with a line on the terminal."""
    results: dict[int, T | None] = {}
    with ProcessPoolExecutor(PARSERS, get_context("spawn")) as pool:
        futures = {pool.submit(function, case): number for number, case in enumerate(cases)}
        for future in as_completed(futures):
            error = future.exception()
            if error is not None:
                case = " ".join(cases[futures[future]].key)
                print(f"failed: {case}: {error!r:.160}", flush=True)
            results[futures[future]] = future.result() if error is None else None
    return [results[number] for number in range(len(cases))]


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def _key(record: dict[str, Any]) -> tuple[str, ...]:
    return (record["family"], *(str(value) for value in record["mode"].values()))


def _card(records: Sequence[dict[str, Any]]) -> Device:
    name = records[0]["host"]["device"]
    return next((device for device in devices() if name in device.torch_names), H100)


def _mode_text(mode: dict[str, Any]) -> str:
    return f"{'train' if mode['train'] else 'infer'} {mode['p']}{' channels last' if mode['cl'] else ''}"


def _kernel_ns(record: dict[str, Any]) -> float:
    return float(sum(count * us * 1e3 for _, _, _, count, us, *_ in record["rows"]))


# --- tables


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """The errors of each case and of each mode."""
    for each in outcomes:
        errors = (_error(each.predicted_kernel_ns, each.kernel_ns), _error(each.predicted_step_ns, each.step_ns))
        shown = "".join(f"{100 * error:9.1f}" if error is not None else f"{'-':>9}" for error in errors)
        print(f"{each.name:28}{each.mode:22}{each.kernel_ns / 1e6:10.3f} ms {each.step_ns / 1e6:10.3f} ms{shown}")
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        groups["all"].append(each)
        groups[each.mode].append(each)
    print(f"\n{'mode':24}{'cases':>7}   {'kernels':21}{'step':21}RuntimeEstimator (kernels)")
    for name, members in groups.items():
        columns = (
            [_error(each.predicted_kernel_ns, each.kernel_ns) for each in members],
            [_error(each.predicted_step_ns, each.step_ns) for each in members],
            [_error(each.estimated_ns, each.kernel_ns) for each in members],
        )
        print(f"{name:24}{len(members):7}   {''.join(f'{_summary(column):21}' for column in columns)}")


def _error(predicted: float | None, measured: float) -> float | None:
    return predicted / measured - 1 if predicted is not None and measured else None


def _summary(errors: Sequence[float | None]) -> str:
    """Median and ninth decile of the absolute errors in percent, and how many failed."""
    sizes = [abs(error) for error in errors if error is not None]
    failed = f", {len(errors) - len(sizes)} failed" if len(sizes) < len(errors) else ""
    return f"{100 * np.median(sizes):.1f} / {100 * np.quantile(sizes, 0.9):.1f}{failed}" if sizes else "-"


def print_families(calls: Sequence[Call], table: PriceTable, peaks: Peaks | None) -> None:
    """The error of the price of each family of ops on a card with these `peaks`, from the recorded calls."""
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    prices = table.prices([call.work for call in calls], peaks)
    for call in calls:
        if call.ns:
            times[call.work.family].append((call.calls * call.ns, call.calls * prices[call.work].ns))
    total = sum(measured for pairs in times.values() for measured, _ in pairs)
    print(f"\n{'family of ops':24}{'calls':>8}{'share %':>9}{'median error %':>16}{'bias %':>8}")
    for name, pairs in times.items():
        measured, predicted = np.array(pairs).T
        error, bias = np.median(np.abs(predicted / measured - 1)), predicted.sum() / measured.sum() - 1
        print(f"{name:24}{len(pairs):8}{100 * measured.sum() / total:9.1f}{100 * error:16.1f}{100 * bias:8.1f}")


# --- random changes


class ChangedDraw(Draw):
    """The choices of another draw of the same seed, except for one: that at `place`, which `changes` makes."""

    place: int = 0
    made: int = 0
    changes: Random

    def choice(self, seq: Any) -> Any:
        """One of `seq`."""
        value = super().choice(seq)
        self.made += 1
        others = [each for each in seq if each != value] if self.made == self.place else []
        return self.changes.choice(others) if others else value


def pair_of(number: int) -> tuple[str, ChangedDraw, Mode]:
    """Family, choices and mode of a network. An odd number is a changed copy of the network before it."""
    pair, is_changed = divmod(number, 2)
    families = [name for name in FAMILIES if name not in SINGLE_OPS]
    family, changes = families[pair % len(families)], Random(pair)
    draw = ChangedDraw(f"change/{family}/{pair}")
    mode = Mode.drawn(Draw(f"mode/{pair}"))
    if is_changed and changes.random() < 0.3:
        mode = _changed_mode(mode, changes)
    elif is_changed:
        draw.changes, draw.place = changes, changes.randint(1, _choices(family, f"change/{family}/{pair}", mode))
    return family, draw, mode


def _changed_mode(mode: Mode, changes: Random) -> Mode:
    others = [precision for precision in ("fp32", "tf32", "bf16") if precision != mode.p]
    if changes.random() < 0.5:
        return Mode(mode.p, not mode.cl, mode.train, mode.opt)
    return Mode(changes.choice(others), mode.cl, mode.train, mode.opt)


def _choices(family: str, seed: str, mode: Mode) -> int:
    """How many choices a network of this seed makes."""
    draw = ChangedDraw(seed)
    build_step(family, draw, mode, "meta")
    return max(draw.made, 1)


def record_pair_member(device: str, folder: Path, number: int) -> None:
    """Record one network of a pair."""
    family, draw, mode = pair_of(number)
    torch.manual_seed(number)
    record_step(family, mode, lambda: build_step(family, draw, mode, device), device, folder, number)


def ratios(measured: Path, table: PriceTable) -> Iterator[tuple[str, float, float]]:
    """Family, measured and predicted ratio of the kernel times of each pair of which both networks were recorded."""
    steps, calls = read_recordings([measured])
    numbers = [record["seed"] for record in _lines(measured)]
    predicted: dict[int, float] = defaultdict(float)
    prices = table.prices([call.work for call in calls])
    for call in calls:
        predicted[call.step] += call.calls * prices[call.work].ns
    place = {number: row for row, number in enumerate(numbers)}
    for number in sorted(place):
        before, after = place[number], place.get(number + 1)
        if number % 2 or after is None or not steps[before].kernel_ns or not steps[after].kernel_ns:
            continue
        ratio = steps[after].kernel_ns / steps[before].kernel_ns
        yield steps[before].family, ratio, predicted[after] / predicted[before]


def print_ratios(pairs: Sequence[tuple[str, float, float]]) -> None:
    """How often the sign of a visible change and the ratio of two times are right."""
    visible = [(measured, predicted) for _, measured, predicted in pairs if abs(measured - 1) > VISIBLE_CHANGE]
    for family, measured, predicted in pairs:
        print(f"{family:16}{measured:9.3f}{predicted:9.3f}")
    signs = sum((measured > 1) == (predicted > 1) for measured, predicted in visible)
    close = sum(abs(math.log(predicted / measured)) < math.log(1.1) for _, measured, predicted in pairs)
    print(f"{len(pairs)} pairs; sign right in {signs} of {len(visible)} beyond 5 %; ratio within 10 % in {close}")


# --- commands


def main() -> None:
    """Measure or compare."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("command", choices=("measure", "steps", "estimate", "compare", "changes", "ratios"))
    line.add_argument("folder", type=Path, nargs="?", help="of networks, for measure, steps, estimate and compare")
    line.add_argument("--out", type=Path, default=Path("measured.jsonl.gz"), metavar="FILE")
    line.add_argument("--measured", type=Path, default=Path("measured.jsonl.gz"), metavar="FILE")
    line.add_argument("--steps", type=Path, metavar="FILE", help="of steps, for compare")
    line.add_argument("--estimates", type=Path, metavar="FILE", help="for compare")
    line.add_argument("--seconds", type=float, default=MEASURING_SECONDS, help="start no network after this time")
    line.add_argument("--first", type=int, default=0, metavar="N", help="the first case or network of changes")
    line.add_argument("--pairs", type=int, default=200, help="of changes (default: 200)")
    line.add_argument("--device", default="cuda", choices=("cpu", "cuda"), help="cpu: a test without kernels")
    options = line.parse_args()
    if options.command in ("measure", "steps", "estimate", "compare") and options.folder is None:
        line.error(f"{options.command} needs a folder of networks")
    if options.command == "steps":
        write_step_times(options.folder, options.out, options.seconds, options.device)
        return
    if options.command == "estimate":
        write_estimates(options.folder, options.out)
        return
    if options.command in ("measure", "changes"):
        _measure(options)
        return
    priced = prices_for(H100)
    assert priced is not None
    if options.command == "ratios":
        print_ratios(list(ratios(options.measured, priced[0])))
        return
    print_outcomes(compare(options.folder, options.measured, options.steps, options.estimates))
    card = _card(_lines(options.measured))
    print_families(read_recordings([options.measured])[1], priced[0], card.peaks)


def _measure(options: argparse.Namespace) -> None:
    if options.command == "measure":
        cases = cases_of(options.folder)
        last, recorder = len(cases) - 1, partial(_case_recorder, cases, options.device)
    else:
        last, recorder = 2 * options.pairs - 1, partial(_pair_recorder, options.device)
    lines, following = record_all(recorder, (options.first, last), options.seconds, options.device, options.out)
    print(f"{lines} lines in {options.out}; " + (f"continue with --first {following}" if following <= last else "done"))


def _case_recorder(cases: list[Case], device: str, folder: Path) -> Callable[[int], None]:
    return partial(record_case, cases, device, folder)


def _pair_recorder(device: str, folder: Path) -> Callable[[int], None]:
    return partial(record_pair_member, device, folder)


if __name__ == "__main__":
    main()
