"""`run`: programs that nobody has changed behave as without it, and the report has their loop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from waiting import AMPLE_S

from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.integrations.program import Program
from profiler_kit.records.serde import read_report

NET = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self, inputs=16, outputs=4):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 32), nn.Linear(32, outputs)

    def forward(self, x):
        return self.last(self.first(x).relu())

    @torch.no_grad()
    def generate(self, x):
        for _ in range(3):
            y = self(x)
        return y

def batches(count=40):
    return DataLoader(TensorDataset(torch.randn(8 * count, 16), torch.randint(0, 4, (8 * count,))), batch_size=8)
"""
TRAIN = """\
from net import *
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, y in batches():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
PRINT_RESULT = "print(loss.item(), sum(p.sum().item() for p in model.parameters()), torch.rand(1).item())\n"
FEW = ("--skip", "2", "--steps", "4", "--traced", "1")


def python(folder: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, input=text, capture_output=True, text=True, timeout=AMPLE_S
    )


def run(folder: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "profiler_kit", "run", "--out", "out", *FEW, *words, text=text)


def report_of(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())
    return report


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def write(folder: Path, program: str) -> None:
    (folder / "train.py").write_text(textwrap.dedent(program))


def phases(report: dict[str, Any]) -> set[str]:
    return {phase["phase"] for phase in report["runs"][0]["phases"]}


@pytest.mark.fresh_process
def test_program_is_undisturbed(folder: Path) -> None:
    ending = "print(sys.argv, __name__, __file__, __spec__, sys.stdin.read())\nsys.exit(3)\n"
    asks = "import importlib.util, sys\nassert importlib.util.find_spec('torch')\n"  # before it imports it
    write(folder, f"{asks}{TRAIN}{PRINT_RESULT}{ending}")
    alone = python(folder, "train.py", "--lr", "1", "--steps", "2", text="typed")
    watched = run(folder, "train.py", "--lr", "1", "--steps", "2", text="typed")
    assert (watched.returncode, watched.stdout) == (alone.returncode, alone.stdout)
    assert alone.returncode == 3
    report = report_of(folder)
    assert report["target"]["spec"] == "train.py"
    assert report["target"]["name"] == "Net"
    assert report["target"]["optimizer"] == "SGD"
    assert report["target"]["inputs"][0]["shape"] == [8, 16]
    assert report["static"]["forward"]["macs"] == 8 * (16 * 32 + 32 * 4)
    assert len(report["runs"][0]["steps_ns"]) == 4
    assert report["runs"][0]["traced_steps"] == 1
    assert phases(report) == {"data", "forward", "loss", "backward", "optimizer", "other"}
    assert {"first", "last"} <= {module["path"] for module in report["runs"][0]["modules"]}


@pytest.mark.fresh_process
def test_uncaught_exception(folder: Path) -> None:
    write(
        folder,
        f"steps = 0\n{TRAIN}    steps += 1\n    if steps == 5:\n        raise ValueError('here')\n",
    )
    alone, watched = python(folder, "train.py"), run(folder, "train.py")
    assert watched.returncode == alone.returncode == 1
    traceback = re.sub(r"profiler_kit: .*", "", watched.stderr, flags=re.DOTALL)
    assert traceback.strip() == alone.stderr.strip()
    assert report_of(folder)["runs"][0]["steps_ns"]


def test_interrupt(folder: Path) -> None:
    """Python ends by the signal, but not if an exit handler, such as one of torch, imports a package that evaluates code then."""
    # a job in the background ignores the signal
    handle = "import os, signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    write(folder, f"{handle}{TRAIN}os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    alone = python(folder, "train.py").returncode
    assert run(folder, "train.py").returncode == alone
    assert alone in (1, -signal.SIGINT)


def test_module_with_relative_imports(folder: Path) -> None:
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "net.py").write_text(NET)
    (package / "train.py").write_text(
        TRAIN.replace("from net", "from .net") + "import sys\nprint(sys.argv, __package__, __spec__.name, __name__)\n"
    )
    alone, watched = python(folder, "-m", "package.train", "-x"), run(folder, "-m", "package.train", "-x")
    assert watched.stdout == alone.stdout != ""
    assert report_of(folder)["target"]["spec"] == "package.train"


def test_several_optimizers(folder: Path) -> None:
    write(
        folder,
        """\
        from net import *
        maker, judge = Net(4, 16), Net(16, 1)
        optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (judge, maker)]
        for _ in range(30):
            for k in range(2):
                optimizers[0].zero_grad()
                (judge(maker(torch.randn(8, 4)).detach()).mean() - judge(torch.randn(8, 16)).mean()).backward()
                optimizers[0].step()
            optimizers[1].zero_grad()
            (-judge(maker(torch.randn(8, 4))).mean()).backward()
            optimizers[1].step()
        """,
    )
    assert run(folder, "train.py").returncode == 0
    report = report_of(folder)
    one_maker, one_judge = 8 * (4 * 32 + 32 * 16), 8 * (16 * 32 + 32)
    assert report["static"]["forward"]["macs"] == 3 * one_maker + 5 * one_judge  # the calls of one step
    assert report["target"]["name"] == "Net, Net"


def test_accumulation_with_evaluation(folder: Path) -> None:
    write(
        folder,
        """\
        from net import *
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for epoch in range(10):
            model.train()
            for i, (x, y) in enumerate(batches(8)):
                nn.functional.cross_entropy(model(x), y).backward()
                if i % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                for x, y in batches(16):
                    model(x)
        """,
    )
    assert run(folder, "train.py").returncode == 0
    run_record = report_of(folder)["runs"][0]
    assert run_record["samples"] == 4 * 8  # of a step: evaluations would add to the calls
    assert len(run_record["steps_ns"]) == 4
    evaluation = run_record["evaluation"]
    assert evaluation["count"] >= 1
    assert evaluation["steps"] - evaluation["count"] >= 2 + 4
    assert evaluation["ns"] > 0


def test_an_evaluation_in_every_step_is_other_work_of_it(folder: Path) -> None:
    evaluate = """\
    with torch.no_grad():
        model.eval()
        for _ in range(100):
            model(x)
        model.train()
