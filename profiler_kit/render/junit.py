"""JUnit XML of a result of `check`: one suite per target, one case per budget. For GitLab, Jenkins and Azure Pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

from profiler_kit.records.check import CheckResult
from profiler_kit.records.document import Document
from profiler_kit.render import CHECK_KINDS, Renderer, RenderOptions
from profiler_kit.render._check_results import budget_name, name_of, problems, target_results
from profiler_kit.render._text import one_line, without_commands


def render(document: Document, options: RenderOptions) -> str:
    """The suites. A budget that could not be judged is an error, a warning is a skipped case. Raises: UsageError."""
    suites = [_suite(result) for result in target_results(document, "junit")]
    body = "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", *suites, "</testsuites>"])
    return without_commands(body, "&#58;", "&#91;") + "\n"


def _suite(result: CheckResult) -> str:
    by_name = {name: (sentence, fails) for name, sentence, fails in problems(result)}
    outcomes = {budget_name(row): row.outcome for row in result.budgets}
    names = [*outcomes, *(name for name in by_name if name not in outcomes)] or [""]
    tags = [_tag(name, by_name, outcomes) for name in names]
    cases = [_case(result, name, tag, by_name) for name, tag in zip(names, tags, strict=True)]
    numbers = " ".join(
        f'{key}="{tags.count(tag)}"'
        for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    )
    heads = f'<testsuite name={_attribute(name_of(result))} tests="{len(cases)}" {numbers}>'
    return "\n".join([heads, *cases, "</testsuite>"])


def _tag(name: str, by_name: dict[str, tuple[str, bool]], outcomes: Mapping[str, str]) -> str:
    if name not in by_name:
        return ""
    if not by_name[name][1]:
        return "skipped"
    return "failure" if outcomes.get(name) == "broken" else "error"


def _case(result: CheckResult, name: str, tag: str, by_name: dict[str, tuple[str, bool]]) -> str:
    start = f"<testcase classname={_attribute(f'profiler-kit.{name_of(result)}')} name={_attribute(name or 'check')}"
    if not tag:
        return f"{start}/>"
    return f"{start}><{tag} message={_attribute(by_name[name][0])}/></testcase>"


def _attribute(written: str) -> str:
    """`written` quoted; characters that XML forbids are shown as escapes."""
    return quoteattr(one_line(written))


RENDERER = Renderer("junit", (".xml",), "JUnit XML of check, one case per budget", render, kinds=CHECK_KINDS)
