"""The process that compares configurations: ``python -m profiler_kit.worker.screen JOB.json``.

It keeps two of them, each with a model of its own, and lets their steps take turns (A B B A), so that both see the same moments.
The parent requests one comparison after the other. Fresh processes confirm what is chosen.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import torch

from profiler_kit.errors import TargetError
from profiler_kit.loading import Target, example_count, load
from profiler_kit.process.protocol import PREPARED, OnProgress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import Screened, ScreenEnd, ScreenJob, ScreenRequest
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import dumps, loads
from profiler_kit.statistics.differences import compare_turns
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.statistics.trials import MIN_USEFUL_GAIN_PERCENT
from profiler_kit.user_code.process_settings import BACKEND_FLAGS, settings_restored
from profiler_kit.worker import checks, environment, variant
from profiler_kit.worker.entry import serve
from profiler_kit.worker.run import failed_run, first_step_ns, warm_up, with_checks
from profiler_kit.worker.steps import Runner, timed_steps

TURN_NS: Final = 50_000_000
LONG_STEP_NS: Final = 30_000_000  # from here on, a turn is one step, and refilling caches is a negligible part of it
FEWEST_STEPS, MOST_STEPS = 3, 50  # of a turn with shorter steps, the first of which is not timed
LOOKS: Final = (4, 6, 9, 12, 18, 24, 36, 48)  # pairs of turns, after which the comparison may end
WARM_UP_SHARE: Final = 0.2  # of the budget
Result = TypeVar("Result")


def answer_requests(job: ScreenJob, on_progress: OnProgress) -> ScreenEnd:
    """Write the answer to each line on stdin to the job's file, until stdin ends."""
    requests = os.fdopen(os.dup(0), "rb")
    with Path(os.devnull).open("rb") as nothing:  # a model that reads stdin must not read the parent's requests
        os.dup2(nothing.fileno(), 0)
    screen = Screen(job, on_progress)
    with Path(job.answers).open("w", encoding="utf-8") as answers:
        while True:
            on_progress(PREPARED)
            line = requests.readline()
            if not line.strip():
                return ScreenEnd()
            answer = screen.answer(loads(ScreenRequest, line, "the request"))
            answers.write(dumps(answer, indent=None))
            answers.flush()
            if answer.is_over:
                return ScreenEnd()


class Screen:
    """The sides of a screen by the name of their configuration: those of the last request."""

    def __init__(self, job: ScreenJob, on_progress: OnProgress) -> None:
        self._job = job
        self._on_progress = on_progress
        self._template: Target | None = None
        self._sides: dict[str, _Side] = {}
        self._threads: dict[tuple[object, ...], ThreadPoolExecutor] = {}

    def answer(self, request: ScreenRequest) -> Screened:
        """The answer to `request`. What the user's code raises becomes the failure of its run."""
        try:
            return self._compare(request)
        except (Exception, SystemExit) as error:  # noqa: BLE001 the user's code may raise anything; the failure is the result
            self._drop(set())
            # a failed capture leaves torch's random state unusable
            is_over = request.config.setting("cuda_graph") is not None or not _is_usable(self._job.device)
            return Screened(run=failed_run(request.config, error), is_over=is_over)

    def _compare(self, request: ScreenRequest) -> Screened:
        configs = [config for config in (request.base, request.config) if config is not None]
        self._drop({config.name for config in configs})
        sides = [self._side(config, request.budget_s) for config in configs]
        after = sides[-1]
        turns = _take_turns(sides[0], after, request.budget_s, self._on_progress) if request.base is not None else []
        run = after.run([ns for _, steps in turns for ns in steps])
        before_ns, after_ns = _medians(turns)
        if request.checks and (not turns or _is_promising(sides[0], after, before_ns, after_ns)):
            run = after.call(lambda: with_checks(run, after.runner, after.start, self._on_progress))
        return Screened(run=run, before_ns=before_ns, after_ns=after_ns, before_samples=sides[0].samples)

    def _side(self, config: RunConfig, budget_s: float) -> _Side:
        """The side of `config`, which has run its first steps."""
        if config.name not in self._sides:
            self._on_progress(f"{config.name}: first steps")
            target = self._built(config)
            side = _Side(config, target, self._job.device, self._thread(config, target.device))
            side.call(lambda: side.prepare(round(WARM_UP_SHARE * budget_s * 1e9)))
            self._sides[config.name] = side
        return self._sides[config.name]

    def _thread(self, config: RunConfig, device: torch.device) -> ThreadPoolExecutor | None:
        """The thread of all sides with the flags of `config`; None where libraries keep no choices by thread."""
        if not needs_thread(device):
            return None
        key = (
            config.enabled,
            config.benchmark,
            config.deterministic,
            config.allow_tf32,
            config.setting("benchmark_limit"),
        )
        if key not in self._threads:
            self._threads[key] = ThreadPoolExecutor(1, initializer=_stay_in_thread)
        return self._threads[key]

    def _built(self, config: RunConfig) -> Target:
        """The target under `config`, on the device. The user's files are imported once."""
        if self._template is None:
            self._template = load(self._job.spec, device="meta")
            gc.freeze()  # each collection would search torch's objects again, for 0.1 to 0.3 s
        spec = self._template.spec
        changed = variant.apply_to_spec(config, spec)
        options = {
            name: getattr(changed, name) for name in spec.__slots__ if getattr(changed, name) != getattr(spec, name)
        }
        if self._template.rebuild is None:
            raise TargetError("the target can't be built again", where=spec.spec)
        return self._template.rebuild(self._job.device, **options)

    def _drop(self, kept: set[str]) -> None:
        for name in self._sides.keys() - kept:
            self._sides.pop(name).close()
        gc.collect()
        if self._job.device.startswith("cuda"):
            torch.cuda.empty_cache()