"""
    write(folder, TRAIN + textwrap.indent(textwrap.dedent(evaluate), "    "))
    assert run(folder, "train.py").returncode == 0
    measured = report_of(folder)["runs"][0]
    times = {phase["phase"]: phase["stopwatch_ns"] for phase in measured["phases"]}
    assert times["other"] > 5 * times["forward"]
    assert (measured["samples"], measured["evaluation"]) == (8, None)


def test_generation_without_an_optimizer(folder: Path) -> None:
    write(
        folder, "from net import *\nmodel = Net().eval()\nfor _ in range(30):\n    model.generate(torch.randn(2, 16))\n"
    )
    assert run(folder, "train.py").returncode == 0
    report = report_of(folder)
    assert report["target"]["mode"] == "infer"
    assert report["runs"][0]["samples"] == 3 * 2  # three calls are one step


def test_stop_ends_the_program_with_its_finally_blocks(folder: Path) -> None:
    write(folder, "try:\n" + textwrap.indent(TRAIN, "    ") + "    print('whole')\nfinally:\n    print('cleaned')\n")
    watched = run(folder, "--stop", "train.py")
    assert (watched.returncode, watched.stdout) == (0, "cleaned\n")
    assert report_of(folder)["runs"][0]["steps_ns"]


def test_forked_process_is_left_alone(folder: Path) -> None:
    write(
        folder,
        f"import os, sys\n{TRAIN}if not os.fork():\n    sys.exit(7)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))\n",
    )
    assert run(folder, "train.py").stdout == "7\n"


def test_loop_in_a_closure(folder: Path) -> None:
    write(
        folder,
        """\
        from net import *
        model, x = Net(), torch.randn(8, 16)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss
        for _ in range(30):
            optimizer.step(closure)
        """,
    )
    assert run(folder, "train.py").returncode == 0
    assert {"forward", "backward", "optimizer"} <= phases(report_of(folder))


@pytest.mark.parametrize(
    ("words", "status"), [(("nothing.py",), 3), (("-m", "nothing.module"), 3), ((), 2), (("--lr", "1", "train.py"), 2)]
)
def test_bad_command_line(folder: Path, words: tuple[str, ...], status: int) -> None:
    watched = run(folder, *words)
    assert watched.returncode == status
    assert len(re.findall(r"^(error|hint): ", watched.stderr, re.MULTILINE)) == 2


def test_program_without_steps(folder: Path) -> None:
    write(folder, "print('done')\n")
    watched = run(folder, "train.py")
    assert (watched.returncode, watched.stdout) == (0, "done\n")
    assert not (folder / "out").exists()


def test_random_state_of_python_is_kept(folder: Path) -> None:
    write(folder, f"import random\nrandom.seed(0)\n{TRAIN}print(random.random())\n")
    assert run(folder, "train.py").stdout == python(folder, "train.py").stdout != ""
    assert report_of(folder)["runs"][0]["traced_steps"] == 1


def test_models_can_be_freed_after_the_report(folder: Path) -> None:
    train = f"def train():\n{textwrap.indent(TRAIN.removeprefix('from net import *'), '    ')}    return weakref.ref(model)\n"
    write(folder, f"import gc, weakref\nfrom net import *\n{train}model = train()\ngc.collect()\nprint(model())\n")
    assert run(folder, "train.py").stdout == "None\n"
    assert report_of(folder)["runs"][0]["traced_steps"] == 1


def test_steps_of_two_training_threads_do_not_mix(folder: Path) -> None:
    write(
        folder,
        """\
        import threading
        from net import *
        turns = [threading.Semaphore(1), threading.Semaphore(0)]
        def train(number):
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for x, y in batches(20):
                turns[number].acquire()
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                turns[1 - number].release()
        threads = [threading.Thread(target=train, args=(number,)) for number in (0, 1)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
    )
    run(folder, "train.py")
    report = report_of(folder)
    assert report["runs"][0]["traced_steps"] == 1
    assert report["runs"][0]["samples"] == 8


