"""Every way a TARGET text names a model, and what loading leaves behind."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from profiler_kit.errors import TargetError
from profiler_kit.loading import Target, from_model, load
from profiler_kit.records.target import TargetSpec

HEAD = "import torch\nfrom torch import nn\n"
NET = HEAD + (
    "class Block(nn.Module):\n"
    "    def __init__(self, width):\n"
    "        super().__init__()\n"
    "        self.fc = nn.Linear(width, width)\n"
    "    def forward(self, x):\n"
    "        return self.fc(x)\n"
    "class Net(nn.Module):\n"
    "    def __init__(self, width=3, name='plain'):\n"
    "        super().__init__()\n"
    "        self.block, self.name = Block(width), name\n"
    "    def forward(self, x):\n"
    "        return self.block(x)\n"
)
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes files (name with ``/`` for ``__``) into a folder that is the working directory."""
    monkeypatch.chdir(tmp_path)

    def make(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return make


def loaded(target: str, *kwargs: str, device: str = "meta") -> Target:
    return load(TargetSpec(spec=target, kwargs=kwargs, inputs=("2,3",)), device=device)


@pytest.mark.parametrize(
    ("text", "target", "name"),
    [
        (NET, "net.py", "Net"),
        (NET, "net.py:Block", "Block"),
        (NET + "model = Block(3)\ndef get_model():\n    return Net()\n", "net.py", "Block"),
        (NET + "def get_model():\n    return nn.Linear(3, 3)\n", "net.py", "Linear"),
        (NET + "def make_model(width=3):\n    return nn.Linear(width, 3)\n", "net.py", "Linear"),
        (NET + "def build_model(width):\n    return nn.Linear(width, 3)\n", "net.py", "Net"),
        (NET + "model = None\n", "net.py", "Net"),
        (NET + "def other():\n    return Net(), torch.ones(4, 3)\n", "net.py:other", "Net"),
        (NET + "small = Net()\n", "net.py:small", "Net"),
        (NET + "class Zoo:\n    class Inner(Net):\n        pass\n", "net.py:Zoo.Inner", "Inner"),
        (HEAD + "class Base(nn.Module):\n    pass\n" + NET + "class Top(Net):\n    pass\n", "net.py:Top", "Top"),
        (NET + "from torch.nn import Linear\n", "net.py", "Net"),
        (NET + "BLOCKS = {'b': Block}\n", "net.py", "Net"),
    ],
)
def test_what_a_target_resolves_to(write: Write, text: str, target: str, name: str) -> None:
    write({"net.py": text})
    kwargs = ("width=3",) if target.endswith(":Block") else ()
    assert loaded(target, *kwargs).info.name == name


def test_a_class_used_through_a_function_or_a_constant_is_no_root(write: Write) -> None:
    used = HEAD + "class Inner(nn.Module):\n    pass\n"
    net = "class Outer(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = {call}\n"
    net += "        self.fc = nn.Linear(3, 3)\n    def forward(self, x):\n        return self.fc(x)\n"
    write({"a.py": used + "def make():\n    return Inner()\n" + net.format(call="make()")})
    write({"b.py": used + "KINDS = {'inner': Inner}\n" + net.format(call="KINDS['inner']()")})
    assert loaded("a.py").info.name == loaded("b.py").info.name == "Outer"


def test_constructor_arguments_are_literals_else_text(write: Write) -> None:
    write({"net.py": NET})
    model = loaded("net.py", "width=3", "name=deep net").model
    assert isinstance(model.block.fc, nn.Linear)
    assert model.block.fc.in_features == 3
    assert model.name == "deep net"


def test_a_factory_that_needs_arguments_is_called_when_they_are_given(write: Write) -> None:
    write({"net.py": NET + "def build_model(width):\n    return nn.Linear(width, 5)\n"})
    assert loaded("net.py", "width=3").info.name == "Linear"


def test_a_file_in_a_package_may_import_relatively(write: Write) -> None:
    write({
        "project/nets/__init__.py": "from nets import parts\n", "project/nets/sub/__init__.py": "", "project/nets/parts.py": NET,
        "project/nets/sub/net.py": "from ..parts import Net as Base\nclass Net(Base):\n    pass\n",
    })  # fmt: skip
    target = loaded("project/nets/sub/net.py")
    assert type(target.model).__module__ == "nets.sub.net"
    assert loaded("project/nets/__init__.py:parts.Net").info.name == "Net"


def test_a_file_in_a_package_may_import_its_neighbours_by_bare_name(write: Write) -> None:
    write({"nets/__init__.py": "", "nets/parts.py": NET, "nets/net.py": "from parts import Net\nmodel = Net()\n"})
    assert loaded("nets/net.py").info.name == "Net"


def test_a_dotted_module_is_imported_from_the_working_directory(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write({"nets/parts.py": NET, "installed/layers/parts.py": NET})
    assert loaded("nets.parts:Net").info.name == "Net"
    monkeypatch.syspath_prepend(Path("installed").resolve())
    assert loaded("layers.parts:Net").info.name == "Net"


def test_two_files_of_one_name_stay_apart(write: Write) -> None:
    for folder, size in (("a", 4), ("b", 5)):
        write({f"{folder}/net.py": HEAD + "from layers import SIZE\nmodel = nn.Linear(3, SIZE)\n"})
        write({f"{folder}/layers.py": f"SIZE = {size}\n"})
    first, second, again = loaded("a/net.py"), loaded("b/net.py"), loaded("a/net.py")
    sizes = [target.model(torch.empty(2, 3, device="meta")).shape[1] for target in (first, second, again)]
    assert sizes == [4, 5, 4]


def test_an_edited_file_is_read_anew(write: Write) -> None:
    write({"net.py": "from layers import model\n", "layers.py": HEAD + "model = nn.Linear(3, 4)\n"})
    assert loaded("net.py").model.out_features == 4
    write({"layers.py": HEAD + "model = nn.Linear(3, 50)\n"})
    assert loaded("net.py").model.out_features == 50


@pytest.mark.parametrize("name", ["json.py", "my-net.py", "torch.py"])
def test_a_file_may_have_any_name(write: Write, name: str) -> None:
    before = sys.modules["torch"]
    write({f"sub/{name}": NET})
    assert loaded(f"sub/{name}").info.name == "Net"
    assert sys.modules["torch"] is before


def test_a_dataclass_and_pickle_find_the_module(write: Write) -> None:
    write(
        {
            "net.py": "from __future__ import annotations\nfrom dataclasses import dataclass\n"
            + NET
            + "@dataclass\nclass C:\n    a: int\n"
        }
    )
    target = loaded("net.py")
    assert sys.modules[type(target.model).__module__].Net is type(target.model)


@pytest.mark.parametrize("ends", ["", "raise RuntimeError\n"])
def test_the_process_is_left_as_it_was(write: Write, ends: str, capsys: pytest.CaptureFixture[str]) -> None:
    change = "import os, sys, random\nprint('noise', sys.argv)\nsys.path.append('x')\n"
    change += "os.chdir('/')\nrandom.seed(3)\ntorch.manual_seed(3)\n"
    write({"nets/net.py": NET + change + ends})
    path, argv, cwd, state, drawn = list(sys.path), list(sys.argv), Path.cwd(), random.getstate(), torch.get_rng_state()
    handler, stdout = signal.getsignal(signal.SIGALRM), sys.stdout
    if ends:
        with pytest.raises(TargetError):
            load(TargetSpec(spec="nets/net.py", inputs=("2,3",), sliced=False))
    else:
        load(TargetSpec(spec="nets/net.py", inputs=("2,3",), sliced=False))
    assert (sys.path, sys.argv, Path.cwd(), random.getstate(), sys.stdout) == (path, argv, cwd, state, stdout)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert signal.getsignal(signal.SIGALRM) is handler
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "noise ['nets/net.py']" in captured.err


def test_cudnn_flags_set_on_import_are_put_back_and_named(write: Write) -> None:
    write({"net.py": NET + "torch.backends.cudnn.benchmark = True\n"})
    before = torch.backends.cudnn.benchmark
    target = loaded("net.py")
    assert not before
    assert torch.backends.cudnn.benchmark == before
    assert any("cudnn.benchmark=True" in note for note in map(str, target.info.notes))


def test_an_inputs_file_shares_the_targets_modules(write: Write) -> None:
    write({"net.py": "from parts import Net\nmodel = Net()\n", "parts.py": NET})
    write({"feed.py": "import parts, torch\ndef make():\n    return {'x': torch.ones(2, 3), 'kind': parts.Net}\n"})
    write(
        {
            "parts.py": NET.replace(
                "def forward(self, x):\n        return self.block",
                "def forward(self, x, kind):\n        return self.block",
            )
        }
    )
    target = load(TargetSpec(spec="net.py", inputs=("feed.py:make",)))
    assert target.batch.kwargs["kind"] is type(target.model)


def test_an_earlier_timer_goes_on_after_the_import(write: Write) -> None:
    write({"net.py": NET})
    rung = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    before = signal.setitimer(signal.ITIMER_REAL, 500)
    try:
        loaded("net.py")
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 400 < left <= 500
        assert not rung
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, handler)


def test_the_main_block_is_not_run(write: Write) -> None:
    write({"net.py": NET + "if __name__ == '__main__':\n    raise SystemExit('run')\n"})
    assert loaded("net.py").info.name == "Net"


def test_a_target_loads_outside_the_main_thread(write: Write) -> None:
    write({"net.py": NET})
    names: list[str] = []
    thread = threading.Thread(target=lambda: names.append(loaded("net.py").info.name))
    thread.start()
    thread.join()
    assert names == ["Net"]


@pytest.mark.usefixtures("sleeping_passes_time")
def test_the_watchdog_is_not_swallowed_by_the_users_handlers(write: Write) -> None:
    write(
        {"net.py": "import time\nwhile True:\n    try:\n        time.sleep(5)\n    except Exception:\n        pass\n"}
    )
    with pytest.raises(TargetError, match="still running after 60 s at line 4"):
        load(TargetSpec(spec="net.py", import_timeout_s=60, sliced=False))


def test_weights_and_inputs_depend_on_the_seed_alone(write: Write) -> None:
    write({"net.py": NET + "model = Net()\n", "cls.py": NET})
    for name in ("net.py", "cls.py"):
        torch.manual_seed(os.getpid())
        first = loaded(name, device="cpu")
        second = loaded(name, device="cpu")
        other = load(TargetSpec(spec=name, inputs=("2,3",), seed=1), device="cpu")
        weights = [target.model.block.fc.weight for target in (first, second, other)]
        assert torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[0], weights[2])
        assert torch.equal(first.batch.args[0], second.batch.args[0])
        assert not torch.equal(first.batch.args[0], other.batch.args[0])


