"""Wrong targets and inputs: the names and numbers in the message, the location, the hint and the exit code."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler_kit.errors import TARGET_FAILED, USAGE, KitError
from profiler_kit.loading import explain_forward_failure, load
from profiler_kit.records.target import TargetSpec

HEAD = "import torch\nfrom torch import nn\n"  # what follows begins in line 3
NET = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self, width=4):\n"
    "        super().__init__()\n"
    "        self.conv = nn.Conv2d(3, width, 3, padding=1)\n"
    "    def forward(self, x):\n"
    "        return self.conv(x)\n"
)
NEEDY = NET.replace("width=4", "table, rule").replace("(3, width,", "(3, len(open(table).read()) + rule,")
BARE = HEAD + "class Net(nn.Module):\n    pass\n"
ENCODER_DECODER = HEAD + "class Encoder(nn.Module):\n    pass\nclass Decoder(nn.Module):\n    pass\n"
MASKED = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.table = nn.Embedding(30522, 4)\n"
    "    def forward(self, ids, mask):\n"
    "        return self.table(ids) * mask.unsqueeze(-1)\n"
)
EMBED = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.table = nn.Embedding(30522, 4)\n"
    "    def forward(self, ids):\n"
    "        return self.table(ids)\n"
)
CHAIN = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.features = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.Flatten(), nn.Linear(2048, 10))\n"
    "    def forward(self, x):\n"
    "        return self.features(x)\n"
)
BRANCHING = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.fc = nn.Linear(3, 3)\n"
    "    def forward(self, x):\n"
    "        scale = x.sum().item()\n"
    "        return self.fc(x) * scale\n"
)


def linear(extra: str = "", forward: str = "return self.fc(x)") -> str:
    """A file with a Linear(3, 3) network, `extra` code after it, and another body of forward."""
    return (
        HEAD
        + (
            "class Net(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.fc = nn.Linear(3, 3)\n"
            f"    def forward(self, x):\n        {forward}\n"
        )
        + extra
    )


@dataclass(frozen=True)
class Bad:
    """Files, the words of the command line, and what the user is told."""

    name: str
    files: dict[str, str]
    spec: dict[str, Any]
    message: str
    where: str
    hint: str
    code: int = TARGET_FAILED
    device: str = "meta"


def bad(name: str, code_text: str | dict[str, str], message: str, where: str, hint: str, **rest: Any) -> Bad:
    """A row; a single file is net.py, and the target unless `spec` says otherwise."""
    files = {"net.py": code_text} if isinstance(code_text, str) else code_text
    known = {key: rest.pop(key) for key in ("code", "device") if key in rest}
    return Bad(
        name=name, files=files, spec={"spec": "net.py", **rest}, message=message, where=where, hint=hint, **known
    )


ROWS = [
    # the twelve commonest mistakes (the twelfth, an incomparable baseline, is no target's)
    bad(
        "1 no model", {"tools.py": "WIDTH = 3\n", "net.py": NET},
        "did you mean net.py?",
        "tools.py", "profiler-kit analyze net.py", spec="tools.py",
    ),
    bad(
        "2 two models", ENCODER_DECODER,
        "Encoder defines no forward", "net.py:3", "define forward(self, x)",
    ),
    bad(
        "3 constructor arguments", NEEDY,
        "Net() needs table, rule", "net.py:3", "define a function get_model() that returns it with its arguments",
    ),
    bad(
        "4 no input shape", NET,
        "no input shape: forward(x) needs 1 input",
        "net.py", "profiler-kit analyze net.py -i 1,3,256,256", allow_guess=False,
    ),
    bad(
        "5 shape mismatch", CHAIN,
        "features.2 (Linear): got 1x8192, needs 1x2048",
        "net.py:8", "profiler-kit analyze net.py -i 1,3,32,32", inputs=("1,3,64,64",),
    ),
    bad(
        "6 missing input", MASKED,
        "forward(ids, mask)",
        "net.py:3", "profiler-kit analyze net.py -i 8,16:int64 -i mask=8,16:bool", inputs=("8,16:int64[0:9]",),
    ),
    bad(
        "7 embedding got float", EMBED,
        "table (Embedding) needs integers, but 'ids' is float32",
        "net.py:8", "profiler-kit analyze net.py -i '8,128:int64[0:30522]'", inputs=("8,128",),
    ),
    bad(
        "8 missing package", "import no_such_package_at_all as base\n" + NET.replace("nn.Module", "base.Net"),
        "import failed: No module named 'no_such_package_at_all'",
        "net.py:1", f"{sys.executable} -m pip install no_such_package_at_all",
    ),
    bad(
        "10 import does not end", NET + "import time\nwhile True:\n    time.sleep(1)\n",
        "import still running after 60 s at line ",
        "net.py:1", "skip it, without --no-slice: profiler-kit analyze net.py", import_timeout_s=60, sliced=False,
    ),
    bad(
        "11 data-dependent control flow", BRANCHING,
        "data-dependent control flow (.item()) cannot run on meta",
        "net.py:8", "profiler-kit analyze net.py -i 1,3 --device cpu", inputs=("1,3",),
    ),
    # the TARGET text
    bad("no target", "", "no target", "", "give the file", spec="", code=USAGE),
    bad("missing file", NET, "no such file", "nett.py", "profiler-kit analyze net.py", spec="nett.py"),
    bad("folder", {"nets/net.py": NET}, "a folder", "nets", "profiler-kit analyze nets/net.py", spec="nets"),
    bad(
        "not Python", {"net.pt": "x"},
        "not a Python file", "net.pt", "give the file", spec="net.pt",
    ),
    bad("forgotten suffix", NET, "no such file", "net", "profiler-kit analyze net.py", spec="net"),
    bad("bare word", "", "resnet", "", "resnet:Net", spec="resnet", code=USAGE),
    bad(
        "no name after the colon", NET,
        "'1x'", "", "after the colon", spec="net.py:1x", code=USAGE,
    ),
    bad("no file before the colon", NET, "no file before the colon", "", "net.py:Net", spec=":Net", code=USAGE),
    bad(
        "module not found", "",
        "No module named 'no_pkg'", "no_pkg.net:Net", "'no_pkg'", spec="no_pkg.net:Net",
    ),
    bad(
        "attribute missing", NET,
        "no 'Nett'", "net.py", "profiler-kit analyze net.py:Net", spec="net.py:Nett",
    ),
    bad(
        "attribute is a number", NET + "SIZE = 3\n",
        "SIZE is an int, not a model", "net.py:9", "profiler-kit analyze net.py", spec="net.py:SIZE",
    ),
    bad(
        "class is no module", NET + "class Data:\n    pass\n",
        "Data is a class", "net.py:9", "profiler-kit analyze net.py", spec="net.py:Data",
    ),
    # importing
    bad("syntax error", "x = 1\ndef f(:\n", "syntax error: ", "net.py:2", "net.py"),
    bad(
        "syntax error elsewhere", {"net.py": "import part\n", "part.py": "x =\n"},
        "syntax error: ", "part.py:1", "fix the syntax of this line",
    ),
    bad(
        "import raises", NET + "1 / 0\n",
        "import failed: ZeroDivisionError: division by zero", "net.py:9", "net.py", sliced=False,
    ),
    bad(
        "import exits", NET + "import sys\nsys.exit(2)\n",
        "import called sys.exit(2)", "net.py:10", "profiler-kit analyze net.py", sliced=False,
    ),
    bad(
        "argparse at import",
        NET + "import argparse\np = argparse.ArgumentParser()\np.add_argument('x')\np.parse_args()\n",
        "import called sys.exit(2)", "net.py:12", "profiler-kit analyze net.py", sliced=False,
    ),
    bad(
        "module of the folder above", {"project/nets/net.py": "import common_parts\n" + NET, "project/common_parts.py": ""},
        "No module named 'common_parts'",
        "project/nets/net.py:1", "PYTHONPATH=project profiler-kit analyze project/nets/net.py", spec="project/nets/net.py",
        sliced=False,
    ),
    bad(
        "relative import above the package", {"top/nets/net.py": "from ..x import y\n", "top/nets/__init__.py": ""},
        "the package 'nets'",
        "top/nets/net.py:1", "touch top/__init__.py && profiler-kit analyze top/nets/net.py", spec="top/nets/net.py",
        sliced=False,
    ),
    bad(
        "relative import of a missing module", {"top/nets/net.py": "from ..x import y\n"},
        "No module named 'top.x'",
        "top/nets/net.py:1", "top has no 'x'", spec="top/nets/net.py",
    ),
    bad("package by another name", "import cv2\n", "No module named 'cv2'", "net.py:1", "-m pip install opencv-python"),
    # building
    bad(
        "build returns None", NET + "def build():\n    Net()\n",
        "build() returned None", "net.py:9", "return the module, or (module, inputs)", spec="net.py:build",
    ),
    bad(
        "build returns a list", NET + "def build():\n    return [Net()]\n",
        "build() returned a list", "net.py:9", "return the module", spec="net.py:build",
    ),
    bad(
        "constructor raises", NET.replace("super().__init__()", "raise ValueError('odd width')"),
        "Net() raised ValueError: odd width", "net.py:5", "fix it there, or pass other arguments with --kw",
    ),
    bad(
        "constructor forgets super", NET.replace("super().__init__()", "pass"),
        "cannot assign module before Module.__init__() call", "net.py:6", "fix it there",
    ),
    bad(
        "constructor exits", NET.replace("super().__init__()", "raise SystemExit(3)"),
        "Net() raised SystemExit: 3", "net.py:5", "fix it there",
    ),
    bad(
        "constructor starts a process", "import os\n" + NET.replace("super().__init__()", "os.system('true')"),
        "does not allow a new process", "net.py:6", "--no-slice",
    ),
    bad(
        "unknown argument", NET,
        "Net() has no parameter 'widht'", "net.py:3", "width", kwargs=("widht=3",), code=USAGE,
    ),
    bad(
        "argument without value", NET,
        "--kw width: ", "", "--kw width=64", kwargs=("width",), code=USAGE,
    ),
    bad("argument twice", NET, "--kw width=... is given twice", "", "once", kwargs=("width=3", "width=4"), code=USAGE),
    bad(
        "argument false", NET,
        "'false'", "", "--kw width=False", kwargs=("width=false",), code=USAGE,
    ),
    bad(
        "argument for a built model", NET + "model = Net()\n",
        "'model'", "net.py:9", "omit it: profiler-kit analyze net.py", kwargs=("width=3",), code=USAGE,
    ),
    bad("no forward", BARE, "Net defines no forward", "net.py:3", "define forward(self, x)"),
    bad(
        "nothing to train", HEAD + "model = nn.ReLU()\n",
        "ReLU has no trainable parameters", "net.py:3", "--mode infer", inputs=("2,3",), optimizer="sgd",
    ),
    # inputs
    *(
        bad(f"input {text!r}", NET, f"-i {text}: {part}", "", "[name=]DIMS[:dtype][[lo:hi]]", inputs=(text,), code=USAGE)
        for text, part in {  # the invalid part of each text
            "": "", "x=8:int64[0:9]]": "[0:9]]",
            "8x3": "'8x3'", "8,,3": "a dimension is missing", "8,0": "a dimension",
            "8,-1": "'-1'", "2a=8": "'2a'", "8:int64[0]": "[0]",
            "8:int64[3:3]": "[3:3]",
            "8:bool[0:2]": "bool", "8:int64[0:1.5]": "the range of int64",
            "8:uint8[0:999]": "[0:999]",
            "8:float16[0:1e6]": "[0:1e6]", "[0:1]": "a dimension is missing",
        }.items()
    ),
    bad(
        "input of unknown dtype", NET,
        "unknown dtype 'float33'", "", "one of float32, float64", inputs=("8:float33",), code=USAGE,
    ),
    bad("input twice", NET, "-i x=... is given twice", "", "once", inputs=("x=1,3,8,8", "x=1,3,8,8"), code=USAGE),
    bad(
        "too many inputs", NET,
        "forward(x) takes 1",
        "net.py:3", "profiler-kit analyze net.py -i 1,3,8,8", inputs=("1,3,8,8", "4"), code=USAGE,
    ),
    bad(
        "unknown input", NET,
        "forward(x) has no input 'y'", "net.py:3", "one of x", inputs=("y=1,3,8,8",), code=USAGE,
    ),
    bad(
        "input by place and name", NET,
        "'x' is given twice",
        "net.py:3", "name all inputs", inputs=("1,3,8,8", "x=1,3,8,8"), code=USAGE,
    ),
    bad(
        "inputs file missing", NET,
        "no such file", "feed.py", "the file that defines the function", inputs=("feed.py:make",), code=USAGE,
    ),
    bad(
        "inputs function missing", {"net.py": NET, "feed.py": ""},
        "no 'make'", "feed.py", "define make()", inputs=("feed.py:make",),
    ),
    bad(
        "inputs function raises", {"net.py": NET, "feed.py": "def make():\n    1 / 0\n"},
        "feed.py:make() raised ZeroDivisionError", "feed.py:2", "-i", inputs=("feed.py:make",),
    ),
    bad(
        "inputs file and more", NET,
        "feed.py:make", "", "return", inputs=("feed.py:make", "8"), code=USAGE,
    ),
    bad(
        "example_inputs are words", NET + "example_inputs = 'yes'\n",
        "example_inputs is a str without tensors", "net.py", "-i 1,3,256,256",
    ),
    bad(
        "two inputs and no shape", MASKED,
        "no input shape: forward(ids, mask) needs 2 inputs",
        "net.py", "-i '1,128:int64[0:30522]' -i 1,128:bool", allow_guess=False,
    ),
    bad(
        "wrong channels", NET,
        "shape mismatch in conv (Conv2d): got 2x1x8x8, needs 2x3x8x8",
        "net.py:8", "profiler-kit analyze net.py -i 2,3,8,8", inputs=("2,1,8,8",),
    ),
    bad(
        "forgotten batch dimension of a Linear", linear(),
        "shape mismatch in fc (Linear): got 5x4, needs 5x3",
        "net.py:8", "profiler-kit analyze net.py -i 5,3", inputs=("5,4",),
    ),
    bad(
        "index outside the table", EMBED,
        "30522 rows",
        "net.py:8", "int64[0:30522]", inputs=("2,3:int64[40000:40001]",), device="cpu",
    ),
    bad(
        "functional mismatch", linear(forward="return self.fc(x) + torch.ones(7, device=x.device)"),
        "shape mismatch in Net: RuntimeError", "net.py:8", "or pass inputs other than -i 2,3", inputs=("2,3",),
    ),
    bad(
        "forward raises", linear(forward="raise KeyError('scale')"),
        "forward of Net raised KeyError: 'scale'", "net.py:8", "or pass inputs other than -i 2,3", inputs=("2,3",),
    ),
    bad(
        "one row for a batch norm", HEAD + "model = nn.BatchNorm1d(3)\n",
        "needs more than one value per channel", "", "--batch 2", inputs=("1,3",), device="cpu",
    ),
    bad(
        "tensor made on another device", linear(forward="return self.fc(x) + torch.ones(3)"),
        "a tensor is not on the model's device (meta)", "net.py:8", "device=x.device", inputs=("2,3",),
    ),
    # words
    bad("unknown loss", NET, "loss 'hinge'", "", "one of cross_entropy, nll", loss="hinge", code=USAGE),
    bad("unknown optimizer", NET, "optimizer 'lion'", "", "one of sgd", optimizer="lion", code=USAGE),
    bad("unknown dtype", NET, "unknown --dtype 'int8'", "", "one of float32", dtype="int8", code=USAGE),
    bad("unknown amp", NET, "unknown --amp 'float32'", "", "one of bfloat16, float16", amp="float32", code=USAGE),
    bad("batch of none", NET, "--batch 0", "", "--batch 8", batch=0, code=USAGE),
    bad("unknown device", NET, "unknown device 'gpuu'", "", "meta, cpu or cuda", device="gpuu", code=USAGE),
    # loss, optimizer, loader
    bad(
        "loss_fn is a number", linear("loss_fn = 3\n"),
        "loss_fn is an int, not a function", "net.py:9", "define loss_fn(output, *inputs)",
    ),
    bad(
        "loss_fn returns a row", linear("def loss_fn(output, x):\n    return output.sum(1)\n"),
        "the loss loss_fn has shape (1,)", "net.py:9", "return loss.mean()",
    ),
    bad(
        "loss_fn returns a number", linear("def loss_fn(output, x):\n    return 1.0\n"),
        "loss_fn returned a float, not a tensor", "net.py:9", "return the scalar loss tensor",
    ),
    bad(
        "loss_fn raises", linear("def loss_fn(output, x):\n    return output.nonsense\n"),
        "the loss loss_fn raised AttributeError", "net.py:10", "loss_fn(output, *labels)",
    ),
    bad(
        "loss without gradient", linear(forward="return self.fc(x).detach()"),
        "does not depend on any parameter", "", "--mode infer", loss="sum",
    ),
    bad(
        "output without floats", linear(forward="return self.fc(x).argmax(1)"),
        "a Tensor", "", "define loss_fn(output, *inputs)", loss="cross_entropy",
    ),
    bad(
        "configure_optimizer returns a list", linear("def configure_optimizer(model):\n    return [1]\n"),
        "configure_optimizer(model) returned a list, not an optimizer", "net.py:9", "--optimizer adamw",
    ),
    bad(
        "configure_optimizer raises", linear("def configure_optimizer(model):\n    return torch.optim.SGD([])\n"),
        "configure_optimizer(model) raised ValueError", "net.py:10", "--optimizer adamw",
    ),
    bad(
        "configure_optimizer is a number", linear("configure_optimizer = 3\n"),
        "configure_optimizer is an int, not a function", "net.py:9", "--optimizer adamw",
    ),
    bad(
        "loader is read once", linear("train_loader = iter([torch.ones(2, 3)])\n"),
        "train_loader is an iterator, which can be read only once", "net.py:9", "get_loader()",
    ),
    bad("loader is empty", linear("train_loader = []\n"), "train_loader", "net.py:9", "-i"),
    bad("loader is a number", linear("train_loader = 3\n"), "train_loader is an int", "net.py:9", "iterable of batches"),
    bad(
        "loader gives words", linear("train_loader = ['cat']\n"),
        "a str", "net.py:9", "(inputs..., labels) tuples",
    ),
    bad(
        "loader gives no tensor", linear("train_loader = [('cat', 1)]\n"),
        "no tensor for forward(x)", "net.py:9", "(inputs..., labels) tuples",
    ),
    bad(
        "loader raises", linear("def get_loader():\n    raise OSError('no data')\n"),
        "get_loader() raised OSError: no data", "net.py:10", "-i",
    ),
    bad(
        "loader function returns None", linear("def get_loader():\n    pass\n"),
        "get_loader() returned None", "net.py:9", "return an iterable of batches",
    ),
]  # fmt: skip


def step(spec: TargetSpec, device: str) -> None:
    """Everything a stage does with a target once: load it, run it, take the loss, make the optimizer."""
    target = load(spec, device=device)
    try:
        output = target.model(*target.batch.args, **target.batch.kwargs)
    except Exception as error:
        raise explain_forward_failure(target, error) from error
    target.loss(output, target.batch, target.labels_for(output))
    target.make_optimizer()


@pytest.mark.usefixtures("sleeping_passes_time")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_bad_input(row: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in row.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KitError) as caught:
        step(TargetSpec(**row.spec), row.device)
    error = caught.value
    assert row.message in error.message
    assert row.where in (error.where or "")
    assert row.hint in (error.hint or ""), error.hint
    assert error.exit_code == row.code


def test_every_error_has_a_next_step() -> None:
    assert all(row.hint for row in ROWS)
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_out_of_memory_is_not_explained_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    target = load(TargetSpec(spec="net.py", inputs=("1,3,8,8",)))
    for error in (torch.OutOfMemoryError("CUDA out of memory."), MemoryError(), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught:
            explain_forward_failure(target, error)
        assert caught.value is error