def test_loop_in_a_compiled_function(folder: Path) -> None:
    compiled = "loss_of = torch.compile(lambda x, y: nn.functional.cross_entropy(model(x), y), backend='eager')\n"
    loop = """\
for _ in range(20):
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
    loss = loss_of(x, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    write(folder, f"{TRAIN.partition('for')[0]}{compiled}{loop}{PRINT_RESULT}")
    assert run(folder, "train.py").stdout == python(folder, "train.py").stdout != ""
    assert len(report_of(folder)["runs"][0]["steps_ns"]) == 4


def test_output_of_the_report_is_not_the_programs(folder: Path) -> None:
    capture = "import contextlib, io, sys\nwith contextlib.redirect_stderr(io.StringIO()) as text:\n"
    write(folder, f"{capture}{textwrap.indent(TRAIN, '    ')}print(len(text.getvalue()))\nsys.stderr.close()\n")
    watched = run(folder, "--", "train.py")
    assert (watched.returncode, watched.stdout) == (0, "0\n")
    assert "Net (train.py)" in watched.stderr


def test_bad_folder_is_refused_before_the_program_starts(folder: Path) -> None:
    write(folder, "print('started')\n")
    (folder / "file").touch()
    refused = python(folder, "-m", "profiler_kit", "run", "--out", "file/out", "train.py")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--out" in refused.stderr


def test_a_run_is_evidence_for_a_later_count(folder: Path) -> None:
    write(folder, TRAIN.replace("Net()", "Net(outputs=int(__import__('sys').argv[1]))").replace("(0, 4,", "(0, 2,"))
    result = python(folder, "-m", "profiler_kit", "run", *FEW, "train.py", "6")
    assert result.returncode == 0
    report = json.loads((folder / "profiler_kit_out/train/report.json").read_text())
    seen = report["target"]["seen"]
    line = TRAIN.splitlines().index("model = Net()") + 1
    (model,) = seen["models"]
    places = [place for place in model["built_at"] if str(folder) in place]  # without those of the tests' fork server
    assert (model["class_name"], model["params"], places) == ("Net", 742, [f"{folder / 'train.py'}:{line}"])
    assert (seen["arguments"], seen["inputs"], seen["mode"]) == (["6"], ["x=8,16"], "train")
    assert (seen["loss"], seen["optimizer"], seen["amp"]) == ("cross_entropy", "sgd", None)
    counted = json.loads(python(folder, "-m", "profiler_kit", "count", "train.py", "-f", "json").stdout)
    assert (counted["target"]["inputs_from"], counted["static"]["params"]) == ("run", 742)


def test_what_the_loop_does_after_its_last_operator_is_part_of_its_steps(folder: Path) -> None:
    write(folder, TRAIN + "    import time; time.sleep(0.05)\n")
    assert run(folder, "train.py").returncode == 0
    (measured,) = report_of(folder)["runs"]
    traced = measured["traced"]
    assert traced["span_ns"] == traced["busy_ns"] + traced["idle_ns"]
    assert traced["idle_ns"] >= 45_000_000


ENDING = TRAIN.replace(
    "optimizer.step()", "optimizer.step()\n    count = globals().get('count', 0) + 1\n    if count == 20: END"
)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import os; os._exit(5)", 5),
        ("raise MemoryError('full')", 1),
    ],
)
def test_a_program_that_ends_early_has_a_report_so_far(folder: Path, end: str, status: int) -> None:
    write(folder, ENDING.replace("END", end))
    done = python(folder, "-m", "profiler_kit", "run", "--out", "out", "--skip", "2", "--steps", "30", "train.py")
    alone = python(folder, "train.py")
    assert done.returncode == alone.returncode == status
    assert 0 < len(report_of(folder)["runs"][0]["steps_ns"]) < 30


def test_a_program_that_handles_sigterm_is_left_alone(folder: Path) -> None:
    handler = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: (print('handled'), os._exit(3)))\n"
    write(folder, handler + ENDING.replace("END", "os.kill(os.getpid(), signal.SIGTERM)"))
    done = python(folder, "-m", "profiler_kit", "run", "--out", "out", "--skip", "2", "--steps", "30", "train.py")
    assert done.returncode == 3
    assert report_of(folder)["runs"][0]["steps_ns"]


def test_workers_that_fork_while_steps_are_recorded_end_at_once(folder: Path) -> None:
    fork = """\
    import os, time
    if not (pid := os.fork()):
        time.sleep(60)
    os.kill(pid, 15)
    assert os.waitpid(pid, 0)[1] == 15
