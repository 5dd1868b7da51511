"""Records the loop of a program that nobody has changed, from the import of torch to the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from profiler_kit.display.records import summary, wrapped
from profiler_kit.integrations.endings import Endings
from profiler_kit.integrations.program import AfterImport, Program
from profiler_kit.integrations.session import LoopOptions, LoopSession, write_report
from profiler_kit.process.children import Claims, followed_processes
from profiler_kit.recording.guard import Guard

if TYPE_CHECKING:
    from torch import nn

    from profiler_kit.pipeline.loop_report import LoopReport
    from profiler_kit.recording.cycles import StepEnds
    from profiler_kit.recording.discovery import Loop, LoopFinder
    from profiler_kit.recording.loop import Recorder
    from profiler_kit.recording.loss_terms import LossWatch
    from profiler_kit.recording.observations import Observations
    from profiler_kit.recording.origins import Origins
    from profiler_kit.records.configs import RunConfig
    from profiler_kit.records.seen import SeenRun

SEED: Final = 0
MAX_EVALUATIONS: Final = 10  # steps that are dropped for one: with more of them, evaluations are part of the steps
_STEP: Final = {
    "optimizer": "A step ends with an optimizer's step.",
    "backward": "No optimizer of torch makes a step here: a step ends with a backward pass.",
    "call": "The program has no optimizer: a step is a call of a model.",
}


_live: WeakSet[ProgramSession] = WeakSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(LoopOptions):
    """What `run` records.

    `at`: the first step that is looked at. `stop`: end the program after the report. `config`: the cuDNN flags; None leaves them
    to the program.
    """

    skip: int | None = None
    at: int = 1
    stop: bool = False
    config: RunConfig | None = None


def run_program(program: Program, options: RunOptions) -> None:
    """Run `program` in this process and write the report on its loop while it runs. What the program raises is raised."""
    claims = Claims(folder=options.out, program=os.getpid())
    watcher = ProgramSession(program, options, claims=claims)
    AfterImport("torch", watcher.watch).install()

    def end_if_stopped() -> None:
        if options.stop and os.getpid() == claims.program and claims.have_ended:
            raise SystemExit(0)

    try:
        with followed_processes(_follow, program, options, claims, after_join=end_if_stopped):
            program.run(at_end=watcher.end)
    finally:
        claims.forget()


def _follow(program: Program, options: RunOptions, claims: Claims) -> Callable[[], None]:
    """Record the loop of this process, which the program has started. Returns what is to be called at its end."""
    watcher = ProgramSession(program, options, claims=claims)
    AfterImport("torch", watcher.watch).install()
    return watcher.end


def run_under(configs: Sequence[RunConfig], program: Program, options: RunOptions) -> int:
    """Run `program` under each of `configs` in a process of its own, and write the report that compares them. Returns 0."""
    from profiler_kit.pipeline.run_configs import run_configs

    settings = {"steps": options.steps, "traced": options.traced, "at": options.at, "skip": options.skip}
    numbers = [word for name, value in settings.items() if value is not None for word in (f"--{name}", str(value))]
    numbers += ["--stacks"] * options.stacks
    words = [*(["-m"] if program.is_module else []), program.name, *program.arguments]

    def command(name: str, folder: Path) -> list[str]:
        return ["run", "--stop", "--quiet", "--configs", name, "--out", str(folder), *numbers, *words]

    result = run_configs(configs, command, options.out, print)
    write_report(result.report, options.out, result.timeline)
    if not options.quiet:
        sys.stderr.write(f"report: {options.out}/report.html\n{summary(result.report)}\n")
    return 0


class ProgramSession(LoopSession):
    """A session around the loop of a program: it starts when the finder has found the loop, and ends steps by itself.

    `is_late`: the program runs already. Where its models are built is then unknown. Without `watches_calls`, only a loop that
    trains is recorded. `claims` are those of the processes of the program, of which this is one.
    """

    def __init__(
        self,
        program: Program,
        options: RunOptions,
        *,
        is_late: bool = False,
        watches_calls: bool = True,
        claims: Claims | None = None,
    ) -> None:
        super().__init__(None, options)
        self._program, self._run_options, self._at, self._stop = program, options, options.at, options.stop
        self._next: ProgramSession | None = None  # after the report on an inference
        self._config = options.config
        self._process, self._stderr = os.getpid(), sys.stderr
        self._claims, self._is_child = claims, claims is not None and claims.program != os.getpid()
        self._has_claim = not self._is_child
        self._finder: LoopFinder | None = None
        self._is_late, self._watches_calls = is_late, watches_calls
        self._origins: Origins | None = None
        self._losses: LossWatch | None = None  # watches the first recorded steps
        self._loop: Loop | None = None
        self._ends: StepEnds[int] | None = None
        self._is_step_over = self._has_evaluation = False
        self._has_other_optimizer = self._has_resumed = self._has_stronger_loop = False
        self._drops_evaluations, self._has_training_mode = True, False
        self._changed_flags: tuple[str, ...] = ()
        self._patches = ExitStack()
        self._endings = Endings(self._end_early)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left in the program."""
        return self._guard.is_closed

    # ---- from the import of torch to the end of the program

    def watch(self) -> None:
        """Look for the loop from now on. Called when the program has imported torch, which a fork may do, too."""
        if os.getpid() != self._process:
            return
        if self._config is not None:
            self._guard.run(self._start_configuration)
        self._guard.run(self._install)

    def watch_with_other_ranks(self, name: str) -> None:
        """As `watch`, from the same optimizer step on in all ranks that have got the request `name`."""
        self._guard.run(self._watch_at_common_step, name)

    def _watch_at_common_step(self, name: str) -> None:
        from profiler_kit.recording.distributed import CommonStart, default_store, distributed_rank, job_size
        from profiler_kit.recording.optimizer_steps import STEPS

        rank, ranks = distributed_rank(), job_size()
        if rank is None or ranks == 1:
            self.watch()
            return
        start = CommonStart(name, default_store(), rank, ranks)

        def begin(_: object) -> None:
            if start.is_due(STEPS.count):
                stop()
                self.watch()

        stop = STEPS.listen(after=self._guard.hook(begin))
        self._patches.callback(stop)

    def _start_configuration(self) -> None:
        from profiler_kit.pipeline.run_configs import apply_flags
        from profiler_kit.user_code.environment import seed_all

        assert self._config is not None
        seed_all(SEED)  # for programs that set no seed: the same numbers under each configuration
        apply_flags(self._config)

    def end(self) -> None:
        """The program has ended: write the report on the steps so far, if it is not written yet."""
        if os.getpid() != self._process:
            return
        if self._next is not None and self._next.is_recording:
            self._next.end()
        if self.is_over:
            return
        is_elsewhere = self._claims is not None and (self._is_child or self._claims.exist)
        if self._recorder is not None:
            self._guard.run(self._finish)
        elif not is_elsewhere:
            self._report_failure(self._unseen())
        self._leave()

    def _end_early(self) -> None:
        """The process ends at once: write the report without waiting for other ranks, which end as well."""
        self._rank_wait_s = 0.0
        self.end()

    def _before_fork(self) -> None:
        self._endings.leave_signal()

    def _after_fork(self) -> None:
        self._endings.handle_signal()

    def _install(self) -> None:
        from profiler_kit.recording.discovery import LoopFinder
        from profiler_kit.recording.origins import Origins

        self._origins = Origins(self._guard)
        if not self._is_late:
            self._origins.watch_construction()
        self._finder = LoopFinder(
            self._begin,
            on_stronger=self._note_stronger,
            guard=self._guard,
            first_step=self._at,
            watches_calls=self._watches_calls,
        )
        self._finder.install()
        _live.add(self)

    def _give_up(self, error: Exception) -> None:
        super()._give_up(error)
        self._leave()

    def _leave(self) -> None:
        """Remove all hooks, and refer to no model any more. Also in forked processes, which are left alone."""
        self._guard.is_closed = True
        removals = [self._endings.stop, self._patches.close]
        removals += [self._losses.stop] if self._losses is not None else []
        removals += [self._recorder.abandon] if self._recorder is not None else []
        removals += [self._origins.stop] if self._origins is not None else []
        removals += [self._finder.remove] if self._finder is not None else []
        for remove in removals:  # an error of one must not keep the others in the program
            Guard(self._note_remainder).run(remove)
        self._recorder = self._finder = self._origins = self._losses = self._loop = self._model = (
            None  # the program may want the memory back
        )

    def _note_remainder(self, error: Exception) -> None:
        self._say(f"some of its hooks stay in the program and do nothing: {type(error).__name__}: {error}")

    # ---- recording

    def _begin(self, loop: Loop) -> None:
        """The loop is found: record it, in this thread."""
        from profiler_kit.pipeline.run_configs import apply_flags
        from profiler_kit.recording.called_models import CalledModels
        from profiler_kit.recording.cycles import StepEnds
        from profiler_kit.recording.loop import inner_model
        from profiler_kit.recording.loss_terms import LossWatch
        from profiler_kit.recording.phases import replaced

        assert self._finder is not None
        assert self._origins is not None
        if not self._is_recorded():
            return
        self._loop = loop
        self._origins.stop()
        single = len(loop.models) == 1
        self._model = loop.models[0] if single else CalledModels(list(map(inner_model, loop.models)), loop.names)
        if self._config is not None:
            self._changed_flags = apply_flags(self._config)
        self.__enter__()
        self._follow_copies(is_needed=loop.has_copies)
        self._losses = LossWatch(list(map(inner_model, loop.models)), self._guard)
        self._losses.start()
        self._endings.watch()
        if loop.method is not None:
            self._patches.enter_context(replaced(loop.models[0], loop.method, self._wrapped_method))
        else:
            self._ends = StepEnds(loop.cycle)
        self._finder.on_event = self._note_event

    def _is_recorded(self) -> bool:
        """Whether this process is the one of its rank that is recorded. Otherwise nothing of ours is left in it."""
        from profiler_kit.recording.distributed import distributed_rank
        from profiler_kit.recording.optimizer_steps import end_at_next_step

        claims = self._claims
        self._has_claim = self._has_claim or claims is None or claims.claim(distributed_rank() or 0)
        if not self._has_claim:
            self._leave()
            if self._stop and claims is not None:
                end_at_next_step(lambda: claims.have_ended)
        return self._has_claim

    def _parts(self) -> tuple[Sequence[nn.Module], Sequence[nn.Module], Sequence[nn.Module]]:
        assert self._loop is not None
        return self._loop.models, self._loop.others, self._loop.direct

    def _new_recorder(self, trace: Path) -> Recorder:
        recorder = super()._new_recorder(trace)
        recorder.watch_steps(self._guard.hook(self._before_work), self._on_call)
        return recorder

    def _note_event(self, key: int) -> None:
        """An event of the loop: the step is over where it was the last one of a cycle. Its logging still belongs to it."""
        self._is_step_over |= self._ends is not None and self._ends.ends(key)
        assert self._finder is not None
        assert self._losses is not None
        self._follow_copies(is_needed=self._finder.has_copies and not self._losses.is_watching)
        assert self._loop is not None
        self._has_other_optimizer |= self._loop.source == "optimizer" and key not in self._loop.cycle

    def _follow_copies(self, *, is_needed: bool) -> None:
        """Record calls of copies of the models from now on. The watch of the losses, which starts later, must be over."""
        if is_needed and self._recorder is not None:
            self._recorder.follow_copies()

    def _wrapped_method(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                self._is_step_over = True

        return call

    def _on_call(self, model: nn.Module, has_gradients: bool) -> bool:
        """The loop calls a model itself: whether it is not evaluated.

        It is evaluated in evaluation mode, without gradients or in a loop that trains in training mode.
        """
        assert self._loop is not None
        if self._loop.source == "call":
            self._note_event(id(model))
            return True
        is_copy = all(model is not m for m in self._loop.models)
        is_training = any(m.training for m in ((model,) if is_copy else self._loop.models))
        self._has_training_mode |= is_training
        is_evaluation = not is_training and (not has_gradients or self._has_training_mode)
        self._has_evaluation |= is_evaluation
        return not is_evaluation

    def _before_work(self) -> None:
        """The loop fetches data or calls a model: a step that is over ends here. A step with an evaluation does not count."""
        assert self._recorder is not None
        is_wrong = self._has_other_optimizer and not self._has_resumed and not self._recorder.has_clocks
        if is_wrong or self._has_stronger_loop:
            self._resume()
            return
        if not self._is_step_over:
            return
        assert self._losses is not None
        self._losses.end_step()
        evaluated_ns = self._recorder.observations.evaluated_ns
        if len(evaluated_ns) == MAX_EVALUATIONS:
            self._drops_evaluations = False
            evaluated_ns.clear()
        is_kept = not self._has_evaluation or not self._drops_evaluations
        self._is_step_over = self._has_evaluation = False
        if self._recorder.end_step(is_kept=is_kept):
            if self._finder is not None and self._finder.other_threads:
                self._stop_watching()
            else:
                is_inference = self._loop is not None and self._loop.source == "call"
                self._finish()
                self._leave()
                if self._is_child and self._claims is not None:
                    self._claims.end()
                if is_inference and not self._stop and not self._is_late:
                    self._watch_for_training()
            if self._stop:
                from profiler_kit.recording.optimizer_steps import end_at_next_step

                end_at_next_step()  # where the program catches what ends it, as with a bare except
                raise SystemExit(0)

    def _note_stronger(self) -> None:
        self._has_stronger_loop = True

    def _resume(self) -> None:
        """Look for the stronger loop, or for one with all optimizers. The steps so far stay, for a program that ends before."""
        assert self._finder is not None
        assert self._losses is not None
        assert self._recorder is not None
        is_new, self._has_stronger_loop = self._has_stronger_loop, False
        self._has_resumed |= not is_new
        self._is_step_over = self._has_evaluation = False
        self._patches.close()
        self._losses.stop()
        self._recorder.stop(times_warmup=True)
        self._finder.resume(is_new=is_new)

    def _watch_for_training(self) -> None:
        """The calls may have been an evaluation before the training, whose report then replaces theirs."""
        self._next = ProgramSession(self._program, self._run_options, is_late=True, watches_calls=False)
        self._next.watch()

    def _stop_watching(self) -> None:
        """Leave the program alone until it ends: counting runs its code and restores its state, which other threads share."""
        assert self._finder is not None
        assert self._origins is not None
        self._patches.close()
        self._finder.remove()
        self._origins.stop()
        self._say("recorded; the report is built when the program ends, because it computes in several threads")

    # ---- the report

    def _finish(self) -> None:
        assert self._recorder is not None
        self._recorder.stop(times_warmup=True)
        observed = self._recorder.observations
        if not observed.steps_ns:
            self._report_failure(self._unseen())
            return
        self._write()

    def _write_report(self) -> None:
        super()._write_report()
        if self.report is None or self._options.quiet:
            return
        self._print(summary(self.report))
        if self.ranks is not None and self.ranks.verdict is not None:
            self._print(wrapped(f"All ranks: {' '.join(self.ranks.verdict.sentences)}"))

    def _new_report(self, models: Sequence[nn.Module], observed: Observations) -> LoopReport:
        from profiler_kit.pipeline.loop_report import loop_report

        assert self._loop is not None
        observed.notes += self._notes(self._loop)
        root = (self._model,) if len(models) > 1 and self._model is not None else models
        result = loop_report(
            root,
            observed,
            convention=self._options.convention,
            program=self._program.name,
            seen=self._seen_run(models, observed),
            losses=self._losses.losses if self._losses is not None else (),
            config=self._config.name if self._config is not None else None,
        )
        names = ", ".join(self._loop.owners) or "no model"
        if len(self._loop.models) == 1:
            return result
        return result._replace(report=replace(result.report, target=replace(result.report.target, name=names)))

    def _seen_run(self, models: Sequence[nn.Module], observed: Observations) -> SeenRun | None:
        """What later loads of the script can learn from this run; None for a module, which is no target."""
        from profiler_kit.pipeline.seen_runs import seen_run
        from profiler_kit.recording.loop import inner_model

        script = self._program.path
        if script is None or self._origins is None:
            return None
        losses = self._losses.losses if self._losses is not None else ()
        return seen_run(
            script, self._program.arguments, list(map(inner_model, models)), observed, self._origins, losses
        )

    def _print(self, text: str) -> None:
        """Print to the stream of the start: the program may redirect its own, or close it."""
        with suppress(OSError, ValueError):
            print(text, file=self._stderr)

    def _notes(self, loop: Loop) -> Iterator[str]:
        yield f"{_STEP[loop.source]} {loop.steps_before} steps were over when the loop was recognized."
        if loop.method is not None:
            yield f"A step is a call of {type(loop.models[0]).__name__}.{loop.method}()."
        if len(loop.cycle) > 1:
            yield f"A step has {len(loop.cycle)} of them, which repeat in the same order."
        if self._changed_flags and self._config is not None:
            flags = ", ".join(self._changed_flags)
            yield f"The program sets {flags}; reset for the configuration {self._config.name}."
        if loop.others:
            others = ", ".join(sorted({type(module).__name__ for module in loop.others}))
            yield f"Further models that the loop calls, without trained parameters: {others}."

    def _unseen(self) -> str:
        """What was seen of a program whose loop was not found."""
        if self._finder is None:
            return (
                "no report: the program ended before all ranks had read the request"
                if self._is_late
                else "no report: the program did not import torch in this process"
            )
        counts = self._finder.counts
        wanted = "a step repeated" if self._at == 1 else f"a step repeated from step {self._at} on (--at)"
        return (
            f"no report: the program ended before {wanted}; seen in this process: {counts['optimizer']} optimizer "
            f"steps, {counts['backward']} backward passes, {counts['call']} calls of models. Programs that it starts are "
            "not watched: start them with torchrun -m profiler_kit run"
        )


def _for_each(action: Callable[[ProgramSession], None]) -> Callable[[], None]:
    def act() -> None:
        for session in list(_live):
            action(session)

    return act


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_for_each(ProgramSession._before_fork),
        after_in_parent=_for_each(ProgramSession._after_fork),
        after_in_child=_for_each(ProgramSession._leave),
    )
