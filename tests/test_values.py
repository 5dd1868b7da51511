"""Code decides on codes and fields: no decision is taken on a sentence that the package wrote for people."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent / "profiler_kit"
# Names and attributes that hold sentences; `text` is one only as an attribute: the parsers of options call their input `text`.
SENTENCES: Final = frozenset(
    [
        "advice",
        "caption",
        "description",
        "detail",
        "details",
        "explanation",
        "headline",
        "hint",
        "message",
        "messages",
        "note",
        "notes",
        "reason",
        "reasons",
        "sentence",
        "sentences",
        "summary",
        "title",
        "verdict",
        "why",
    ]
)
TESTS: Final = frozenset(
    {"startswith", "endswith", "partition", "rpartition", "split", "find", "index", "rfind", "count"}
)
PATTERNS: Final = frozenset({"match", "search", "fullmatch", "findall", "finditer", "split"})
UNCHANGED: Final = frozenset({"lower", "upper", "casefold", "strip", "rstrip", "lstrip"})  # of the same sentence
# Files that read text which another program writes.
EXCEPTIONS: Final = {
    "cli/parser.py": "the messages of argparse",
    "gate/base.py": "the output of a process that counts another revision, and Python's message on a missing module",
    "gate/git.py": "the output of git",
    "loading/assembly.py": "an optimizer's call in the user's file",
    "loading/evidence/model_calls.py": "documents of the user's repository",
    "loading/messages.py": "the messages of torch, NumPy and Python, which become problems here",
    "loading/program/documents.py": "documents of the user's repository",
    "loading/scripts/import_errors.py": "Python's messages on imports",
    "records/serde.py": "the messages of msgspec",
    "user_code/locations.py": "torch's messages on memory",
    "worker/run.py": "torch's messages, which get a code here",
}
# Files that only put sentences together.
LAYOUT: Final = {
    "comparison/sentences.py": "a capital letter at the start of a sentence",
    "loading/candidates/construction.py": "the names that a message has already",
    "loading/inference_hint.py": "the order of two commands in a hint",
    "report/verdict.py": "a full stop at the end",
}


def name_of(value: ast.expr) -> str:
    """Return the last name in `value`, without calls that leave a sentence as it is; empty for another expression."""
    match value:
        case ast.Call(func=ast.Attribute(attr=method, value=inner)) if method in UNCHANGED:
            return name_of(inner)
        case ast.Call(func=ast.Name(id="str" | "error_text"), args=[ast.Name(id=name) | ast.Attribute(attr=name)]) if (
            "error" in name
        ):
            return name  # the message of an exception
        case ast.Name(id=name):
            return name if name.rpartition("_")[2] in SENTENCES else ""
        case ast.Attribute(attr=name):
            return name if name == "text" or name.rpartition("_")[2] in SENTENCES else ""
        case ast.Subscript(value=inner):
            return name_of(inner)
        case _:
            return ""


def decisions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each sentence that is searched, split or matched."""
    for node in ast.walk(tree):
        sentences: list[ast.expr] = []
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):  # codespell:ignore notin
            is_list = name_of(node.comparators[0]).endswith("s") and not isinstance(
                node.left, (ast.Constant, ast.JoinedStr)
            )
            sentences = [] if is_list else [node.comparators[0]]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            sentences = [node.func.value] if node.func.attr in TESTS and node.args else []
            sentences += node.args if node.func.attr in PATTERNS else []
        yield from ((node.lineno, name) for sentence in sentences if (name := name_of(sentence)))


def found_in(path: Path) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{line}: {name}" for line, name in decisions(ast.parse(path.read_text("utf-8")))]


def test_no_decision_is_taken_on_a_sentence() -> None:
    allowed = EXCEPTIONS | LAYOUT
    files = [path for path in sorted(ROOT.rglob("*.py")) if str(path.relative_to(ROOT)) not in allowed]
    assert [place for path in files for place in found_in(path)] == []


@pytest.mark.parametrize("name", sorted(EXCEPTIONS | LAYOUT))
def test_every_exception_is_needed(name: str) -> None:
    assert found_in(ROOT / name)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ('"guess" in note.lower()', "note"),
        ('first.message.partition("\\nhint: ")', "message"),
        ("section.title.endswith(UNFOLDED)", "title"),
        ("ATTRIBUTION in row.reason", "reason"),
        ("any(word in message for word in words)", "message"),
        ("SHARE.findall(finding.title)", "title"),
        ('notes[0].startswith("Skipped")', "notes"),
        ("pattern.search(advice[:9])", "advice"),
        ('re.match("x", error.text)', "text"),
        ('"same dtype" in str(failure.error)', "error"),
    ],
)
def test_the_walk_finds_such_code(code: str, name: str) -> None:
    assert [name for _, name in decisions(ast.parse(code))] == [name]


@pytest.mark.parametrize(
    "code", ["note in notes", 'note.code == "guessed"', 'text.partition("=")', "note.text.strip()"]
)
def test_the_walk_leaves_other_code_alone(code: str) -> None:
    assert list(decisions(ast.parse(code))) == []