"""
    write(folder, TRAIN + fork)
    assert run(folder, "train.py").returncode == 0


@pytest.mark.jobs
def test_configurations_run_in_turn_and_are_compared(folder: Path) -> None:
    write(folder, "import sys\n" + TRAIN + "print(sys.argv[1], flush=True)\n")
    done = run(folder, "--configs", "default,benchmark", "train.py", "5")
    assert (done.returncode, done.stdout) == (0, "")  # --stop ends the program before it prints
    report = report_of(folder)
    assert [measured["config"]["name"] for measured in report["runs"]] == ["default"]
    assert [(note["subject"], note["code"]) for note in report["notes"] if note["code"]] == [("benchmark", "skipped")]
    assert report["findings"]


@pytest.mark.jobs
def test_a_configuration_that_fails_is_named(folder: Path) -> None:
    write(folder, "raise OSError('no data')\n")
    done = run(folder, "--configs", "default,benchmark", "train.py")
    assert done.returncode == 3
    assert "OSError: no data" in done.stderr
    assert not (folder / "out" / "report.json").exists()


def test_a_flag_of_the_program_is_reset_for_a_configuration(folder: Path) -> None:
    set_flag, print_flag = (
        "import torch\ntorch.backends.cudnn.benchmark = True\n",
        "print(torch.backends.cudnn.benchmark)\n",
    )
    counts = []
    for head in ("", set_flag):
        write(folder, head + TRAIN + print_flag)
        assert run(folder, "--configs", "default", "train.py").stdout == "False\n"
        counts.append(len(report_of(folder)["notes"]))
    assert counts[1] == counts[0] + 1


@pytest.mark.parametrize(
    "words", [("--configs", "compile"), ("--configs", "no-such"), ("--configs", "default", "--later")]
)
def test_configurations_that_cannot_run_are_refused(folder: Path, words: tuple[str, ...]) -> None:
    write(folder, TRAIN)
    assert run(folder, *words, "train.py").returncode == 2


BROKEN = """\
import torch
from {module} import {owner}
def fail(*_, **__):
    raise ValueError("ours")
{owner}.{name} = fail
"""
RECORDER = "profiler_kit.recording.loop"


@pytest.mark.parametrize(
    ("module", "owner", "name"),
    [
        ("profiler_kit.recording.discovery", "LoopFinder", "_handle"),
        (RECORDER, "Recorder", "__init__"),
        (RECORDER, "Recorder", "_on_forward"),
        (RECORDER, "Recorder", "_on_optimizer"),
        (RECORDER, "Recorder", "_end_timed_step"),
        (RECORDER, "Recorder", "_trace_phase"),
    ],
)
def test_an_error_of_ours_is_none_of_the_program(folder: Path, module: str, owner: str, name: str) -> None:
    ending = "from torch.autograd import profiler\nprint(profiler._is_profiler_enabled)\n"
    write(folder, TRAIN + PRINT_RESULT + ending)
    alone = python(folder, "train.py")
    (folder / "train.py").write_text(
        BROKEN.format(module=module, owner=owner, name=name) + TRAIN + PRINT_RESULT + ending
    )
    watched = run(folder, "train.py")
    assert (watched.returncode, watched.stdout) == (0, alone.stdout)
    assert watched.stderr.count("ValueError: ours") == 1
    assert not (folder / "out" / "report.json").exists()


def test_a_class_with_its_own_parameters_method_is_left_alone(folder: Path) -> None:
    write(
        folder,
        TRAIN.replace(
            "model = Net()",
            "Net.parameters = lambda self: nn.ParameterList(super(Net, self).parameters())\nmodel = Net()",
        ),
    )
    assert run(folder, "train.py").returncode == 0
    assert report_of(folder)["target"]["name"] == "Net"


def test_sizes_may_be_numbers_of_numpy(folder: Path) -> None:
    write(folder, TRAIN.replace("model = Net()", "import numpy as np\nmodel = Net(inputs=np.array((4, 4)).prod())"))
    assert run(folder, "train.py").returncode == 0
    assert report_of(folder)["static"]["params"] == 16 * 32 + 32 + 32 * 4 + 4


def test_stop_ends_a_program_with_a_bare_except(folder: Path) -> None:
    fetch = """\
