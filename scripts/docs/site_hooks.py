"""Hooks of mkdocs: pages link to files of the repository, as on GitHub, and the site has these files too; guides are found first.

A link from a page in docs/ to a file outside it, such as ``../CONTRIBUTING.md``, leads to a generated page under ``project/``.
A source file becomes a page with its code.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
PROJECT: Final = "project/"  # where the site has files from outside docs/
LINK: Final = re.compile(r"(?P<head>\]\()(?P<target>[^()\s#:]+)(?P<anchor>#[^()\s]*)?(?P<end>\))")
ROOT_PAGES: Final = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LANGUAGES: Final = {".py": "python", ".toml": "toml", ".yml": "yaml", "": "text"}
LOOKED_UP: Final = ("Reference", "Evidence", "Develop")  # sections whose pages repeat the words of the guides
FENCED: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def repository_path(page: str) -> str:
    """The path in the repository of the file that the site's source `page` comes from."""
    return page.removeprefix(PROJECT) if page.startswith(PROJECT) else f"docs/{page}"


def site_path(path: str) -> str:
    """The source path in the site of the repository's file `path`."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PROJECT + (path if path.endswith(".md") else f"{path}.md")


def linked_files(text: str, page: str) -> Iterator[str]:
    """The files of the repository outside docs/ that the source `page` with Markdown `text` links to."""
    folder = posixpath.dirname(repository_path(page))
    for link in LINK.finditer(FENCED.sub("", text)):
        path = posixpath.normpath(posixpath.join(folder, link["target"]))
        if not path.startswith("docs/") and (ROOT / path).is_file():
            yield path


def page_of(path: str) -> str:
    """The Markdown of the page for the repository's file `path`: itself, or its code."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n```{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n```\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a generated page for each file outside docs/ that a page links to."""
    pending = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    added = list(ROOT_PAGES)
    for page, text in pending:
        added += [path for path in linked_files(text, page) if path not in added]
    for path in added:  # grows: an added page may link to more files
        text = page_of(path)
        files.append(File.generated(config, site_path(path), content=text))
        if path.endswith(".md"):
            added += [other for other in linked_files(text, site_path(path)) if other not in added]
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links to files outside docs/, and links of such files, at their pages."""
    source = page.file.src_uri
    if any(section.title in LOOKED_UP for section in page.ancestors):
        page.meta["search"] = {"boost": 0.1}
    folder = posixpath.dirname(repository_path(source))

    def updated_link(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["target"]))
        if not (ROOT / path).is_file() or (path.startswith("docs/") and not source.startswith(PROJECT)):
            return link[0]
        target = posixpath.relpath(site_path(path), posixpath.dirname(source) or ".")
        return f"{link['head']}{target}{link['anchor'] or ''}{link['end']}"

    return LINK.sub(updated_link, markdown)