def test_meta_and_cpu_agree_in_everything_but_values(write: Write) -> None:
    write({"net.py": NET, "built.py": NET + "model = Net()\n"})
    for name in ("net.py", "built.py"):
        meta, cpu = loaded(name), loaded(name, device="cpu")
        shapes = [{key: (t.shape, t.dtype) for key, t in target.model.state_dict().items()} for target in (meta, cpu)]
        assert shapes[0] == shapes[1]
        assert meta.info == cpu.info
        assert {t.device.type for t in (*meta.model.parameters(), *meta.batch.tensors())} == {"meta"}


def test_a_constructor_reads_values_of_small_tensors_and_large_weights_stay_on_meta(write: Write) -> None:
    for text in (
        "int(torch.ones(1).item())",
        "int(torch.linspace(1, 1, 3).cpu().numpy()[0])",
        "len(torch.eye(2).nonzero()) // 2",
    ):
        write({"net.py": NET.replace("Block(width)", f"Block({text} * width)")})
        target = loaded("net.py")
        assert {p.device.type for p in target.model.parameters()} == {"meta"}
        assert not any("built on the CPU" in note for note in map(str, target.info.notes))


def test_a_constructor_that_reads_values_of_large_tensors_is_built_on_the_cpu_and_says_so(write: Write) -> None:
    write({"net.py": NET.replace("Block(width)", "Block(int(torch.ones(1 << 17).mean().item()) * width)")})
    target = loaded("net.py")
    assert {p.device.type for p in target.model.parameters()} == {"meta"}
    assert any("built on the CPU" in note for note in map(str, target.info.notes))