loader = iter(batches(200))
while True:
    try:
        x, y = next(loader)
    except:
        loader = iter(batches(200))
        continue
"""
    loop = TRAIN.replace("for x, y in batches():\n", fetch)
    write(folder, loop)
    done = python(folder, "-m", "profiler_kit", "run", "--stop", *FEW, "train.py")
    assert done.returncode == 0


def test_a_model_that_acts_before_it_trains_is_trained(folder: Path) -> None:
    acts = "with torch.no_grad():\n    for _ in range(1500):\n        model(torch.ones(1, 16))\n"
    write(folder, TRAIN.replace("for x, y in", acts + "for x, y in"))
    assert run(folder, "train.py").returncode == 0
    assert report_of(folder)["target"]["mode"] == "train"


def test_a_model_whose_parts_the_loop_calls_has_its_own_name(folder: Path) -> None:
    write(folder, TRAIN.replace("model(x)", "model.last(model.first(x).relu())"))
    assert run(folder, "train.py").returncode == 0
    assert report_of(folder)["target"]["name"] == "Net"


def test_an_evaluation_with_gradients_is_no_training(folder: Path) -> None:
    write(
        folder,
        TRAIN.replace("    optimizer.zero_grad()", "    model.train()\n    optimizer.zero_grad()")
        + "    model.eval()\n    model(x)\n",
    )
    assert run(folder, "train.py").returncode == 0
    measured = report_of(folder)["runs"][0]
    assert measured["samples"] == 8
    phases_ns = sum(phase["stopwatch_ns"] for phase in measured["phases"])
    assert abs(phases_ns - measured["step_ns"]["median"]) <= 10 + measured["step_ns"]["median"] * 1e-6


def test_a_teacher_is_part_of_the_forward_pass(folder: Path) -> None:
    slow = (
        "class Teacher(Net):\n    def forward(self, x):\n        time.sleep(0.02)\n        return super().forward(x)\n"
    )
    program = "import time\n" + TRAIN.replace("model = Net()", slow + "teacher, model = Teacher().eval(), Net()")
    write(folder, program.replace("    loss = ", "    with torch.no_grad():\n        teacher(x)\n    loss = "))
    assert run(folder, "train.py").returncode == 0
    times = {phase["phase"]: phase["stopwatch_ns"] for phase in report_of(folder)["runs"][0]["phases"]}
    assert times["forward"] > 20_000_000 > times["loss"]


@pytest.mark.jobs
@pytest.mark.fresh_process
def test_the_compiler_is_imported_from_the_end_from_which_programs_import_it(folder: Path) -> None:
    """Its two packages import each other: two threads that import them from different ends at once break the import."""
    write(
        folder,
        """\
        import sys
        from net import *

        class Order:
            names = []
            def find_spec(self, name, path=None, target=None):
                self.names += [name] * (name in ("torch._dynamo", "torch._inductor"))

        sys.meta_path.insert(0, Order())
        model = Net()
        for _ in range(100):
            model(torch.ones(2, 16))
        print(*Order.names)
        """,
    )
    assert run(folder, "train.py").stdout.split() == ["torch._dynamo", "torch._inductor"]


def test_a_thread_is_reported_when_the_others_are_over(folder: Path) -> None:
    write(
        folder,
        """\
        import pathlib, threading, time
        from net import *
        other, reports, end = Net().eval(), [], time.monotonic() + 60

        def evaluate():
            while not list(pathlib.Path().rglob("loop.json.gz")) and time.monotonic() < end:
                other(torch.ones(2, 16))
            for _ in range(100):
                other(torch.ones(2, 16))
            reports.extend(pathlib.Path().rglob("report.json"))

        thread = threading.Thread(target=evaluate)
        thread.start()
        thread.join()
        print(len(reports))
        """,
    )
    ended = run(folder, "train.py")
    assert (ended.returncode, ended.stdout.split()) == (0, ["0"])
    assert report_of(folder)["runs"][0]["traced_steps"] == 1


def test_a_program_without_an_optimizer_has_none_in_its_report(folder: Path) -> None:
    program = TRAIN.replace("optimizer = torch.optim.SGD(model.parameters(), 0.1)\n", "")
    program = program.replace("    optimizer.zero_grad()\n", "    model.zero_grad()\n").replace(
        "    optimizer.step()\n", ""
    )
    write(folder, program)
    assert run(folder, "train.py").returncode == 0
    target = report_of(folder)["target"]
    assert (target["mode"], target["optimizer"]) == ("train", None)
    assert [note for note in target["notes"] if note["subject"] == "optimizer"] == []


def test_stacks_name_the_line_that_takes_the_time(folder: Path) -> None:
    program = TRAIN.replace("    optimizer.step()\n", "    optimizer.step()\n    wait_for_nothing()\n")
    write(
        folder,
        "import time\ndef wait_for_nothing():\n    time.sleep(0.05)\n" + program.replace("batches()", "batches(20)"),
    )
    assert run(folder, "--stacks", "train.py").returncode == 0
    report = report_of(folder)
    longest = max(report["runs"][0]["traced"]["activities"], key=lambda activity: activity["ns"])
    assert "wait_for_nothing" in longest["source"]
    titles = [finding["title"] for finding in report["findings"] if finding["rule"] == "host_overhead"]
    assert all("wait_for_nothing" in title for title in titles)  # there is none where other processes disturb the steps


def test_the_command_that_records_stacks(folder: Path) -> None:
    write(folder, TRAIN)
    assert run(folder, *FEW, "train.py", "--lr", "1").returncode == 0
    command = facts_of(read_report(folder / "out" / "report.json")).stacks.split()
    assert command[-5:] == ["run", "--stacks", str((folder / "train.py").resolve()), "--lr", "1"]


def test_other_work_between_calls_and_backward_is_no_loss(folder: Path) -> None:
    """An environment makes a step after each call of the policy, with gradients or without, and before the loss."""
    write(
        folder,
        """\
        import time
        from net import *
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(60):
            with torch.no_grad():
                model(torch.ones(1, 16))
            time.sleep(0.01)
            logs = []
            for _ in range(2):
                actions = torch.distributions.Categorical(logits=model(torch.ones(1, 16)))
                logs.append(actions.log_prob(actions.sample()))
                time.sleep(0.01)
            values = model(torch.ones(4, 16))
            time.sleep(0.01)
            loss = nn.functional.mse_loss(values, torch.ones(4, 4)) - torch.stack(logs).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    assert run(folder, *FEW, "--traced", "3", "train.py").returncode == 0
    report = report_of(folder)
    times = {phase["phase"]: phase["stopwatch_ns"] for phase in report["runs"][0]["phases"]}
    assert report["target"]["loss"] == "mse + own terms"
    assert times["other"] > 30_000_000
    assert 0 < times["loss"] < 10_000_000


