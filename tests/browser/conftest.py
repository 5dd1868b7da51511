"""One browser for all tests, and the pages that they open."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opened_page import Opened
from pages import PAGES

from profiler_kit.render import RenderOptions
from profiler_kit.render.html import render

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make test-browser")
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        pytest.skip(f"needs a browser: install {' or '.join(NAMES)}")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a page, which is rendered on first use."""
    folder = tmp_path_factory.mktemp("pages")

    def file_of(name: str) -> Path:
        file = folder / f"{name}.html"
        if not file.exists():
            file.write_text(render(PAGES[name](), RenderOptions(detail=True)), encoding="utf-8")
        return file

    return file_of


@pytest.fixture
def open_page(browser: Browser, files: Callable[[str], Path]) -> Iterator[Callable[..., Opened]]:
    """Open a page by its name in a fresh context with the given settings. At the end nothing may have gone wrong in it."""
    contexts, opened_pages = [], []

    def open_named(name: str, **settings: Any) -> Opened:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **settings)
        contexts.append(context)
        opened_pages.append(Opened(context.new_page(), files(name)))
        return opened_pages[-1]

    yield open_named
    problems = [problem for opened in opened_pages for problem in opened.problems]
    for context in contexts:
        context.close()
    assert problems == []
