"""What answers at once must not import what is slow, and a saved report must open where there is no torch."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sample_reports import transformer, v0_cuda

from profiler_kit.command_lines import install_command
from profiler_kit.errors import TARGET_FAILED
from profiler_kit.pipeline.packages import PACKAGES, missing_package
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.serde import dumps

TRACES = Path(__file__).resolve().parents[1] / "fixtures" / "traces"

REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

REFUSED = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Refuse())
"""


def without(modules: str, code: str, *argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`code` run in a Python where `modules` cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", REFUSE + code, modules, *argv], capture_output=True, text=True, cwd=cwd
    )


def test_help_version_and_usage_errors_import_nothing_slow(tmp_path: Path) -> None:
    code = """
import profiler_kit
dir(profiler_kit), profiler_kit.__version__
from profiler_kit.cli import main
lines = ["--help", "--version", "analyze --help", "count --help", "check --help", "compare --help", "show --help",
         "env --help", "inspect --help"]
assert [main(line.split()) for line in lines] == [0] * len(lines)
wrong = ["", "frobnicate", "count", "count net.py --batch 0", "count net.py -f pdf", "analyze net.py --budget soon",
         "count net.py -o a.pdf", "analyze net.py --configs ,", "count net.py --sort x", "count net.py --hardware z80"]
assert [main(line.split()) for line in wrong] == [2] * len(wrong)
assert not REFUSED & set(sys.modules)
"""
    done = without("torch,pandas,numpy,tabulate,rich", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: profiler-kit") == 8
    assert done.stderr.count("error: ") == 10
    assert "Traceback" not in done.stderr


def test_the_list_of_verbs_loads_no_records_and_no_formats(tmp_path: Path) -> None:
    """What a verb's own options need is loaded for that verb."""
    code = """
from profiler_kit.cli import main
assert main(["--help"]) == 0
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("profiler_kit.")}
print(sorted(rooms - {"_version", "_family", "cli", "command_lines", "errors", "units"}), file=sys.stderr)
records = sorted(name for name in sys.modules if name.startswith("profiler_kit.records."))
assert records == ["profiler_kit.records.inspect_options"]
"""
    done = without("torch,pandas,numpy,tabulate,rich", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "['records']\n"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "report.json").write_text(dumps(with_verdict(v0_cuda())))
    return folder


def test_a_saved_report_opens_without_torch(report: Path) -> None:
    code = """
from profiler_kit.cli import main
for line in ("report.json", ". -f markdown", ". -f json", ". -f csv", ". --detail --sort params --run no-tf32 --depth 1"):
    assert main(["show", *line.split()]) == 0, line
assert main(["compare", ".", "report.json"]) == 0
assert main(["show", ".", "-o", "again.md", "-o", "again.json", "-o", "layers.csv", "-f", "csv"]) == 0
assert not REFUSED & set(sys.modules)
"""
    done = without("torch,pandas,numpy", code, cwd=report)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (report / "again.json").read_text() == (report / "report.json").read_text()
    assert "no-tf32, per step" in done.stdout
    assert {path.name for path in report.iterdir()} == {"report.json", "again.md", "again.json", "layers.csv"}


def test_env_answers_without_torch(tmp_path: Path) -> None:
    code = """
from profiler_kit.cli import main
assert main(["env", "-q"]) == 0
assert main(["env", "-q", "-f", "json", "-o", "env.md"]) == 0
assert not REFUSED & set(sys.modules)
"""
    done = without("torch,pandas,numpy", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torch is not installed" in done.stdout
    assert '"ceilings": null' in done.stdout


INSTALL = install_command("profiler-kit[torch]")


def test_what_needs_no_torch_works_without(report: Path, tmp_path: Path) -> None:
    trace = TRACES / "train.cuda.json.gz"
    code = f"""
from profiler_kit.cli import main
assert main(["inspect", {str(trace)!r}, "-q", "-o", "saved.json"]) == 0
assert main(["inspect", {str(trace)!r}, "-q", "--annotate", "a.json.gz", "--to", "csv", "-f", "markdown"]) == 0
assert main(["inspect", {str(trace)!r}, "-q", "--to", "sqlite", "-f", "json"]) == 0
assert main(["show", "saved.json", "--by", "idle"]) == 0
assert main(["compare", {str(trace)!r}, "saved.json", "-q"]) == 0
assert not REFUSED & set(sys.modules)
"""
    done = without("torch,pandas,pyarrow,fvcore", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        "saved.json", "a.json.gz", "train.cuda.events.csv", "train.cuda.events.sqlite",
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["count net.py", "analyze net.py", "compare net.py net.py", "compare net.py net.py --static"],
)
def test_commands_that_need_torch_show_how_to_install_it(line: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\n")
    done = without(
        "torch", f"from profiler_kit.cli import main\nsys.exit(main({[*line.split(), '-q']!r}))", cwd=tmp_path
    )
    assert done.returncode == TARGET_FAILED
    message, _, hint = done.stderr.partition("\nhint: ")
    assert message.startswith("error: ")
    assert "torch, which is not installed" in message
    assert hint == f"{INSTALL}\n"
    assert done.stdout == ""


def test_python_is_told_how_to_install_torch(tmp_path: Path) -> None:
    code = """
import profiler_kit
from profiler_kit.errors import KitError
for verb in (profiler_kit.count, profiler_kit.analyze):
    try:
        verb("net.py")
    except KitError as error:
        print(error)
assert profiler_kit.env().environment is None
"""
    done = without("torch", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(INSTALL) == 2


def test_the_list_of_packages_has_all_that_can_be_installed() -> None:
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    required = [line for line in (*project["dependencies"], *extras) if "python_version" not in line]
    names = {re.split(r"[><=\[]", line)[0] for line in required} - {"profiler-kit"}
    assert names - {name for name, _ in PACKAGES} == set()


def test_an_ascii_terminal_gets_a_tree_in_ascii(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(dumps(transformer()))
    done = subprocess.run(
        [sys.executable, "-m", "profiler_kit", "show", str(tmp_path)],
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\n` blocks.0-11 x12 " in done.stdout
    assert b"\\u" not in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error(report: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "profiler_kit", "show", str(report), "-f", "json"],
            stdout=write, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("package", ["msgspec", "numpy", "rich", "tabulate"])
def test_a_missing_package_is_one_message_with_the_install_command(package: str, tmp_path: Path) -> None:
    trace = TRACES / "checkpoint.cuda.json.gz"
    form = "terminal" if package == "rich" else "markdown"
    code = f"from profiler_kit.cli import main\nsys.exit(main(['inspect', {str(trace)!r}, '-q', '-f', {form!r}]))"
    done = without(package, code, cwd=tmp_path)
    assert done.returncode == TARGET_FAILED
    (purpose,) = (purpose for name, purpose in PACKAGES if name == package)
    assert done.stderr == (
        f"error: the package {package} is not installed; profiler_kit needs it for {purpose}\nhint: {install_command(package)}\n"
    )


def test_only_packages_of_the_tool_are_missing_packages() -> None:
    assert missing_package(ModuleNotFoundError("no", name="users_module")) is None
    assert missing_package(ModuleNotFoundError("no", name="numpy.missing_part")) is None
    assert missing_package(ImportError("cannot import name", name="numpy")) is None
    error = missing_package(ModuleNotFoundError("no", name="torch"))
    assert error is not None
    assert error.hint == INSTALL
