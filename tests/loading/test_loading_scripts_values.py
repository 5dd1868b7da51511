"""Values of expressions at their place: in functions, branches, importers, docstrings and READMEs; and which texts those are."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler_kit.loading.program.code_blocks import docstring_blocks, markdown_blocks
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.places import place_of
from profiler_kit.loading.scripts.execution import EvaluationError
from profiler_kit.loading.scripts.source import Source, open_source
from profiler_kit.records.target import TargetSpec

NET = (
    "import torch\nfrom torch import nn\n"
    "class Net(nn.Module):\n"
    "    def __init__(self, *sizes, **options):\n"
    "        super().__init__()\n"
    "        self.sizes, self.options = sizes, options\n"
    "        self.fc = nn.Linear(2, 3)\n"
)
Open = Callable[[dict[str, str]], Source]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Writes files into the working directory and opens the first one."""
    monkeypatch.chdir(tmp_path)

    def open_files(files: dict[str, str]) -> Source:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return open_source(TargetSpec(spec=next(iter(files))))

    return open_files


def first_call(source: Source, function: str = "Net") -> tuple[Document, ast.Call]:
    for document in source.documents:
        for node in ast.walk(document.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                return document, node
    raise AssertionError(function)


def value(source: Source, **bindings: object) -> Any:
    document, call = first_call(source)
    return source.evaluator.value(place_of(document, call), call, bindings)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("net = Net(3)\n", (3,)),
        ("a = 1\nb = a + 1\na = 5\nnet = Net(b, a)\na = 9\n", (2, 5)),
        ("if __name__ == '__main__':\n    n = 4\n    net = Net(n)\n", (4,)),
        ("def main():\n    n = 4\n    print('x')\n    net = Net(n)\n    return net\n", (4,)),
        ("def main(n=4):\n    net = Net(n)\n", (4,)),
        ("def main(n, m=2):\n    net = Net(n, m)\nmain(m=7, n=5)\n", (5, 7)),
        (
            "def build(n):\n    return Net(n)\ndef main(k):\n    build(k + 1)\nif __name__ == '__main__':\n    main(5)\n",
            (6,),
        ),
        (
            "kind = 'b'\nif kind == 'a':\n    n = 1\nelif kind == 'b':\n    n = 2\nelse:\n    n = 3\nnet = Net(n)\n",
            (2,),
        ),
        ("if False:\n    net = Net(8)\n", (8,)),
        ("for n in (6, 7):\n    net = Net(n)\n", (6,)),
        ("n = 0\nfor i in range(3):\n    n += i\nnet = Net(n)\n", (3,)),
        ("with torch.no_grad():\n    n = 2\n    net = Net(n)\n", (2,)),
        ("try:\n    n = missing\nexcept NameError:\n    n = 3\nnet = Net(n)\n", (3,)),
        ("n = [1]\nn.append(2)\nn[0] = 4\nnet = Net(*n)\n", (4, 2)),
        ("def width():\n    return BASE * 2\nBASE = 3\nnet = Net(width())\n", (6,)),
        ("class Box:\n    n = 3\n    net = Net(n)\n", (3,)),
        ("nets = [Net(n) for n in (1, 2)]\n", None),
        ("import click\n@click.option('--deep-net', default=9)\ndef main(deep_net):\n    Net(deep_net)\n", (9,)),
        (
            "from dataclasses import dataclass\n@dataclass\nclass C:\n    n: int = 5\nc = C()\nc.n = 6\nnet = Net(c.n)\n",
            (6,),
        ),
    ],
)
def test_the_value_of_a_call_at_its_place(opened: Open, text: str, sizes: tuple[int, ...] | None) -> None:
    source = opened({"net.py": NET + text})
    if sizes is None:
        document, call = first_call(source)
        with pytest.raises(EvaluationError, match="name 'n' is not defined"):
            source.evaluator.value(place_of(document, call), call)
        return
    net = value(source)
    assert net.sizes == sizes
    assert type(net) is source.module.Net


def test_arguments_of_a_training_script_are_their_defaults(opened: Open) -> None:
    train = (
        "import argparse\nfrom net import Net\n"
        "def get_parser():\n"
        "    parser = argparse.ArgumentParser()\n"
        "    group = parser.add_argument_group('model')\n"
        "    group.add_argument('--width', type=int, default=6)\n"
        "    parser.add_argument('data')\n"
        "    return parser\n"
        "def main(args):\n"
        "    args.depth = args.width // 2\n"
        "    loader = load(args.data)\n"
        "    net = Net(args.width, args.depth).cuda()\n"
        "    for x in loader:\n"
        "        net(x).backward()\n"
        "if __name__ == '__main__':\n"
        "    args = get_parser().parse_args()\n"
        "    main(args)\n"
    )
    source = opened({"net.py": NET, "train.py": train})
    net = value(source)
    assert net.sizes == (6, 3)
    assert type(net) is source.module.Net
    assert source.evaluator.notes == ["arguments without a default: data (not available)"]


