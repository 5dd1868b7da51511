"""What the text of a program says: one answer to each question, whoever asks."""

from __future__ import annotations

import ast
import copy
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler_kit.loading.program.definitions import definition_lines, root_classes
from profiler_kit.loading.program.imports import TargetNames, imported_files, module_files
from profiler_kit.loading.program.names import all_nodes, argument, assigned, calls_in, walk_scope
from profiler_kit.loading.program.parameter_reads import reads_of
from profiler_kit.loading.program.places import conditions, is_main_guard
from profiler_kit.loading.program.repository import repository_root
from profiler_kit.loading.scripts.source import open_source
from profiler_kit.loading.training_step.file_losses import own_loss
from profiler_kit.records.target import TargetSpec


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("__name__ == '__main__'", True),
        ("'__main__' == __name__", True),
        ("__name__ == '__main__' and torch.cuda.is_available()", True),
        ("__name__ == 'net'", False),
        ("mode == '__main__'", False),
    ],
)
def test_the_main_guard_with_further_conditions(test: str, expected: bool) -> None:
    assert is_main_guard(ast.parse(f"if {test}:\n    pass").body[0]) is expected


def test_conditions_around_a_statement_end_at_its_scope() -> None:
    tree = ast.parse(
        "if a:\n def f():\n  if b:\n   pass\n  else:\n   for x in y:\n    if __name__ == '__main__':\n     net()"
    )
    statement = next(node for node in ast.walk(tree) if isinstance(node, ast.Expr))
    assert [(ast.unparse(node.test), value) for node, value in conditions(tree, statement)] == [("b", False)]


def test_an_attribute_that_is_set_later_defines_nothing() -> None:
    tree = ast.parse("class A(nn.Module): ...\ntry:\n    B = 1\nexcept E:\n    B = 2\nA.name = 1\nB += 1\ndel B")
    assert definition_lines(tree) == {"A": 1, "B": 5}
    assert root_classes(tree) == ("A",)


def test_assignments_and_arguments_of_calls() -> None:
    statements = ast.parse("(a, (b, c)), d = (1, (2, x)), y\ng = h = z\ne: int = 3\nf: int").body
    pairs = [(ast.unparse(target), ast.unparse(value)) for node in statements for target, value in assigned(node)]
    assert pairs == [("a", "1"), ("b", "2"), ("c", "x"), ("d", "y"), ("g", "z"), ("h", "z"), ("e", "3")]
    call = calls_in(ast.parse("f(1, *rest, 2, size=3)"))[0]
    values = [argument(call, "size", 0), argument(call, "x", 0), argument(call, "x", 2), argument(call, "x")]
    assert [ast.unparse(value) if value is not None else None for value in values] == ["3", "1", None, None]


def test_a_folder_that_many_projects_share_is_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "pyproject.toml").touch()
    assert repository_root(project / "net.py") == tmp_path
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert repository_root(project / "other.py") == project


def test_the_nearest_file_of_an_import_comes_first(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("app/layers.py", "layers/__init__.py", "src/layers.py")]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    importer = tmp_path / "app" / "train.py"
    assert module_files("layers", 0, importer) == files
    assert module_files("layers", 2, importer) == files[1:2]
    node = ast.parse("from layers import Net").body[0]
    assert imported_files(node, importer, tmp_path / "app") == {files[0]}
    assert TargetNames(files[0]).aliases(ast.Module(body=[node], type_ignores=[]), importer) == (
        [(1, "Net", "Net")],
        False,
    )
    assert TargetNames(files[2]).aliases(ast.Module(body=[node], type_ignores=[]), importer) == (
        [(1, "Net", None)],
        False,
    )


def test_a_local_name_loss_fn_is_no_use_of_the_loss_of_the_file(tmp_path: Path) -> None:
    text = "import torch\nclass Net(torch.nn.Module):\n    def fit(self):\n        loss_fn = print\n        loss_fn()\n"
    file = tmp_path / "net.py"
    file.write_text(text + "def loss_fn(output, x):\n    return output.mean()\n")
    source = open_source(TargetSpec(spec=str(file)))
    assert own_loss(source) is source.names["loss_fn"]


def test_a_package_that_exports_the_target_is_another_name_of_it(tmp_path: Path) -> None:
    for name, text in {
        "models/net.py": "class Net: ...\n",
        "models/__init__.py": "from .net import *\n",
        "use.py": "import models\nmodels.Net()\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    names = TargetNames(tmp_path / "models/net.py")
    use = tmp_path / "use.py"
    assert names.aliases(ast.parse(use.read_text()), use) == ([(1, "models", "")], False)
    assert not names.are_imported(ast.parse("from models import Other"), use)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x, y = p", {"unpacked": 2}),
        ("return p['image'] + p['mask']", {"keys": ("image", "mask")}),
        ("return p.x + p.edge_index", {"attributes": ("x", "edge_index")}),
        ("return p[0] + p[2]", {"count": 3, "is_numbered": True}),
        ("return p[0] + p.sum()", {"count": 1, "is_numbered": False}),
        ("p = p[0]\n    return p.sum()", {"count": 1, "is_numbered": True}),
        ("return self.f(**p)", {"is_keywords": True}),
        ("return self.step(1, p)", {"passed_to": (("self.step", 1),)}),
    ],
)
def test_how_a_function_reads_a_parameter(body: str, expected: dict[str, object]) -> None:
    """One answer for forward's parameters and for the batch of a Lightning step."""
    reads = reads_of(ast.parse(f"def f(self, p):\n    {body}\n").body[0], "p")
    for name, value in expected.items():
        actual = getattr(reads, name)
        assert (len(actual) if name == "unpacked" else actual) == value


@pytest.mark.parametrize("nodes", [all_nodes, walk_scope])
def test_nodes_are_those_of_the_tree_at_hand(nodes: Callable[[ast.AST], tuple[ast.AST, ...]]) -> None:
    statement = ast.parse("y = f(x)").body[0]
    assert nodes(statement) is nodes(statement)
    changed = copy.copy(statement)
    changed.value = ast.Constant(value=1)  # type: ignore[attr-defined]
    assert {type(node).__name__ for node in nodes(changed)} == {"Assign", "Name", "Store", "Constant"}
