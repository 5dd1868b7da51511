"""The documentation site builds without a warning, loads nothing from the network, and leads to every page."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from profiler_kit.cli.commands import commands
from scripts.docs import commands_page, site_hooks

pytestmark = pytest.mark.jobs

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*(ROOT / name for name in site_hooks.ROOT_PAGES), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
LIST_ITEM = re.compile(r"(?P<indent> *)(?:- |\d+\. )")
REMOTE = re.compile(r"(?:https?:)?//")
REMOTE_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//")
# Elements that a browser loads by itself. Regular expressions, because a parser of HTML takes seconds for the site.
LOADING_TAG = re.compile(r"<(?:script|img|iframe|source|video|audio|embed|object|link)\b[^>]*>")
ADDRESS = re.compile(r"\b(?:src|href|data)=[\"']?([^\s\"'>]+)")
PASSIVE_LINK = re.compile(r"\brel=[\"']?(?:canonical|next|prev|edit|alternate)\b")
HREF = re.compile(r"<a\b[^>]*?href=[\"']?([^\s\"'>#]+)")


def remote_loads(html: str) -> list[str]:
    """The addresses outside the site that a browser loads for the page `html`."""
    tags = (tag for tag in LOADING_TAG.findall(html) if not PASSIVE_LINK.search(tag))
    return [*(url for tag in tags for url in ADDRESS.findall(tag) if REMOTE.match(url)), *REMOTE_STYLE.findall(html)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site. A warning fails the build."""
    for package in ("material", "mkdocstrings", "mkdocstrings_handlers.python"):
        pytest.importorskip(package)
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("mkdocs")
    logger.addHandler(handler)
    try:
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    finally:
        logger.removeHandler(handler)
    assert messages == []
    return folder


def test_no_page_loads_from_the_network(site: Path) -> None:
    remote = {
        str(file.relative_to(site)): loads
        for file in site.rglob("*.html")
        if (loads := remote_loads(file.read_text(encoding="utf-8")))
    }
    styles = {file.name for file in site.rglob("*.css") if REMOTE_STYLE.search(file.read_text(encoding="utf-8"))}
    assert (remote, styles) == ({}, set())


def test_the_navigation_leads_to_every_page(site: Path) -> None:
    targets = set(HREF.findall((site / "index.html").read_text(encoding="utf-8")))
    pages = {file.relative_to(site).as_posix() for file in site.rglob("*.html")}
    assert {page for page in pages - targets - {"404.html"} if not page.startswith("project/models/")} == set()
    assert {"tutorial_trace.html", "commands.html", "project/CONTRIBUTING.html"} <= targets


def test_the_api_page_documents_every_public_name(site: Path) -> None:
    import profiler_kit

    html = (site / "api.html").read_text(encoding="utf-8")
    names = [name for name in profiler_kit.__all__ if name != "__version__"]
    assert [name for name in names if f'id="profiler_kit.{name}"' not in html] == []
    # The one-line `Raises: X` of a docstring is text, the indented section is a list.
    assert 'class="doc-section-title">Raises' in html


def test_the_search_finds_guides_before_references(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    boost = {entry["location"].split("#")[0]: entry.get("boost", 1) for entry in entries}
    assert boost["inspect_json.html"] < boost["ranks.html"] == boost["faq.html"]
    titles = " ".join(entry["title"] for entry in entries if entry["location"].startswith("faq.html"))
    assert all(words in titles for words in ("out of memory", "straggler", "GPU utilization"))


def test_a_linked_source_file_is_a_page(site: Path) -> None:
    assert "class" in (site / "project" / "models" / "convnet_v0.py.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<script src="https://cdn.example/a.js"></script>', ["https://cdn.example/a.js"]),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', ["//fonts.example/a.css"]),
        ('<img src="https://badges.example/a.svg">', ["https://badges.example/a.svg"]),
        ("<style>p { background: url(https://example.org/a.png) }</style>", ["url(https://"]),
        ('<a href="https://example.org">text</a><img src="images/a.png"><link rel="canonical" href="https://a">', []),
    ],
)
def test_loads_from_the_network_are_recognized(html: str, expected: list[str]) -> None:
    assert remote_loads(html) == expected


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("case-studies.md", "../models/convnet_v0.py", "project/models/convnet_v0.py.md"),
        ("index.md", "../CONTRIBUTING.md#set-up", "project/CONTRIBUTING.md#set-up"),
        ("project/CONTRIBUTING.md", "docs/architecture.md", "../architecture.md"),
        ("project/CONTRIBUTING.md", "CHANGELOG.md", "CHANGELOG.md"),
        ("index.md", "reading.md", "reading.md"),
        ("index.md", "https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(page: str, link: str, expected: str) -> None:
    source = SimpleNamespace(file=SimpleNamespace(src_uri=page), ancestors=[])
    assert site_hooks.on_page_markdown(f"[text]({link})", source) == f"[text]({expected})"


def test_the_page_of_commands_has_every_option() -> None:
    parts = commands_page.command_parts()
    sections = re.split(r"^## ", parts["commands"], flags=re.MULTILINE)[1:]
    assert [section.partition("\n")[0] for section in sections] == [command.name for command in commands()]
    missing = [
        (command.name, option.names[-1])
        for command, section in zip(commands(), sections, strict=True)
        for option in commands_page.options_of(command)
        if option.names and option.names[-1] not in section
    ]
    assert missing == []
    assert [parts["shared"].count(f"| `{name} ") for name in ("--kw", "--budget", "-f, --format")] == [1, 1, 1]


def list_errors(text: str) -> list[str]:
    """The lines of `text` that GitHub shows as list items and Python-Markdown does not."""
    errors = []
    previous = ""
    for line in FENCE.sub("", text).splitlines():
        item = LIST_ITEM.match(line)
        if item and (
            len(item["indent"]) % 4
            or (previous.strip() and not previous.startswith(" ") and not LIST_ITEM.match(previous))
        ):
            errors.append(line)
        previous = line
    return errors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_are_lists_on_the_site_too(page: Path) -> None:
    assert list_errors(page.read_text(encoding="utf-8")) == []


def test_a_list_without_an_empty_line_before_it_is_an_error() -> None:
    assert list_errors("text:\n- a\n  more\n- b\n\n- c\n  - d\n") == ["- a", "  - d"]
