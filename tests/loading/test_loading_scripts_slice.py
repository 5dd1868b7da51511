"""Import by slice: what runs of a training script, and that a plain file is imported as by Python."""

from __future__ import annotations

import ast
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler_kit.errors import TargetError
from profiler_kit.loading.program.module_slice import slice_module
from profiler_kit.loading.program.places import place_of
from profiler_kit.loading.progress import progress_to
from profiler_kit.loading.scripts.import_errors import import_failure
from profiler_kit.loading.scripts.placeholders import Placeholder, UnavailableError
from profiler_kit.loading.scripts.source import Source, open_source
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code import time_limit as time_limits

HEAD = "import torch\nfrom torch import nn\n"
NET = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.fc = nn.Linear(WIDTH, 2)\n"
    "    def forward(self, x):\n"
    "        return self.fc(x)\n"
)
Open = Callable[..., Source]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Writes files into the working directory and opens the first one."""
    monkeypatch.chdir(tmp_path)

    def open_files(files: dict[str, str] | str, target: str | None = None, **options: object) -> Source:
        files = {"net.py": files} if isinstance(files, str) else files
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return open_source(TargetSpec(spec=target or next(iter(files)), **options))  # type: ignore[arg-type]

    return open_files


def ran_lines(text: str) -> set[int]:
    return {statement.lineno for statement in slice_module(ast.parse(text)).statements}


TRAINING = NET + (
    "WIDTH = 3\n"
    "net = Net().cuda()\n"
    "data = torch.load('data.pt')\n"
    "loader = torch.utils.data.DataLoader(data)\n"
    "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "for epoch in range(10):\n"
    "    for x in loader:\n"
    "        loss = net(x).sum()\n"
    "        loss.backward()\n"
    "torch.save(net, 'net.pt')\n"
)


def test_a_training_script_is_imported_without_its_training(opened: Open) -> None:
    source = opened(TRAINING)
    assert source.ran == "ran 4 of 10 top-level statements of net.py; skipped lines 10-18 (training loop)"
    assert source.names["WIDTH"] == 3
    assert "net" not in source.names
    assert list(Path.cwd().iterdir()) == [Path.cwd() / "net.py"]


@pytest.mark.parametrize(
    "line",
    [
        "WIDTH = 3",
        "WIDTH: int = 3",
        "WIDTH = {'a': [1, 2]}['a'][0]",
        "SIZES = []\nSIZES.append(3)\nWIDTH = SIZES[0]",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--w', default=3)\n"
        "WIDTH = parser.parse_args().w",
        "if torch.cuda.is_available():\n    WIDTH = 3\nelse:\n    WIDTH = 4",
        "try:\n    import no_such_package\n    WIDTH = 3\nexcept ImportError:\n    WIDTH = 4",
        "WIDTH = sum(n for n in range(3))",
        "for WIDTH in range(3):\n    pass",
        "def width():\n    return BASE\nWIDTH = width()\nBASE = 3",
    ],
)
def test_what_a_class_depends_on_runs(line: str) -> None:
    tree = ast.parse(NET + line)
    plan = slice_module(tree)
    assert plan.skipped == ()
    assert len(plan.statements) == plan.total


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import os\nos.makedirs('out', exist_ok=True)\n", "file output"),
        ("from torchvision import datasets\ntrain = datasets.MNIST('data', download=True)\n", "data set"),
        ("import subprocess\nsubprocess.run(['ls'])\n", "processes"),
        ("import urllib.request\nurllib.request.urlretrieve('http://x')\n", "download"),
        ("from matplotlib import pyplot as plt\nplt.plot([1])\n", "display"),
        ("open('log.txt', 'w').write('x')\n", "file output"),
        ("def train():\n    loss = 1\n    loss.backward()\ntrain()\n", "training loop"),
        ("main_model = nn.Linear(2, 2)\nmain_model.eval()\n", "not needed by a model"),
    ],
)
def test_a_skipped_line_has_a_reason(text: str, reason: str) -> None:
    plan = slice_module(ast.parse(HEAD + text))
    assert len(plan.skipped) == 1
    assert f"({reason})" in plan.note("net.py")


@pytest.mark.parametrize("name", ["profile", "*"])
def test_a_handler_that_defines_a_missing_name_runs(opened: Open, name: str) -> None:
    guard = "try:\n    profile\nexcept NameError:\n    def profile(function):\n        return function\n"
    decorated = NET.replace("    def forward", "    @profile\n    def forward")
    source = opened({"net.py": f"from helpers import {name}\n" + decorated + "WIDTH = 3\n", "helpers.py": guard})
    assert source.failures == ()
    assert source.module.Net().fc.in_features == 3
    assert slice_module(ast.parse(guard + decorated + "WIDTH = 3\n")).skipped == ()


def test_a_handler_of_a_statement_with_effects_does_not_run() -> None:
    text = NET + "try:\n    open('log.txt', 'w').write('x')\nexcept OSError:\n    WIDTH = 3\n"
    assert slice_module(ast.parse(text)).skipped != ()


def test_settings_of_libraries_and_registrations_run() -> None:
    text = NET + "WIDTH = 3\ntorch.manual_seed(1)\ntorch.backends.cudnn.benchmark = True\n"
    text += "lib = torch.library.Library('own', 'DEF')\nlib.define('f(Tensor x) -> Tensor')\n"
    text += "REGISTRY = {}\nREGISTRY['net'] = Net\n"
    assert slice_module(ast.parse(text)).skipped == ()


def test_branches_are_pruned() -> None:
    text = "import os\nif os.path.exists('x'):\n    A = 1\n    os.makedirs('y')\nelse:\n    A = 2\n"
    statements = slice_module(ast.parse(text)).statements
    assert ast.unparse(statements[-1]) == "if os.path.exists('x'):\n    A = 1\nelse:\n    A = 2"


def test_a_plain_file_is_imported_as_by_python(opened: Open) -> None:
    text = (
        '"""Text."""\nfrom __future__ import annotations\nimport sys\nfrom typing import TYPE_CHECKING\n'
        "if TYPE_CHECKING:\n    from nowhere import Thing\n"
        "try:\n    import no_such_package\nexcept ImportError:\n    no_such_package = None\n"
        "if sys.version_info >= (3, 0):\n    class A:\n        x: Thing = 1\nelse:\n    class A:\n        x = 2\n"
        "def decorated(f):\n    f.mark = True\n    return f\n"
        "@decorated\ndef f(a: Thing = 1): return a\n"
        "__all__ = ['A', 'f']\nA.y = [i for i in range(3)]\ndel sys\n"
    )
    source = opened({"plain_net.py": text})
    namespace: dict[str, object] = {"__name__": "plain_net"}
    exec(compile(text, "plain_net.py", "exec", dont_inherit=True), namespace)
    assert source.ran == ""
    assert set(vars(source.module)) - {"__file__", "__cached__", "__loader__", "__spec__", "__package__"} == set(
        namespace
    )
    assert source.module.__doc__ == "Text."
    assert source.module.A.__annotations__ == {"x": "Thing"}
    assert source.module.A.y == [0, 1, 2]
    assert sys.modules["plain_net"] is source.module
    assert pickle.loads(pickle.dumps(source.module.A)) is source.module.A


def test_no_slice_imports_the_file_as_it_is(opened: Open) -> None:
    source = opened(NET + "WIDTH = 3\nopen('log.txt', 'w').close()\n", sliced=False)
    assert source.ran == ""
    assert Path("log.txt").exists()


def test_modules_of_the_repository_are_sliced_too(opened: Open) -> None:
    helper = "import os\n_, columns = os.popen('stty size').read().split()\ndef bar():\n    return columns\nSIZE = 3\n"
    source = opened({"net.py": "from helper import bar, SIZE\nWIDTH = SIZE\n" + NET, "helper.py": helper})
    assert source.names["WIDTH"] == 3


def test_a_name_that_an_importer_asks_for_is_run(opened: Open) -> None:
    helper = HEAD + "import math\nlayers = nn.Sequential(nn.Linear(2, int(math.sqrt(9.0))))\nother = nn.Linear(1, 1)\n"
    source = opened({"net.py": "from helper import layers\n" + NET, "helper.py": helper})
    assert source.names["layers"][0].out_features == 3


def test_a_missing_package_matters_only_if_the_model_uses_it(opened: Open) -> None:
    text = "import no_such_logger\nfrom no_such_parts import Block, Other as B\nimport torch.no_such_part\n" + NET
    text += "WIDTH = 3\nwriter = no_such_logger.Writer()\nclass Uses(Block):\n    pass\n"
    source = opened(text)
    assert callable(source.names["Net"])
    assert source.names["torch"].nn is source.names["nn"]
    for name in ("no_such_logger", "Block", "B", "Uses"):
        assert name not in source.names
        assert isinstance(vars(source.module)[name], Placeholder)
    assert not any("no_such" in name for name in sys.modules)
    with pytest.raises(ModuleNotFoundError, match="no_such_parts") as raised:
        source.module.B(3)
    error = import_failure(source.spec, source.file, raised.value)
    assert error.hint == f"install it in this environment: {sys.executable} -m pip install no_such_parts"


@pytest.mark.parametrize(
    "use", ["x()", "[*x]", "len(x)", "class A(x): pass", "isinstance(1, x)", "bool(x)", "x.y.z()", "x + 1"]
)
def test_each_use_of_a_placeholder_names_the_package(opened: Open, use: str) -> None:
    source = opened("import no_such_package as x\n")
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
        exec(use, dict(vars(source.module)))


def test_a_handler_that_only_reports_leaves_placeholders(opened: Open) -> None:
    text = "try:\n    import no_such_package\n    import torch.nn as nn\n"
    text += "except ImportError as error:\n    print(error)\n    raise\n"
    source = opened(text + "class Net(nn.Module):\n    pass\n")
    assert callable(source.names["Net"])


def test_folders_above_are_searched_and_announced(opened: Open) -> None:
    files = {"repo/README.md": "", "repo/lib/parts.py": "SIZE = 3\n", "repo/lib/__init__.py": ""}
    before = list(sys.path)
    source = opened({**files, "repo/tools/net.py": "from lib.parts import SIZE as WIDTH\n" + NET}, "repo/tools/net.py")
    assert source.names["WIDTH"] == 3
    assert source.notes == ("imports: lib is in repo, which was added to sys.path",)
    assert sys.path == before


def test_relative_imports_work_without_an_init_file(opened: Open) -> None:
    files = {"top/nets/net.py": "from ..common import SIZE as WIDTH\n" + NET, "top/common.py": "SIZE = 3\n"}
    for _ in range(2):
        source = opened(files)
        assert source.module.__name__ == "top.nets.net"
        assert source.names["WIDTH"] == 3


def test_a_required_argument_without_choices_is_not_available_and_is_announced(opened: Open) -> None:
    text = "import argparse\nparser = argparse.ArgumentParser()\n"
    text += "parser.add_argument('data')\nparser.add_argument('--n', type=int, required=True)\n"
    text += "parser.add_argument('--kind', choices=['a', 'b'], required=True)\n"
    text += "parser.add_argument('--size', type=int, default=7)\n"
    source = opened(text + "WIDTH = parser.parse_args()\n" + NET)
    options = source.names["WIDTH"]
    assert (options.kind, options.size) == ("a", 7)
    with pytest.raises(UnavailableError, match="--n is not available: it is required and has no default"):
        int(options.n)
    assert source.notes == ("arguments without a default: data (not available), n (not available), kind='a'",)


def test_the_reason_of_an_unavailable_target_is_its_error(opened: Open) -> None:
    source = opened(NET + "WIDTH = 3\nmodel = Net(1, 2)\n")
    assert [failure.names for failure in source.failures] == [("model",)]
    assert "TypeError" in str(source.failures[0].error)


@pytest.mark.usefixtures("sleeping_passes_time")
def test_an_endless_loop_that_the_model_needs_is_stopped_with_its_line(opened: Open) -> None:
    lines: list[str] = []
    # the first interrupt, after 60 s, meets the code that catches it
    step = "WIDTH += time.sleep(1) or 1"
    loop = f"while WIDTH:\n    {step}\n    try:\n        {step}\n    except BaseException:\n        pass\n"
    text = f"{NET}import time\nWIDTH = 3\n{loop}"
    caught = text.splitlines().index("    try:") + 2
    with (
        progress_to(lines.append),
        pytest.raises(TargetError, match=f"import still running after 60 s at line {caught}"),
    ):
        opened(text, import_timeout_s=60)
    assert len(lines) == 60 / time_limits.PROGRESS_AFTER_S - 1
    assert all(line.startswith(f"importing net.py:{caught}") and line.endswith(" ...") for line in lines[1::2])


CASES = NET + (
    "import argparse\n"
    "parser = argparse.ArgumentParser()\n"
    "parser.add_argument('--data', required=True)\n"
    "options = parser.parse_args()\n"
    "if options.data == 'cifar':\n"
    "    images = load_cifar()\n"
    "    WIDTH = 3\n"
    "elif options.data == 'mnist':\n"
    "    images = load_mnist()\n"
    "    WIDTH, DEPTH = 1, 2\n"
    "    WIDTH = 1\n"
)


def test_a_chain_over_a_required_option_binds_the_constants_of_its_first_case(opened: Open) -> None:
    source = opened(CASES)
    assert source.module.WIDTH == 3
    assert source.module.Net().fc.in_features == 3
    assert not hasattr(source.module, "DEPTH")
    assert [note for note in source.notes if note.startswith("WIDTH")] == [
        "WIDTH = 3: the first case at net.py:13, since no case applies"
    ]


def test_a_case_that_applies_binds_its_own_constants(opened: Open) -> None:
    source = opened(CASES.replace("required=True", "default='mnist'"))
    assert source.module.WIDTH == 1
    assert not any(note.startswith("WIDTH") for note in source.notes)


def test_a_constant_of_a_plain_branch_stays_unbound(opened: Open) -> None:
    source = opened("import sys\nif sys.version_info < (3,):\n    OLD = True\n" + NET + "WIDTH = 3\n")
    assert not hasattr(source.module, "OLD")


@pytest.mark.parametrize(
    "error", ["OSError('libtorch.so: undefined symbol')", "RuntimeError('no kernel')", "AttributeError('int')"]
)
def test_an_installed_package_that_cannot_be_imported_is_unavailable(
    opened: Open, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    packages = tmp_path_factory.mktemp("packages")
    (packages / "textlibrary.py").write_text(f"raise {error}\n")
    monkeypatch.syspath_prepend(str(packages))
    source = opened("from textlibrary import data\n" + NET + "WIDTH = 3\n")
    assert source.module.Net().fc.in_features == 3
    assert isinstance(source.module.data, Placeholder)
    message = error.partition("'")[2].removesuffix("')")
    with pytest.raises(Exception, match=rf"data is not available: .*{message}.*net\.py:1"):
        source.module.data.Field()


def test_an_error_in_the_import_of_a_file_of_the_repository_is_raised(opened: Open) -> None:
    with pytest.raises(TargetError, match=r"invalid syntax|expected"):
        opened({"net.py": "from helper import width\n" + NET, "helper.py": "def width(:\n"})


def test_a_skipped_name_exists_when_a_script_asks_for_it(opened: Open) -> None:
    net = "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
    text = f"{net}def sizes(): return {{'small': 8}}\nTABLE = sizes()\nTABLE['large'] = 16\nOTHER = Net(4)\n"
    source = opened({"net.py": text, "train.py": "from net import TABLE, Net\nnet = Net(TABLE['large'])\n"})
    assert "TABLE" not in source.names
    own = source.names["Net"]
    document = next(d for d in source.documents if d.kind == "importer")
    (call,) = (node for node in ast.walk(document.tree) if isinstance(node, ast.Subscript))
    assert source.evaluator.value(place_of(document, call), call) == 16
    assert source.names["Net"] is own  # the class exists once
    assert "OTHER" not in source.names  # others still do not run
    with pytest.raises(AttributeError, match="'net' has no attribute 'nothing'"):
        _ = source.module.nothing