class _Side:
    """A configuration with a runner of its own, whose settings apply while it is called.

    On CUDA it runs in `thread`, with backward, which only sides with the same flags of cuDNN share: cuDNN keeps the algorithms of
    each thread, whatever benchmark is by then. A search for algorithms takes seconds, and a later side need not repeat it.
    """

    def __init__(self, config: RunConfig, target: Target, device: str, thread: ThreadPoolExecutor | None) -> None:
        self.config = config
        self.start: checks.State = {}
        self._device = device
        self._others_bytes = torch.cuda.memory_allocated(target.device) if target.device.type == "cuda" else 0
        self._own_bytes = 0
        self._peak_bytes = 0
        self._first_ns = 0
        self._warmup_ns: list[int] = []
        self._thread = thread
        self.runner = self.call(lambda: Runner(target))

    def call(self, work: Callable[[], Result]) -> Result:
        """The result of `work` in the thread and under the settings of this side."""

        def applied() -> Result:
            with _applied(self.config, self._device):
                return work()

        return applied() if self._thread is None else self._thread.submit(applied).result()

    def prepare(self, warm_up_ns: int) -> None:
        """Run the first step and warm up."""
        runner = self.runner
        self.start = checks.seeded_state(runner)
        variant.apply_to_steps(self.config, runner)
        runner.redirect_moves()
        environment.prewarm(runner.device)
        self._first_ns = first_step_ns(runner)
        runner.keep_used_redirection()
        self._warmup_ns = warm_up(runner, self._first_ns, time.perf_counter_ns() + warm_up_ns, _no_progress)
        if runner.cuda:
            self._own_bytes = torch.cuda.memory_allocated(runner.device) - self._others_bytes

    @property
    def step_ns(self) -> int:
        """The shortest step so far."""
        return min(self._warmup_ns)

    @property
    def samples(self) -> int | None:
        """The examples in a step."""
        return example_count(self.runner.target.batch, self.runner.target.model)

    def turn(self, step_ns: int) -> list[int]:
        """The timed steps of one turn, whose number is right for steps of `step_ns`."""
        return self.call(lambda: self._turn(step_ns))

    def _turn(self, step_ns: int) -> list[int]:
        runner = self.runner
        is_long = step_ns >= LONG_STEP_NS
        for _ in range(runner.target.prepared_batches + (not is_long)):
            runner.step()
        runner.synchronize()
        others_bytes = 0
        if runner.cuda:
            others_bytes = torch.cuda.memory_allocated(runner.device) - self._own_bytes
            torch.cuda.reset_peak_memory_stats(runner.device)
        count = 1 if is_long else max(FEWEST_STEPS, min(MOST_STEPS, TURN_NS // max(1, step_ns)))
        steps_ns = timed_steps(runner, count, fewest=1, until_ns=time.perf_counter_ns() + 2 * TURN_NS).steps_ns
        if runner.cuda:
            self._peak_bytes = max(self._peak_bytes, torch.cuda.max_memory_allocated(runner.device) - others_bytes)
        return steps_ns

    def run(self, steps_ns: list[int]) -> ConfigRun:
        """The run with `steps_ns`. The peak is that of this side alone; unknown with memory pools of CUDA graphs."""
        has_peak = self.runner.cuda and steps_ns and not self.runner.has_own_memory_pool
        return ConfigRun(
            config=self.config,
            first_step_ns=self._first_ns,
            warmup_steps=len(self._warmup_ns),
            steps_ns=tuple(steps_ns),
            step_ns=median_interval(steps_ns) if steps_ns else None,
            samples=self.samples,
            peak_allocated_bytes=self._peak_bytes if has_peak else None,
            notes=tuple(self.runner.notes),
        )

    def close(self) -> None:
        """Leave the contexts of the steps. The memory is freed with the last reference to this side."""
        self.runner.lasting.close()
        self.runner.close()


def _take_turns(
    before: _Side, after: _Side, budget_s: float, on_progress: OnProgress
) -> list[tuple[list[int], list[int]]]:
    """The steps of both sides in each pair of turns: until the difference is sure, surely useless, or the budget is used up."""
    turns: list[tuple[list[int], list[int]]] = []
    deadline_ns = time.perf_counter_ns() + round(budget_s * 1e9)
    step_ns = max(before.step_ns, after.step_ns)
    while len(turns) < LOOKS[-1]:
        if len(turns) >= LOOKS[0] and time.perf_counter_ns() > deadline_ns:
            break
        if len(turns) in LOOKS and _is_decided(before, after, turns):
            break
        on_progress(f"{after.config.name}: turn {len(turns) + 1}")
        if len(turns) % 2:
            second, first = after.turn(step_ns), before.turn(step_ns)
        else:
            first, second = before.turn(step_ns), after.turn(step_ns)
        turns.append((first, second))
    return turns


def _is_decided(before: _Side, after: _Side, turns: list[tuple[list[int], list[int]]]) -> bool:
    """Whether the difference is sure, or a useful gain is excluded."""
    difference = compare_turns(*_medians(turns), factor=_factor(before, after))
    return difference.is_sure or difference.low > 1 - MIN_USEFUL_GAIN_PERCENT / 100


def _medians(turns: list[tuple[list[int], list[int]]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The median step of each turn, of both sides."""
    before, after = (tuple(round(statistics.median(pair[side])) for pair in turns) for side in (0, 1))
    return before, after


def _is_promising(before: _Side, after: _Side, before_ns: tuple[int, ...], after_ns: tuple[int, ...]) -> bool:
    """Whether `after` may be accepted, so that its results must be checked."""
    return compare_turns(before_ns, after_ns, factor=_factor(before, after)).outcome == "better"


def _factor(before: _Side, after: _Side) -> float:
    return before.samples / after.samples if before.samples and after.samples else 1.0


@contextlib.contextmanager
def _applied(config: RunConfig, device: str) -> Iterator[None]:
    """The settings of the process under `config`, within the block."""
    mkldnn: Any = torch.backends.mkldnn
    was_enabled = mkldnn.enabled
    with settings_restored(*BACKEND_FLAGS):
        environment.apply_flags(config)
        variant.apply_to_process(config, device)
        try:
            yield
        finally:
            mkldnn.enabled = was_enabled


def needs_thread(device: torch.device) -> bool:
    """Whether libraries of `device` keep choices by thread."""
    return device.type == "cuda"


def _stay_in_thread() -> None:
    """Run backward in the calling thread."""
    torch.autograd.set_multithreading_enabled(False)


def _is_usable(device: str) -> bool:
    """Whether the device still works: an illegal access breaks it for the whole process."""
    if device.startswith("cuda"):
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return False
    return True


def _no_progress(_: str) -> None:
    """Warm-up steps of two sides are not worth a line each."""


if __name__ == "__main__":
    serve(ScreenJob, answer_requests)