def test_gradients_of_the_loss_are_backward(folder: Path) -> None:
    """A slow derivative: its time is that of backward, also where the program knows the function by another name."""
    write(
        folder,
        """\
        import time
        from net import *
        from torch.autograd import grad

        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                time.sleep(0.02)
                return gradient

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(40):
            x = torch.ones(4, 16, requires_grad=True)
            y = model(x)
            penalty = grad(Slow.apply(y).sum(), x, create_graph=True)[0].norm()
            optimizer.zero_grad()
            (y.sum() + penalty).backward()
            optimizer.step()
        """,
    )
    assert run(folder, *FEW, "train.py").returncode == 0
    phases = {phase["phase"]: phase for phase in report_of(folder)["runs"][0]["phases"]}
    assert phases["backward"]["stopwatch_ns"] > 20_000_000 > phases["loss"]["stopwatch_ns"]
    # The derivative of a derivative is no recomputation. What no later backward pass uses still looks like one.
    if "recompute" in phases:
        assert phases["recompute"]["kernel_ns"] < 0.01 * phases["backward"]["kernel_ns"]


def test_blocks_of_steps_of_several_optimizers(folder: Path) -> None:
    """The second optimizer begins when the loop of the first one is already recorded."""
    write(
        folder,
        """\
        from net import *
        maker, judge = Net(4, 16), Net(16, 1)
        optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (judge, maker)]
        for _ in range(16):
            for _ in range(12):
                optimizers[0].zero_grad()
                judge(torch.randn(8, 16)).mean().backward()
                optimizers[0].step()
            for _ in range(10):
                optimizers[1].zero_grad()
                (-judge(maker(torch.randn(8, 4))).mean()).backward()
                optimizers[1].step()
        """,
    )
    assert run(folder, *FEW, "train.py").returncode == 0
    report = report_of(folder)
    one_maker, one_judge = 8 * (4 * 32 + 32 * 16), 8 * (16 * 32 + 32)
    assert report["static"]["forward"]["macs"] == 10 * one_maker + 22 * one_judge
    assert len(report["runs"][0]["steps_ns"]) == 4