def test_tensors_in_plain_attributes_are_on_meta_too(write: Write) -> None:
    write(
        {"net.py": NET.replace("Block(width), name", "Block(width), [torch.from_numpy(__import__('numpy').ones(3))]")}
    )
    assert loaded("net.py").model.name[0].device.type == "meta"


def test_a_model_of_the_callers_own_session_is_not_touched(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write({"own.py": NET + "model = Net().eval()\n"})
    monkeypatch.syspath_prepend(str(Path.cwd()))
    import own  # type: ignore[import-not-found]  # written by this test

    try:
        target = load(TargetSpec(spec="own:model", inputs=("2,3",)), device="cpu")
        assert target.model is not own.model
        assert target.model.training
        assert not own.model.training
        assert torch.equal(target.model.block.fc.weight, own.model.block.fc.weight)
    finally:
        del sys.modules["own"]


def test_lazy_layers_get_their_shapes(write: Write) -> None:
    write({"net.py": HEAD + "model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))\n"})
    for device in ("meta", "cpu"):
        target = loaded("net.py", device=device)
        assert target.model[0].weight.shape == (4, 3)
        assert target.model[2].weight.shape == (2, 4)
        assert any("lazy layers" in note for note in map(str, target.info.notes))


def test_a_compiled_model_is_taken_as_written(write: Write) -> None:
    write({"net.py": NET + "model = torch.compile(Net())\n"})
    for target in (loaded("net.py"), from_model(torch.compile(nn.Linear(3, 3)), torch.ones(2, 3))):
        assert "" in target.paths().values()
        assert target.info.name in ("Net", "Linear")
        assert any("torch.compile: the whole model is compiled" in note for note in map(str, target.info.notes))
