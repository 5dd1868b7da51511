"""Wrong input on the command line: exit status, the names and numbers in the message, and a useful hint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_files import FILES, call, net

from profiler_kit import counting
from profiler_kit.errors import BUDGET_BROKEN, NOT_COMPARABLE, TARGET_FAILED, USAGE

torch = pytest.importorskip("torch")


@dataclass(frozen=True)
class Bad:
    """A command line, its exit status, and parts of the message and the hint."""

    line: str
    code: int
    message: str
    hint: str


def target(line: str, message: str, hint: str) -> Bad:
    return Bad(line, TARGET_FAILED, message, hint)


def usage(line: str, message: str, hint: str) -> Bad:
    return Bad(line, USAGE, message, hint)


ROWS = [
    # the target
    target("count nett.py", "nett.py: ", "net.py"),
    target("count nets", "nets: ", "profiler-kit count nets/inner.py"),
    target("count weights.pt", "weights.pt: ", "the file that defines the model"),
    target("count syntax.py", "syntax.py:2: syntax error", "syntax.py"),
    target("count package.py", "package.py:1: import failed: No module named 'no_such_package_at_all'", "pip install"),
    target("count raises.py --no-slice", "raises.py:10: import failed: ZeroDivisionError", "raises.py"),
    target("count exits.py --no-slice", "exits.py:11: ", "profiler-kit count exits.py"),
    target("count two.py:Encode", "no 'Encode' in this file; did you mean Encoder or Decoder?", "two.py:Encoder"),
    target("analyze two.py:Encode", "no 'Encode'", "profiler-kit analyze two.py:Encoder"),
    target("compare two.py:Encode net.py", "no 'Encode'", "profiler-kit compare two.py:Encoder net.py"),
    target("compare net.py two.py:Encode --static", "no 'Encode'", "profiler-kit compare net.py two.py:Encoder --static"),
    target("check two.py:Encode --base base.json", "no 'Encode'", "profiler-kit check two.py:Encoder --base base.json"),
    target("count tools.py", "tools.py: no model", "profiler-kit count"),
    target("count net.py:Nett", "'Nett'", "net.py:Net"),
    target("count needy.py", "needy.py:3: Net() needs table, rule", "define a function get_model()"),
    target("count choice.py:Net", "choice.py:3: Net() needs table, rule", "run profiler-kit count choice.py:Plain, or define"),
    target("count none.py:build", "none.py:10: build() returned None", "return the module, or (module, inputs)"),
    target("count quits.py", "quits.py:8: the model called sys.exit(0)", "exception"),
    target("analyze quits.py", "quits.py:8: the model called sys.exit(0)", "exception"),
    target("count greedy.py", "greedy.py:8: ", "meta"),
    target("count row_loss.py", "(2,)", "return loss.mean() or loss.sum()"),
    target("analyze empty_loader.py", "empty_loader.py:9: train_loader", "-i"),
    usage("count resnet", "file.py", "resnet:Net"),
    usage("count net.py --kw widht=3", "'widht'", "width"),
    usage("count net.py --kw width=false", "'false'", "--kw width=False"),
    usage("count net.py --kw width", "--kw width: ", "--kw width=64"),
    # inputs
    target(
        "count chain.py -i 1,3,64,64",
        "chain.py:8: shape mismatch in features.2 (Linear): got 1x8192, needs 1x2048",
        "profiler-kit count chain.py -i 1,3,32,32",
    ),
    target("count masked.py -i 8,16:int64", "masked.py:3: forward(ids, mask): got 1 of 2 inputs", "-i mask=8,16:bool"),
    target("count masked.py -i 8,16 -i 8,16", "table (Embedding) needs integers, but 'ids' is float32", "int64[0:100]"),
    target("check guessed.py --base base.json", "no input shape: forward(x) needs 1 input", "-i 1,4"),
    usage("count net.py -i 8x3", "-i 8x3: '8x3'", "[name=]DIMS[:dtype][[lo:hi]]"),
    usage("count net.py -i 99999999999999999999,4", "-i 99999999999999999999,4: ", "-i 8,3,256,256"),
    usage("count net.py -i 4000000000,4000000000", "-i 4000000000,4000000000: ", "-i 8,3,256,256"),
    usage("count net.py --batch 99999999999999999999", "2147483647", "--batch 8"),
    usage("count net.py --seed 99999999999999999999", "--seed 99999999999999999999: ", "--seed 0"),
    usage("count net.py --seed -1", "--seed -1: ", "--seed 0"),
    target("count nul.py", "source code string cannot contain null bytes", "nul.py"),
    target("count talks.py", "talks.py:8: forward of Net raised ValueError: xxx", "fix it, or pass inputs other than -i 2,4"),
    target("show huge.json", "huge.json: ", ""),
    usage("count net.py -i 8,4:float33", "unknown dtype 'float33'", "float32"),
    usage("count net.py -i 2,4 -i 4", "forward(x) takes 1 input, got 2", "profiler-kit count net.py -i 2,4"),
    # flags
    usage("", "the following arguments are required: COMMAND", "profiler-kit --help"),
    usage("profile net.py", "invalid choice: 'profile'", "profiler-kit --help"),
    usage("count", "the following arguments are required: TARGET", "profiler-kit count --help"),
    usage("count net.py --sped", "unrecognized arguments: --sped", "--help"),
    usage("count net.py --mode training", "invalid choice: 'training'", "profiler-kit count --help"),
    usage("count net.py --dtype int8", "unknown --dtype 'int8'", "float32"),
    usage("count net.py --loss hinge", "unknown --loss 'hinge'", "cross_entropy, nll"),
    usage("count net.py --optimizer lion", "unknown --optimizer 'lion'", "sgd"),
    usage("count net.py --batch 0", "argument --batch: '0'", "--help"),
    usage("count net.py --top 0", "argument --top: '0'", "--help"),
    usage("count net.py --top -3", "argument --top: '-3'", "--help"),
    usage("count net.py --depth x", "argument --depth: 'x'", "--help"),
    usage("count net.py --sort speed", "'speed'", "model, "),
    usage("count net.py --by op --sort params", "'params'", "model, bytes, "),
    usage("count net.py --by kernel", "argument --by: invalid choice: 'kernel'", "--help"),
    usage("count net.py --hardware z80", "'z80'", "h100, "),
    usage("count net.py --hardware rtx", "'rtx'", "rtx4090, rtx3090"),
    usage("count net.py --run default", "'default'", ""),
    usage("count net.py --seed x", "argument --seed: invalid int value: 'x'", "--help"),
    usage("analyze net.py --budget soon", "argument --budget: ", "profiler-kit analyze --help"),
    usage("analyze net.py --budget 0", "argument --budget: must be greater than zero", "--help"),
    usage("analyze net.py --timeout -1s", "argument --timeout: ", "--help"),
    usage("analyze net.py --steps 0", "argument --steps: '0'", "--help"),
    usage("analyze net.py --configs default,fast", "'fast'", "default, benchmark"),
    usage("analyze net.py --configs ,", "--configs: ','", "--help"),
    usage("analyze net.py --device tpu", "--device tpu: ", "cpu, cuda"),
    usage("analyze net.py --device meta", "--device meta: ", "cpu, cuda"),
    usage("analyze net.py --device cpu:3", "--device cpu:3: ", "--device cpu"),
    usage("analyze net.py --device cuda:99", "--device cuda:99: ", "--device"),
    # output
    usage("count net.py -f pdf", "'pdf'", "json"),
    usage("count net.py -o report.pdf", "report.pdf: ", ".json"),
    usage("count net.py -o nowhere/a.md", "nowhere: ", "-o"),
    usage("analyze net.py --out file", "file: ", "--out"),
    usage("analyze net.py --out file/deep/er", "file/deep/er: ", "--out"),
    # saved reports
    target("show gone.json", "gone.json: ", "report.json"),
    target("show nets", "report.json: ", "report.json"),
    target("show not_json.json", "not_json.json: ", "report.json"),
    target("show other.json", "other.json: ", "report.json"),
    target("show newer.json", "99", "upgrade profiler_kit"),
    target("show cut.json", "cut.json: ", "report.json"),
    target("show missing.json", "'created'", ""),
    target("show wrong_type.json", "wrong_type.json: tool: ", ""),
    usage("show base.json --run default", "'default'", ""),
    # comparing and gating
    target("compare base.json gone.json", "gone.json: ", "report.json"),
    target("compare base.json nett.py --static", "nett.py: ", "net.py"),
    target("compare base.json cut.json", "cut.json: ", "report.json"),
    usage("compare base.json", "the following arguments are required: B", "profiler-kit compare --help"),
    usage("check net.py", "git repository", "--base report.json"),
    usage("check net.py --base main", "git repository", "--base report.json"),
    usage("check net.py --base base.json --budget flops", "METRIC=LIMIT", "--budget flops=+10%"),
    usage("check net.py --base base.json --budget flops=10%", "'10%'", "+10%"),
    usage("check net.py --base base.json --budget flips=+1%", "'flips'", "flops"),
    usage("check net.py --base base.json --budget step_tims=+1%", "step_tims", "metric"),
    target("check net.py --base gone.json --budget flops=+1%", "gone.json: ", "report.json"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.line or "nothing")
def test_bad_input(row: Bad, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = sorted(path for path in here.rglob("*") if "__pycache__" not in path.parts)
    ended = call(row.line.split(), capfd)
    error = ended.err[ended.err.index("error: ") :] if "error: " in ended.err else ended.err
    assert ended.code == row.code, ended.err
    assert row.message in error.partition("\nhint: ")[0], error
    assert row.hint in error.partition("\nhint: ")[2], error
    # a side of a check that fails is a verdict, in every output; an unreadable base is an error
    if row.line.startswith("check ") and row.code == TARGET_FAILED and "gone.json" not in row.line:
        assert "could not be judged" in ended.out
    else:
        assert ended.out == ""
    assert "Traceback" not in ended.err
    assert sorted(path for path in here.rglob("*") if "__pycache__" not in path.parts) == before


def test_the_table_is_one() -> None:
    assert len(ROWS) >= 40
    assert len({row.line for row in ROWS}) == len(ROWS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_is_refused_where_there_is_none(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = call(["analyze", "net.py", "--device", "cuda"], capfd)
    assert (ended.code, ended.out) == (USAGE, "")
    assert ended.err.startswith("error: --device cuda: ")
    assert "--device cpu" in ended.err


# verdicts, which are not errors: the result is on stdout
VERDICTS = {
    "check wide.py --base base.json --budget flops=+10%": (BUDGET_BROKEN, "FLOPs"),
    "check net.py --base base.json --budget flops=+10%": (0, "FLOPs"),
    "check net.py --base base.json": (0, "budget"),
    "check net.py --base base.json -i 3,4 --budget flops=+900%": (NOT_COMPARABLE, "inputs"),
    "check net.py --base guess.json --budget flops=+10%": (NOT_COMPARABLE, "guessed"),
    "compare base.json wide.json": (0, "Parameters"),
    "compare net.py wide.py --static": (0, "Parameters"),
}


@pytest.mark.parametrize("line", VERDICTS)
def test_verdicts(line: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if "guess.json" in line:
        assert call(["count", "guessed.py", "-q", "-o", "guess.json"], capfd).code == 0
    code, text = VERDICTS[line]
    ended = call(line.split(), capfd)
    assert ended.code == code, ended.err
    assert text in ended.out
    assert "Traceback" not in ended.err
    assert "error: " not in ended.err


class TestCheckInGit:
    """The gate in a repository of its own; only what needs no count of the base."""

    @pytest.fixture
    def repo(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        import subprocess

        for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
            monkeypatch.delenv(name, raising=False)
        (tmp_path / "old.py").write_text(net())
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false", "-C", str(tmp_path)]
        for words in (["init", "-q", "-b", "main"], ["add", "old.py"], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *words], check=True, capture_output=True)
        (tmp_path / "new.py").write_text(FILES["wide.py"])
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def test_unknown_revision(self, repo: Path, capfd: pytest.CaptureFixture[str]) -> None:
        ended = call(["check", "old.py", "--base", "no-such-branch"], capfd)
        assert (ended.code, ended.out) == (USAGE, "")
        assert "unknown revision 'no-such-branch'" in ended.err
        assert "name a branch" in ended.err

    @pytest.mark.parametrize("sides", [("old.py", "nosuch..main"), ("nosuch..main", "old.py")])
    def test_unknown_revision_on_either_side(
        self, sides: tuple[str, str], repo: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        ended = call(["compare", *sides, "--static"], capfd)
        assert (ended.code, ended.out) == (USAGE, "")
        assert "unknown revision 'nosuch'" in ended.err

    @pytest.mark.parametrize(("policy", "code"), [("allow", 0), ("warn", 0), ("error", BUDGET_BROKEN)])
    def test_a_new_target_has_its_own_policy(
        self, policy: str, code: int, repo: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        ended = call(["check", "new.py", "--base", "main", "--new", policy], capfd)
        assert ended.code == code
        assert "new target" in ended.out
        assert "new.py does not exist at the base" in ended.out

    @pytest.mark.parametrize(
        ("budget", "code"),
        [("params=1000", 0), ("params=10", BUDGET_BROKEN), ("params=+10%", 0)],
    )
    def test_absolute_limits_hold_for_a_new_target(
        self, budget: str, code: int, repo: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        ended = call(["check", "new.py", "--base", "main", "--budget", budget], capfd)
        assert ended.code == code
        assert "new.py" in ended.out
        assert "error: " not in ended.err


def test_a_side_that_does_not_run_is_compared_by_its_counts(
    here: Path, capfd: pytest.CaptureFixture[str], measured_by: Callable[[Callable[..., Any]], None]
) -> None:
    from profiler_kit.records.configs import RunConfig
    from profiler_kit.records.runs import ConfigRun, Failure
    from profiler_kit.records.target import TargetSpec

    def crashed(_: TargetSpec, config: RunConfig, **rest: object) -> ConfigRun:
        return ConfigRun(config=config, failure=Failure(kind="crash", message="the process crashed (SIGABRT)"))

    measured_by(crashed)
    ended = call(["compare", "base.json", "wide.py", "--device", "cpu", "-q"], capfd)
    assert ended.code == TARGET_FAILED
    assert "Parameters" in ended.out
    message, _, hint = ended.err.partition("\nhint: ")
    assert message.startswith("error: wide.py: ")
    assert "the process crashed (SIGABRT)" in message
    assert "profiler-kit analyze wide.py" in hint


def test_ctrl_c_on_one_side_ends_the_comparison(
    here: Path, capfd: pytest.CaptureFixture[str], measured_by: Callable[[Callable[..., Any]], None]
) -> None:
    asked: list[str] = []

    def interrupted(spec: object, *_: object, **__: object) -> None:
        asked.append("a side")
        raise KeyboardInterrupt

    measured_by(interrupted)
    ended = call(["compare", "net.py", "wide.py", "--device", "cpu", "-q"], capfd)
    assert (ended.code, ended.out, ended.err) == (130, "", "interrupted\n")
    assert asked == ["a side"]


def test_a_guess_is_announced_even_to_the_quiet(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = call(["count", "guessed.py", "-q", "-f", "json"], capfd)
    assert ended.code == 0
    assert ended.err.startswith("warning: inputs: guessed x=1,4")
    assert "profiler-kit count guessed.py -i 1,4" in ended.err
    assert "guessed" not in call(["count", "net.py"], capfd).err
    shown = call(["count", "guessed.py"], capfd)
    assert (shown.out + shown.err).count("inputs: guessed") == 1


def test_what_the_model_and_its_programs_print_goes_to_stderr(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import json

    ended = call(["count", "raw.py", "-q", "-f", "json"], capfd)
    assert ended.code == 0
    assert json.loads(ended.out)["static"]["params"] == 20
    assert "said" in ended.err
    assert "shouted" in ended.err


def test_a_bug_of_ours_is_no_broken_budget(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = compile(
        "raise AttributeError('oops')", counting.__file__, "exec"
    )  # a line of this package, not of the model

    def broken(*_: object, **options: object) -> None:
        exec(line)

    monkeypatch.setattr("profiler_kit.counting.count_by_conventions", broken)
    ended = call(["check", "net.py", "--base", "base.json"], capfd)
    assert ended.code == TARGET_FAILED
    assert "AttributeError: oops" in ended.err  # the traceback for the bug report
    assert "\nhint: report this bug" in ended.err


def test_files_are_whole_or_absent(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a file is put in place leaves neither a half one nor the temporary one."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "chmod", interrupted)
    before = sorted(here.iterdir())
    ended = call(["count", "net.py", "-o", "layers.csv"], capfd)
    assert ended.code == 130
    assert "interrupted" in ended.err
    assert sorted(here.iterdir()) == before


def test_a_folder_in_the_place_of_a_file_is_refused(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "taken.csv").mkdir(exist_ok=True)
    ended = call(["count", "net.py", "-o", "taken.csv"], capfd)
    assert (ended.code, ended.out) == (USAGE, "")
    assert ended.err.startswith("error: taken.csv: ")