def test_an_optimizer_that_begins_later(folder: Path) -> None:
    """The program ends before the two make a step that repeats: the report is that of the first."""
    write(
        folder,
        TRAIN.replace("batches()", "batches(14)") + "torch.optim.SGD(Net().parameters(), 0.1).step()\nmodel(x)\n",
    )
    assert run(folder, "--skip", "2", "--steps", "10", "train.py").returncode == 0
    assert report_of(folder)["runs"][0]["steps_ns"]


def test_forward_that_the_loop_calls_itself(folder: Path) -> None:
    """Without the call of the module around it, in which hooks run."""
    write(
        folder,
        """\
        import copy, pickle
        from net import *
        model, teacher = Net(), Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(40):
            x = torch.ones(4, 16)
            with torch.no_grad():
                y = teacher.forward(x)
            loss = nn.functional.mse_loss(model.forward(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert copy.deepcopy(model).forward(x).shape == y.shape
            pickle.dumps(model)
        assert Net.forward.__qualname__ == "Net.forward" and not hasattr(Net.forward, "__wrapped__")
        """,
    )
    assert run(folder, *FEW, "train.py").returncode == 0
    report = report_of(folder)
    assert report["static"]["forward"]["macs"] == 4 * (16 * 32 + 32 * 4)
    assert phases(report) >= {"forward", "loss", "backward", "optimizer"}
    assert {"first", "last"} <= {module["path"] for module in report["runs"][0]["modules"]}


def test_a_program_of_few_steps_has_the_phases_of_its_first_steps(folder: Path) -> None:
    write(folder, TRAIN.replace("batches()", "batches(6)"))
    assert run(folder, "--skip", "10", "train.py").returncode == 0
    measured = report_of(folder)["runs"][0]
    times = {phase["phase"]: phase["stopwatch_ns"] for phase in measured["phases"]}
    assert times.keys() >= {"data", "forward", "loss", "backward", "optimizer"}
    assert abs(sum(times.values()) - measured["step_ns"]["median"]) <= 10 + measured["step_ns"]["median"] * 1e-6
    assert measured["warmup_steps"] == 1


def test_a_model_that_reads_its_activations_is_counted(folder: Path) -> None:
    """As distributions do to check their parameters. The inputs of the loop are known without their values."""
    reads = (
        "class Reads(Net):\n    def forward(self, x):\n        y = super().forward(x)\n"
        "        assert (y == y).all()\n        return y\n"
    )
    write(folder, TRAIN.replace("model = Net()", reads + "model = Reads()"))
    assert run(folder, "train.py").returncode == 0
    assert report_of(folder)["static"]["forward"]["macs"] == 8 * (16 * 32 + 32 * 4)


def test_nothing_is_left_after_the_report(folder: Path) -> None:
    left = """\
from torch.nn.modules import module
from torch.optim import optimizer as optimizers
from torch.utils.data import dataloader
loops = dataloader._BaseDataLoaderIter
functions = [torch.autograd.backward, torch.autograd._engine_run_backward, torch.compile, nn.Module.__call__, loops.__next__]
functions += [torch.optim.Optimizer.zero_grad, Net.forward, *vars(nn.functional).values()]
hooks = [getattr(module, name) for name in vars(module) if name.startswith("_global") and name.endswith("hooks")]
hooks += [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
hooks += [hooks for part in model.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)]
places = [getattr(f, "__module__", "") + getattr(getattr(f, "__code__", None), "co_filename", "") for f in functions]
print([place for place in places if "profiler_kit" in place], [h for h in hooks if h])
"""
    write(folder, TRAIN.replace("model(x)", "model.forward(x)") + left)
    ended = run(folder, "train.py")
    assert ended.stdout.split() == ["[]", "[]"], ended.stderr
    assert report_of(folder)["runs"][0]["traced_steps"] == 1


