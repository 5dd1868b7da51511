"""--convention, --unit, --strict and --cross-check on the command line: exit status, what is shown, in which format."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_files import HEAD, call, net

from profiler_kit.errors import BUDGET_BROKEN, NOT_COMPARABLE, OK, TARGET_FAILED, USAGE

torch = pytest.importorskip("torch")

CONVENTIONS = ("kit", "torch", "fvcore", "model-flops")

# a network with one op that nobody knows, called twice in one layer and once outside any
UNKNOWN = HEAD + (
    "if not hasattr(torch.ops.cli_conv, 'mix'):\n"
    "    torch.library.define('cli_conv::mix', '(Tensor a) -> Tensor')\n"
    "    torch.library.impl('cli_conv::mix', 'CompositeExplicitAutograd')(lambda a: torch.empty_like(a))\n"
    "class Mix(nn.Module):\n"
    "    def forward(self, x):\n"
    "        return torch.ops.cli_conv.mix(torch.ops.cli_conv.mix(x.detach()))\n"
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.fc, self.mix = nn.Linear(4, 4), Mix()\n"
    "    def forward(self, x):\n"
    "        x = self.fc(x)\n"
    "        return x + self.mix(x) + torch.ops.cli_conv.mix(x.detach())\n"
    "example_inputs = torch.zeros(2, 4)\n"
    "def build():\n"
    "    return Net()\n"
)
REGISTERED = UNKNOWN + (
    "import profiler_kit\n"
    "@profiler_kit.register_formula('cli_conv::mix')\n"
    "def mix(a, *, out):\n"
    "    return 3 * a.shape[0] * a.shape[1]\n"
)


@pytest.fixture
def unknown(here: Path) -> Path:
    (here / "unknown.py").write_text(UNKNOWN)
    (here / "registered.py").write_text(REGISTERED)
    return here


# --convention


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_format_names_the_convention(name: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["count", "net.py", "-q", "--convention", name]
    static = json.loads(call([*line, "-f", "json"], capfd).out)["static"]
    assert static["convention_name"] == name
    rows = list(csv.DictReader(call([*line, "-f", "csv"], capfd).out.splitlines()))
    assert {row["convention"] for row in rows} == {name}
    for form in ("terminal", "markdown"):
        shown = " ".join(call([*line, "-f", form], capfd).out.split())
        sentence = static["convention"].partition(". ")[
            0
        ]  # the terminal shows the rest of the default one with --detail
        assert " ".join(sentence.split())[:60] in shown.replace("\\", "")
        assert (f"Convention {name}." in shown.replace("\\", "")) == (name != "kit")


def test_a_saved_report_shows_its_convention_again(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["count", "net.py", "-q", "--convention", "torch", "-o", "by_torch.json"], capfd).code == OK
    assert "Convention torch." in call(["show", "by_torch.json"], capfd).out


def test_an_unknown_convention_is_a_usage_error(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = call(["count", "net.py", "--convention", "mlperf"], capfd)
    assert ended.code == USAGE
    assert "mlperf" in ended.err
    assert "kit, fvcore, model-flops, torch" in ended.err
    assert ended.out == ""


@pytest.mark.parametrize("form", ["terminal", "json"])
def test_reports_by_different_conventions_do_not_compare(
    form: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(["count", "net.py", "-q", "--convention", "torch", "-o", "by_torch.json"], capfd).code == OK
    ended = call(["compare", "base.json", "by_torch.json", "-f", form], capfd)
    assert ended.code == NOT_COMPARABLE
    assert "by the convention kit" in ended.err
    assert "the same --convention" in ended.err
    assert ended.out == ""


def test_two_targets_compare_by_the_convention_asked_for(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["compare", "net.py", "wide.py", "--static", "-q", "--convention", "fvcore"]
    data = json.loads(call([*line, "-f", "json"], capfd).out)
    assert data["convention"] == "fvcore"
    flops = next(row for row in data["metrics"] if row["metric"] == "flops")
    assert (flops["a"], flops["b"]) == (2 * 2 * 4 * 4, 2 * 2 * 4 * 8)
    assert "Work is counted by the convention fvcore." in " ".join(call(line, capfd).out.split())


def test_check_counts_both_sides_by_the_convention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(net())
    for words in (
        ["init", "-q"],
        ["add", "net.py"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "one"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "net.py").write_text(net().replace("width=4", "width=8"))
    monkeypatch.chdir(tmp_path)
    ended = call(
        [
            "check",
            "net.py",
            "--base",
            "HEAD",
            "--convention",
            "model-flops",
            "--budget",
            "flops=+10%",
            "-q",
            "-f",
            "json",
        ],
        capfd,
    )
    assert ended.code == BUDGET_BROKEN, ended.err
    data = json.loads(ended.out)
    (row,) = data["budgets"]
    assert (row["base"], row["head"]) == (3 * 2 * 2 * 4 * 4, 3 * 2 * 2 * 4 * 8)
    assert data["comparison"]["convention"] == "model-flops"


def test_a_base_by_another_convention_cannot_be_judged(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["check", "net.py", "--base", "base.json", "--convention", "torch", "-q"]
    ended = call([*line, "--budget", "flops=+10%", "--budget", "params=+10%"], capfd)
    assert ended.code == NOT_COMPARABLE
    assert "counted by the conventions kit and torch" in " ".join(ended.out.split())
    assert call([*line, "--budget", "params=+10%"], capfd).code == OK  # parameters are the same by all


# --unit


def test_in_macs_no_column_is_in_flops(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = call(["count", "net.py", "-q", "--unit", "mac", "-f", "markdown"], capfd)
    heads = [line for line in ended.out.splitlines() if line.startswith("|") and "MACs fwd" in line]
    assert len(heads) == 2  # cost, layers
    assert "FLOPs fwd" not in ended.out
    assert "FLOPs per step" not in ended.out
    assert "64 MACs per step" in ended.out  # forward 32, and as many for the weight
    both = call(["count", "net.py", "-q", "--unit", "mac", "-f", "csv"], capfd).out.splitlines()[0].split(",")
    assert {"macs", "flops", "macs_forward", "flops_forward"} <= set(both)


def test_a_saved_report_can_be_shown_in_macs(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shown = call(["show", "base.json", "--unit", "mac"], capfd)
    assert shown.code == OK
    assert "64 MACs per step" in shown.out
    assert call(["show", "base.json", "--unit", "byte"], capfd).code == USAGE


# --strict


def test_strict_names_op_calls_paths_and_the_way_out(unknown: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["count", "unknown.py:build", "-q"], capfd).code == OK
    ended = call(["count", "unknown.py:build", "-q", "--strict", "-f", "json"], capfd)
    assert ended.code == BUDGET_BROKEN
    assert json.loads(ended.out)["static"]["uncounted"][0]["op"] == "cli_conv.mix"  # the report is there all the same
    assert "error: unknown.py:build: 3 op calls have no formula:" in ended.err
    assert "cli_conv.mix: 3 calls in mix, (root)" in ended.err
    assert '@profiler_kit.register_formula("cli_conv.mix")' in ended.err
    assert "profiler_kit.formulas" in ended.err


def test_strict_is_kept_where_every_op_is_known(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["count", "net.py", "-q", "--strict"], capfd).code == OK
    assert call(["check", "net.py", "--base", "base.json", "-q", "--strict"], capfd).code == OK


def test_a_formula_registered_in_the_targets_file_satisfies_strict(unknown: Path) -> None:
    """In a process of its own: a formula stays for as long as the process."""
    ran = subprocess.run(
        [sys.executable, "-m", "profiler_kit", "count", "registered.py:build", "-q", "--strict", "-f", "json"],
        cwd=unknown, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == OK, ran.stderr
    ops = {total["op"]: total for total in json.loads(ran.stdout)["static"]["ops"] if total["phase"] == "forward"}
    assert ops["cli_conv.mix"]["cost"]["flops"] == 3 * 3 * 2 * 4


def test_strict_in_check_is_a_budget(unknown: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["count", "unknown.py:build", "-q", "-o", "unknown.json"], capfd).code == OK
    line = ["check", "unknown.py:build", "--base", "unknown.json", "-q"]
    assert call(line, capfd).code == OK
    ended = call([*line, "--strict", "-f", "json"], capfd)
    assert ended.code == BUDGET_BROKEN
    data = json.loads(ended.out)
    assert data["exit_code"] == BUDGET_BROKEN
    assert [(row["metric"], row["head"], row["outcome"], row["where"]) for row in data["budgets"]] == [
        ("uncounted", 3, "broken", "--strict")
    ]
    assert "No formula for cli_conv.mix: 3 calls in mix, (root)" in data["notes"]
    assert any("register_formula" in note for note in data["notes"])


# --cross-check


def test_a_cross_check_is_in_every_format(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    (here / "normed.py").write_text(
        net().replace("nn.Linear(4, width)", "nn.Sequential(nn.Linear(4, width), nn.LayerNorm(4))")
    )
    line = ["count", "normed.py", "-q", "--cross-check", "-o", "checked.json"]
    for form in ("terminal", "markdown"):
        assert "Cross-check with fvcore (" in call([*line, "-f", form], capfd).out
    (check,) = json.loads((here / "checked.json").read_text())["static"]["cross_checks"]
    macs = {layer["path"]: (layer["kit_macs"], layer["peer_macs"]) for layer in check["layers"]}
    assert macs["fc"] == (2 * 4 * 4, 2 * 4 * 4 + 40)
    assert macs["fc.1"] == (0, 5 * 2 * 4)
    rows = {row["path"]: row for row in csv.DictReader(call([*line, "-f", "csv"], capfd).out.splitlines())}
    assert (rows["fc"]["fvcore_total_macs"], rows["fc.1"]["fvcore_total_macs"]) == (str(2 * 4 * 4 + 40), "40")
    assert rows["(loss)"]["fvcore_total_macs"] == ""
    assert "Cross-check with fvcore" in call(["show", "checked.json"], capfd).out  # read again, without fvcore


def test_a_cross_check_without_fvcore_says_how_to_get_it(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fvcore.nn", None)
    ended = call(["count", "net.py", "-q", "--cross-check"], capfd)
    assert ended.code == OK
    shown = " ".join(ended.out.split())
    assert "fvcore is not installed (" in shown
    assert "-m pip install fvcore" in shown


def test_a_cross_check_is_a_data_frame(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    import profiler_kit

    report = profiler_kit.count(torch.nn.BatchNorm2d(4), torch.zeros(1, 4, 8, 8), cross_check=True)
    frame = profiler_kit.dataframe(report, "cross_check")
    assert list(frame.difference_macs) == [5 * 4 * 64]
    without = profiler_kit.dataframe(profiler_kit.count(torch.nn.Linear(2, 2), torch.zeros(1, 2)), "cross_check")
    assert len(without) == 0
    assert list(without.columns) == list(frame.columns)


def test_pythons_strict_raises(unknown: Path) -> None:
    import profiler_kit
    from profiler_kit.errors import UncountedError

    with pytest.raises(UncountedError, match=r"cli_conv\.mix: 3 calls in mix, "):
        profiler_kit.count("unknown.py:build", strict=True)
    assert UncountedError.exit_code == BUDGET_BROKEN != TARGET_FAILED
