"""A run of a program is the first evidence for later loads of it: model, arguments, inputs, loss, optimizer, autocast."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from profiler_kit.cli import main
from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading import Target, load
from profiler_kit.loading.evidence.recorded_run import texts_of_call
from profiler_kit.pipeline.seen_runs import find_run
from profiler_kit.recording.guard import Guard, raise_error
from profiler_kit.recording.origins import Origins
from profiler_kit.records.seen import SeenModel, SeenRun, file_digest
from profiler_kit.records.target import TargetSpec

PROGRAM = """\
import argparse
import torch
from torch import nn

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
    def forward(self, x):
        return self.fc(x)

class Large(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(5, width)
    def forward(self, x, scale=1):
        return self.fc(x) * scale

def build(options):
    return {"small": Small, "large": lambda: Large(options.width)}[options.kind]()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="small")
    parser.add_argument("--width", type=int, required=True)
    options = parser.parse_args()
    model = build(options)
    MORE
"""
LINE = PROGRAM.splitlines().index("    model = build(options)") + 1


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], SeenRun]:
    monkeypatch.chdir(tmp_path)

    def written(more: str = "pass") -> SeenRun:
        file = tmp_path / "train.py"
        file.write_text(PROGRAM.replace("MORE", more))
        return SeenRun(
            program=str(file),
            digest=file_digest(file.read_bytes()),
            arguments=("--kind", "large", "--width", "7"),
            models=(SeenModel(class_name="Large", params=42, built_at=(f"{file}:{LINE}",)),),
            inputs=("x=4,5", "scale:=2"),
            mode="train",
            loss="smooth_l1",
            optimizer="rmsprop",
            amp="bfloat16",
        )

    return written


def loaded(seen: SeenRun | None, **options: Any) -> Target:
    return load(TargetSpec(spec="train.py", seen=seen, command=("count", ""), **options))


def run_notes(target: Target) -> list[str]:
    return [note.text for note in target.info.notes if note.subject == "run"]


def test_the_program_is_loaded_as_it_ran(program: Callable[[str], SeenRun]) -> None:
    target = loaded(program(""))
    info = target.info
    assert (info.name, target.model.fc.out_features) == ("Large", 7)
    assert (info.inputs_from, [tuple(t.shape) for t in target.batch.tensors()]) == ("run", [(4, 5)])
    assert (info.optimizer, info.amp) == ("rmsprop", "bfloat16")
    assert target.objective is not None
    assert target.objective.preferred == "smooth_l1"
    assert len(run_notes(target)) == 1
    assert info.seen is not None


def test_without_the_run_the_defaults_of_the_program_count(program: Callable[[str], SeenRun]) -> None:
    program("")
    target = loaded(None)
    assert target.info.name == "Small"
    assert run_notes(target) == []


def test_options_come_before_the_run(program: Callable[[str], SeenRun]) -> None:
    target = loaded(program(""), inputs=("9,5",), amp="float16", optimizer="sgd", loss="mse")
    assert target.info.inputs_from == "option"
    assert [tuple(t.shape) for t in target.batch.tensors()] == [(9, 5)]
    assert (target.info.amp, target.info.optimizer, target.info.loss) == ("float16", "sgd", "mse")


def test_the_optimizer_and_the_loss_of_the_text_come_before_those_of_the_run(
    program: Callable[[str], SeenRun],
) -> None:
    more = "optimizer = torch.optim.Adagrad(model.parameters())\n    optimizer.step()"
    assert loaded(program(more)).info.optimizer == "Adagrad"


def test_a_class_that_the_run_trained_is_chosen_where_its_call_has_moved(program: Callable[[str], SeenRun]) -> None:
    seen = program("net = Large(9)")
    seen = replace(seen, models=(SeenModel(class_name="Large", params=42),))
    assert loaded(seen).info.name == "Large"


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 1),
        ({"digest": "0"}, 2),
        ({"models": (SeenModel(class_name="Large", params=41),)}, 2),
        ({"models": (SeenModel(class_name="Other", params=42),)}, 2),
    ],
)
def test_differences_to_the_run_are_notes(
    program: Callable[[str], SeenRun], changes: dict[str, Any], count: int
) -> None:
    assert len(run_notes(loaded(replace(program(""), **changes), kwargs=()))) == count


def test_texts_that_are_no_inputs_are_left_out(program: Callable[[str], SeenRun]) -> None:
    assert loaded(replace(program(""), inputs=("x=4,?",))).info.inputs_from == "search"


class Net(nn.Module):
    def forward(self, x: Any, *, states: Any = None, flag: Any = True) -> Any:
        return x


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((torch.zeros(2, 3),), {}, ("x=2,3",)),
        ((torch.zeros(2, dtype=torch.int64),), {"flag": None}, ("x=2:int64", "flag:=None")),
        (
            (torch.zeros(2),),
            {"states": [torch.zeros(1), torch.zeros(4)]},
            ("x=2", "states[0]=1", "states[1]=4"),
        ),
        (({"image": torch.zeros(2, 1)},), {}, ("x.image=2,1",)),
        ((torch.zeros(()),), {}, ("x=()",)),
        ((torch.zeros(0, 3),), {}, ()),
        ((object(),), {}, ()),
        ((torch.zeros(2),), {"states": (torch.zeros(1),)}, ()),
        ((torch.zeros(2), torch.zeros(2)), {}, ()),
        ((torch.zeros(2).to_sparse(),), {}, ()),
        ((torch.zeros(2),), {"flag": float("nan")}, ()),
    ],
)
def test_texts_of_calls(args: tuple[Any, ...], kwargs: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert texts_of_call(Net(), args, kwargs) == expected


def test_origins_name_the_calls_around_a_construction() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.Sequential(nn.Linear(1, 1))

    class Whole(Parts):
        def __init__(self) -> None:
            super().__init__()
            self.more = Parts()

    def build() -> Whole:
        return Whole()

    origins = Origins(Guard(raise_error))
    origins.watch_construction()
    try:
        whole = build()
    finally:
        origins.stop()
    first = build.__code__.co_firstlineno
    places = origins.built_at(whole)
    assert places[0] == f"{Path(__file__).resolve()}:{first + 1}"
    assert len(origins.built_at(whole.more)) > len(places) - 1
    assert origins.built_at(build()) == ()


def saved(folder: Path, seen: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "report.json"
    file.write_text(json.dumps({"target": {"seen": seen}}))
    return file


def as_json(seen: SeenRun) -> dict[str, Any]:
    return {
        name: getattr(seen, name)
        for name in ("program", "digest", "arguments", "inputs", "mode", "loss", "optimizer", "amp")
    } | {"models": [{"class_name": m.class_name, "params": m.params, "built_at": m.built_at} for m in seen.models]}


def test_the_report_of_a_run_is_found_by_the_name_and_the_path_of_the_script(program: Callable[[str], SeenRun]) -> None:
    seen = program("")
    assert find_run("train.py") is None
    saved(Path("profiler_kit_out/train"), as_json(seen))
    assert find_run("train.py") == find_run("train.py:Large") == seen
    saved(Path("profiler_kit_out/train"), as_json(replace(seen, program="/elsewhere/train.py")))
    assert find_run("train.py") is None
    for content in (None, 3, {"program": 1}):
        saved(Path("profiler_kit_out/train"), content)
        assert find_run("train.py") is None


def test_a_report_that_is_named_must_have_the_run(program: Callable[[str], SeenRun]) -> None:
    file = saved(Path("elsewhere"), as_json(replace(program(""), program="/other/train.py")))
    assert find_run("train.py", file) is not None
    with pytest.raises(UsageError):
        find_run("net.py", file)
    with pytest.raises(UsageError):
        find_run("train.py", Path("missing.json"))


@pytest.mark.parametrize(("words", "name"), [((), "Large"), (("--from-run", "none"), "Small")])
def test_count_takes_the_run(
    program: Callable[[str], SeenRun], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], name: str
) -> None:
    saved(Path("profiler_kit_out/train"), as_json(program("")))
    assert main(["count", "train.py", "-f", "json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["target"]["name"] == name


TRAINS = """\
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
    def forward(self, x, graph):
        return self.fc(x[graph.index])
"""


@pytest.mark.parametrize("trains", [True, False])
def test_a_refusal_of_a_training_script_names_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trains: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    loop = "if __name__ == '__main__':\n    Net()(1, 2).sum().backward()\n"
    Path("net.py").write_text(TRAINS + loop * trains)
    with pytest.raises(TargetError) as raised:
        load(TargetSpec(spec="net.py", command=("count", "")))
    assert ("run net.py" in (raised.value.hint or "")) is trains


def test_the_loss_of_the_run_replaces_a_default_where_it_fits(program: Callable[[str], SeenRun]) -> None:
    seen = program("")

    def settled(loss: str | None, output: torch.Tensor) -> str:
        target = loaded(replace(seen, loss=loss))
        assert target.objective is not None
        return target.objective.settled(output.requires_grad_(), target.batch, ()).name

    scores, default = torch.zeros(4, 7), settled(None, torch.zeros(4, 7))
    assert settled("smooth_l1", scores) == "smooth_l1" != default
    assert settled("no such loss", scores) == default
    assert settled("cross_entropy", torch.zeros(())) == settled(None, torch.zeros(()))