def test_tied_weights_of_several_models_count_once(folder: Path) -> None:
    write(
        folder,
        """\
        from net import *
        first, second = Net(), Net()
        second.first = nn.Linear(16, 32, bias=False)
        second.first.weight = first.first.weight
        optimizer = torch.optim.SGD({*first.parameters(), *second.parameters()}, 0.1)
        for step in range(40):
            loss = nn.functional.l1_loss(first(torch.ones(4, 16)), second(torch.ones(4, 16)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    assert run(folder, *FEW, "train.py").returncode == 0
    report = report_of(folder)
    assert report["static"]["params"] == 16 * 32 + 32 + 2 * (32 * 4 + 4)
    assert report["target"]["loss"] == "l1"


def test_a_model_is_copied_and_saved_while_it_is_recorded(folder: Path) -> None:
    program = "import copy, io, pickle\n" + TRAIN + (
        "    best = copy.deepcopy(model)\n"
        "    file = io.BytesIO()\n"
        "    torch.save(model, file)\n"
        "    file.seek(0)\n"
        "    for other in (best, torch.load(file, weights_only=False), pickle.loads(pickle.dumps(model))):\n"
        "        assert other.state_dict().keys() == model.state_dict().keys()\n"
        "        with torch.no_grad():\n"
        "            assert torch.equal(other(x), model(x))\n"
    )  # fmt: skip
    write(folder, program)
    ended = run(folder, *FEW, "train.py")
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)
    assert report_of(folder)["runs"][0]["traced_steps"] == 1


def test_a_loss_that_is_recognized_is_named_where_another_one_is_counted(folder: Path) -> None:
    write(
        folder,
        """\
        from net import *
        model, other = Net(), Net()
        optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1)
        for step in range(60):
            x = torch.ones(4, 16)
            loss = nn.functional.mse_loss(model(x), other(2 * x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    assert run(folder, *FEW, "train.py").returncode == 0
    assert report_of(folder)["target"]["loss"] == "mse"


@pytest.mark.parametrize("calls", [4, 12])
def test_a_model_that_is_called_before_its_optimizer_exists(folder: Path, calls: int) -> None:
    """A drawing or a summary of the model looks like inference until the program trains."""
    drawing = f"for _ in range({calls}):\n    model.generate(torch.ones(1, 16))\n"
    write(folder, TRAIN.replace("model = Net()\n", "model = Net()\n" + drawing))
    assert run(folder, *FEW, "train.py").returncode == 0
    report = report_of(folder)
    assert (report["target"]["mode"], report["target"]["loss"]) == ("train", "cross_entropy")
    assert report["runs"][0]["samples"] == 8
    assert phases(report) == {"data", "forward", "loss", "backward", "optimizer", "other"}
    assert len(report["runs"][0]["steps_ns"]) == 4


PROCESSES = """\
import os, sys
import torch.distributed, torch.multiprocessing
from net import *

def train(rank=0, count=1):
    if count > 1:
        meeting = "file://" + os.path.abspath(sys.argv[1])
        torch.distributed.init_process_group("gloo", meeting, rank=rank, world_size=count)
    model = Net()
    if count > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in batches(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    os.write(1, f"{loss.item()} {torch.rand(1).item()}\\n".encode())
    if count > 1:
        torch.distributed.destroy_process_group()

if __name__ == "__main__":
    START
"""
SPAWN = "torch.multiprocessing.spawn(train, args=(2,), nprocs=2)"
FORK = """\
workers = [torch.multiprocessing.Process(target=train) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print([worker.exitcode for worker in workers])"""


@pytest.mark.jobs
@pytest.mark.fresh_process
@pytest.mark.parametrize("start", [SPAWN, FORK])
def test_processes_of_the_program_are_followed(folder: Path, start: str) -> None:
    write(folder, PROCESSES.replace("START", start))
    alone, watched = python(folder, "train.py", "first"), run(folder, "train.py", "second")
    assert alone.returncode == 0, alone.stderr
    assert (watched.returncode, sorted(watched.stdout.split())) == (0, sorted(alone.stdout.split()))
    report = report_of(folder)
    assert (report["target"]["name"], report["target"]["loss"]) == ("Net", "cross_entropy")
    assert len(report["runs"][0]["steps_ns"]) == 4
    assert (folder / "out" / "ranks.json").exists() == (start == SPAWN)
    assert not list((folder / "out").glob(".*"))


@pytest.mark.jobs
@pytest.mark.fresh_process
@pytest.mark.parametrize("start", [SPAWN, FORK])
def test_stop_ends_all_processes(folder: Path, start: str) -> None:
    write(folder, PROCESSES.replace("batches(60)", "batches(100000)").replace("START", f"{start}\n    print('whole')"))
    watched = run(folder, "--stop", "train.py", "meeting")
    assert (watched.returncode, watched.stdout) == (0, "")
    assert report_of(folder)["runs"][0]["traced_steps"] == 1


def test_the_script_is_that_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "")
    monkeypatch.chdir(tmp_path)
    program = Program(name="train.py", is_module=False, arguments=())
    monkeypatch.chdir("/")  # as hydra does
    assert program.path == (tmp_path / "train.py").resolve()
