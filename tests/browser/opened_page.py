"""A page in the browser, and what the tests ask of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page


class Opened:
    """A page in the browser, and what went wrong in it: errors, requests for other files, dialogs."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("dialog", self._dismiss)
        page.on("console", lambda message: self.problems.append(f"console: {message.text}"))
        page.on(
            "request", lambda request: request.url == file.as_uri() or self.problems.append(f"request: {request.url}")
        )
        page.goto(file.as_uri())

    def _dismiss(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def eventually(self, condition: Callable[[], bool], message: str = "") -> None:
        """Wait until `condition` holds: pages draw in the next frame, which takes longer on a busy machine."""
        for _ in range(100):
            if condition():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(message or "the page does not change")

    def draw_all(self) -> None:
        """Unfold everything, and scroll to each chart so that it is drawn."""
        self.page.evaluate("""async () => {
          document.querySelectorAll("details").forEach((element) => { element.open = true; });
          for (const chart of document.querySelectorAll("[data-chart]")) {
            chart.scrollIntoView();
            for (let i = 0; i < 500 && !chart.childElementCount; i++) await new Promise((done) => setTimeout(done, 10));
          }
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        }""")

    def shown(self, chart: str, name: str) -> Any:
        """What the first chart whose figure has the class `chart` states about its picture; None if it states nothing."""
        return self.page.evaluate(
            "([kind, name]) => document.querySelector(`figure.${kind} .chart`).dataset[name] ?? null", [chart, name]
        )