def test_bindings_replace_names(opened: Open) -> None:
    source = opened({"net.py": NET + "def build(n, options):\n    return Net(n, **options)\n"})
    net = value(source, n=8, options={"a": 1})
    assert (net.sizes, net.options) == ((8,), {"a": 1})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def build(n):\n    return Net(n)\n", "n of build() has no default, and no call passes it"),
        (
            "class Wrapper:\n    def build(self):\n        return Net(self.n)\n",
            "no method of Wrapper assigns self.n",
        ),
        ("data = torch.load('none.pt')\nn = len(data)\nnet = Net(n)\n", "FileNotFoundError"),
        (
            "from torchvision import datasets\ndata = datasets.MNIST('x')\nnet = Net(len(data.classes))\n",
            "data set, which does not run",
        ),
        ("net = Net(1 / 0)\n", "ZeroDivisionError"),
        ("import no_such_package\nnet = Net(no_such_package.N)\n", "No module named 'no_such_package'"),
        ("import sys\nnet = Net(sys.exit(3))\n", "SystemExit"),
        ("def endless():\n    while True:\n        pass\nnet = Net(endless())\n", "still running after 0.3 s"),
        ("net = Net(open('log.txt', 'w'))\n", "loading a model does not allow a written file"),
    ],
)
def test_an_expression_without_a_value_has_a_reason_and_a_line(opened: Open, text: str, reason: str) -> None:
    source = opened({"net.py": NET + text})
    if "endless" in text:
        source.evaluator.timeout_s = 0.3
    with pytest.raises(EvaluationError) as raised:
        value(source)
    assert reason in raised.value.reason
    assert raised.value.where.startswith("net.py:")
    assert not Path("log.txt").exists()


def test_an_evaluation_works_on_meta(opened: Open) -> None:
    source = opened({"net.py": NET + "def main():\n    Net(3)\n"})
    with torch.device("meta"):
        assert value(source).fc.weight.is_meta


def test_a_global_of_the_main_block_reaches_the_methods(opened: Open) -> None:
    net = NET + "        self.device = DEVICE\nif __name__ == '__main__':\n    DEVICE = 'cpu'\n    net = Net()\n"
    assert value(opened({"net.py": net})).device == "cpu"


def test_values_of_names(opened: Open) -> None:
    source = opened({"net.py": NET + "n = 3\nm = n + 1\nnet = Net(n)\n"})
    document, call = first_call(source)
    place = place_of(document, call)
    assert source.evaluator.values(place, ("n", "m")) == {"n": 3, "m": 4}
    with pytest.raises(EvaluationError, match="other is not defined"):
        source.evaluator.values(place, ("other",))


FILES = {
    "models/net.py": '"""Nets.\n\n    >>> Net(2)\n"""\n' + NET,
    "models/__init__.py": "from .net import *\n",
    "models/other.py": "class Other: pass\n",
    "train.py": "from models import *\nnet = Net(4)\n",
    "tools/show.py": "from models.net import Net\n",
    "unrelated.py": "from models import Other\n",
    "broken.py": "from models.net import Net\nx = (\n",
    "README.md": (
        "# Use\nText\n```python\nfrom models import Net\n```\nMore\n```python\nnet = Net(5)\n```\n"
        "# Run\n```bash\npython train.py\n```\n"
    ),
}


def test_documents_of_a_repository(opened: Open) -> None:
    source = opened(FILES)
    assert [(d.kind, d.at(1)) for d in source.documents] == [
        ("target", "models/net.py:1"),
        ("importer", "broken.py:1"),
        ("importer", "train.py:1"),
        ("importer", "tools/show.py:1"),
        ("docstring", "models/net.py:3"),
        ("readme", "README.md:4"),
    ]
    assert source.documents is source.documents  # found once


@pytest.mark.parametrize(("kind", "size"), [("importer", 4), ("docstring", 2), ("readme", 5)])
def test_a_call_in_each_kind_of_document(opened: Open, kind: str, size: int) -> None:
    source = opened(FILES)
    for document in source.documents:
        for node in ast.walk(document.tree):
            if document.kind == kind and isinstance(node, ast.Call):
                net = source.evaluator.value(place_of(document, node), node)
                assert net.sizes == (size,)
                assert type(net) is source.module.Net
                return
    raise AssertionError(kind)


def test_an_importer_by_another_name_gets_the_same_class(opened: Open) -> None:
    source = opened({"nets/net.py": NET, "nets/__init__.py": "", "nets/demo.py": "from net import Net\nnet = Net(1)\n"})
    assert source.module.__name__ == "nets.net"
    assert type(value(source)) is source.module.Net


def test_places_name_their_scopes(opened: Open) -> None:
    source = opened({"net.py": NET + "class A:\n    def f(self):\n        if True:\n            x = Net(1)\n"})
    document, call = first_call(source)
    place = place_of(document, call)
    assert [scope.name for scope in place.scopes] == ["A", "f"]
    assert place.where == "net.py:11"


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        (
            "# A\n```python\nx = 1\n```\ntext\n```py\ny = 2\n```\n# B\n```\nz()\n```\n",
            [("x = 1\n\n\n\ny = 2", 2), ("z()", 10)],
        ),
        ("```python\n>>> x = 1\n1\n>>> f(\n... 2)\n```\n", [("x = 1\n\nf(\n2)", 1)]),
        ("```bash\npip install x\n```\n", []),
        ("Use\n===\n\n.. code-block:: python\n\n    x = 1\n\nText\n", [("x = 1", 5)]),
    ],
)
def test_code_of_a_readme(text: str, blocks: list[tuple[str, int]]) -> None:
    assert [(block.text.rstrip(), block.line_offset) for block in markdown_blocks(text)] == blocks


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("Net.\n\nExample:\n    net = Net(3)\n    net(x)\n\nMore.", [("net = Net(3)\nnet(x)", 3)]),
        ("Net.\n\nUsage::\n\n    net = Net(3)\n", [("net = Net(3)", 4)]),
        ("Net.\n    >>> net = Net(3)\n    >>> net(x)\n    3\n", [("net = Net(3)\nnet(x)", 1)]),
        ("Net.\n```\nNet(3)\n```\n", [("Net(3)", 2)]),
        ("Net takes x and returns y.\n", []),
    ],
)
def test_code_of_a_docstring(text: str, blocks: list[tuple[str, int]]) -> None:
    assert [(block.text.rstrip(), block.line_offset) for block in docstring_blocks(text)] == blocks


OPTIONS = (
    "import argparse, json\n"
    "def options():\n"
    "    args = argparse.ArgumentParser().parse_args([])\n"
    "    args.width = 64\n"
    "    args.folder = args.root / 'runs'\n"  # the root is a required option of the program
    "    {write}\n"
    "    args.classes = len(open(args.folder).read())\n"
    "    print(args)\n"
    "    return args\n"
)


@pytest.mark.parametrize("write", ["open(args.folder, 'w')", "raise SystemExit('no GPU')", "pass"])
@pytest.mark.parametrize("place", ["script", "module"])
def test_a_failing_function_gives_what_its_result_depends_on(
    opened: Open, place: str, write: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = OPTIONS.format(write=write)
    call = "from net import Net\nargs = {}options()\nnet = Net(args.width, args)\n"
    files = {"net.py": NET, "train.py": text + call.format("")}
    if place == "module":
        files = {"net.py": NET, "train.py": "import opts\n" + call.format("opts."), "opts.py": text}
    source = opened(files)
    document, net = first_call(source)
    assert source.evaluator.value(place_of(document, net), net.args[0]) == 64
    assert capsys.readouterr() == ("", "")  # options that a program prints are no output of ours
    classes = ast.copy_location(ast.Attribute(value=net.args[1], attr="classes", ctx=ast.Load()), net)
    with pytest.raises(EvaluationError):  # a part that is not available never looks like a value
        source.evaluator.value(place_of(document, net), classes)


@pytest.mark.parametrize(
    ("files", "width"),
    [
        ({"README.md": "python train.py -h\npython train.py --config conf/small.json\n"}, 8),  # the documented command
        ({}, 16),  # the default one of the repository
    ],
)
def test_a_program_without_its_configuration_gets_that_of_the_repository(
    opened: Open, files: dict[str, str], width: int
) -> None:
    train = (
        "import argparse, json\nfrom net import Net\np = argparse.ArgumentParser()\n"
        f"p.add_argument('--config', required={not files})\n"
        "config = json.load(open(p.parse_args().config))\nnet = Net(config['width'])\n"
    )
    configurations = {"conf/small.json": '{"width": 8}', "conf/default.json": '{"width": 16}'}
    assert value(opened({"net.py": NET, "train.py": train} | configurations | files)).sizes == (width,)
