"""Count model files of public repositories with no option, and compare each answer with what a maintainer would expect.

    python -m scripts.bench.strangers [--folder CHECKOUTS] [--packages DIR] [--only TEXT] [--jobs N] [-f markdown|json]

strangers.json lists repositories, commits, files and expected models. Without --folder the repositories are fetched with git
from GitHub into --cache. A file is *ok* if `count FILE` exits with 0, and *right* if class, parameters and inputs are among the
acceptable ones. If it is not right, the first command that the tool prints is run too. Exits with 1 if a run had a side effect.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from scripts.bench.stranger_expectations import (
    ExpectedFile,
    Repository,
    find_difference,
    format_inputs,
    read_expectations,
)
from scripts.bench.stranger_hazards import HAZARDS, source_of
from scripts.bench.stranger_runs import Run, make_sandbox, run_count
from scripts.bench.stranger_tables import markdown_tables

DEFAULT_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "profiler_kit_strangers"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """The outcome of one file.

    - `right`: the answer is acceptable; for a file without a model, the command failed with an error message.
    - `problem`: the difference or the error message.
    - `right_after_hint`: None if the answer was right or no command was printed.
    - `scored`: whether the file counts in the totals.
    """

    repository: str
    group: str
    path: str
    role: str
    scored: bool
    ok: bool
    right: bool
    problem: str
    right_after_hint: bool | None
    hint: str
    class_name: str
    inputs: str
    parameters: int | None
    macs: int | None
    notes: tuple[str, ...]
    seconds: float
    side_effects: tuple[str, ...]


def evaluate_file(
    repository: Repository, file: ExpectedFile, checkout: Path, options: argparse.Namespace
) -> FileResult:
    """Run `count` on one file, then the hint if the answer is not right."""
    missing = [name for name in file.packages if not _is_installed(name, options.packages)]
    with make_sandbox(checkout) as sandbox:
        run = run_count(["count", file.path], sandbox, options.packages, options.time_limit)
        problem = problem_of(run, file)
        side_effects = list(run.side_effects)
        after_hint = None
        if problem and run.hint and file.role == "model":
            followed = run_count(run.hint, sandbox, options.packages, options.time_limit)
            after_hint = not problem_of(followed, file)
            side_effects += [f"{text} (hint)" for text in followed.side_effects]
    answer = run.answer
    return FileResult(
        repository=repository.name,
        group=repository.group,
        path=file.path,
        role=f"needs {', '.join(missing)}" if missing else file.role,
        scored=file.role == "model" and not missing,
        ok=answer is not None,
        right=not problem,
        problem=problem,
        right_after_hint=after_hint,
        hint=" ".join(run.hint),
        class_name=answer.class_name if answer else "",
        inputs=format_inputs(answer.inputs) if answer else "",
        parameters=answer.parameters if answer else None,
        macs=answer.macs if answer else None,
        notes=answer.notes if answer else (),
        seconds=round(run.seconds, 2),
        side_effects=tuple(side_effects),
    )


def problem_of(run: Run, file: ExpectedFile) -> str:
    """Return why the outcome of a run is not the expected one; an empty text if it is."""
    if run.answer is None:
        clear = run.exit_code is not None and run.message.startswith("error:")
        return "" if file.role == "no_model" and clear else run.message or f"exit code {run.exit_code} and no message"
    if file.role != "model":
        return f"class {run.answer.class_name} instead of an error" if file.role == "no_model" else ""
    return find_difference(
        file.models, run.answer.class_name, run.answer.parameters, run.answer.inputs, run.answer.macs
    )


def evaluate_hazard(name: str, options: argparse.Namespace) -> FileResult:
    """Run `count` on one of the files that misbehave at import. Right: counted, or refused with a message, in time."""
    with tempfile.TemporaryDirectory(prefix="hazards-") as folder:
        checkout = Path(folder) / "project"
        checkout.mkdir()
        (checkout / name).write_text(source_of(name), encoding="utf-8")
        repository = Repository(name="hazards", commit="", group="hazards", files=())
        result = evaluate_file(repository, ExpectedFile(path=name, role="unscored"), checkout, options)
    clear = result.ok or result.problem.startswith("error:")
    return _replace(result, right=clear and not result.side_effects, problem=result.problem if not clear else "")


def _replace(result: FileResult, *, right: bool, problem: str) -> FileResult:
    return FileResult(**{**asdict(result), "right": right, "problem": problem})


def checkout_of(repository: Repository, options: argparse.Namespace) -> Path | None:
    """Return the folder of a repository, fetched if necessary; None if --folder lacks it."""
    if options.folder is not None:
        checkouts = [options.folder / name for name in repository.folder_names if (options.folder / name).is_dir()]
        return checkouts[0] if checkouts else None
    folder: Path = options.cache / repository.folder_names[0] / repository.commit
    if not (folder / ".git" / "FETCH_HEAD").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for command in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth", "1", f"https://github.com/{repository.name}.git", repository.commit],
            ["checkout", "--quiet", "FETCH_HEAD"],
        ):
            subprocess.run(["git", "-C", str(folder), *command], check=True)
    return folder


def evaluate_all(options: argparse.Namespace) -> Iterator[FileResult]:
    """Evaluate the selected files, `--jobs` at a time, in the order of the list."""
    work = []
    for repository in read_expectations():
        if options.group not in ("all", repository.group):
            continue
        files = [file for file in repository.files if options.only in f"{repository.name}/{file.path}"]
        checkout = checkout_of(repository, options) if files else None
        if checkout is not None:
            work += [(repository, file, checkout) for file in files]
        elif files:
            print(f"{repository.name}: no checkout in {options.folder}", file=sys.stderr)
    hazards = [name for name in HAZARDS if options.group in ("all", "hazards") and options.only in f"hazards/{name}"]
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [
            pool.submit(evaluate_file, repository, file, checkout, options) for repository, file, checkout in work
        ]
        futures += [pool.submit(evaluate_hazard, name, options) for name in hazards]
        for number, future in enumerate(futures, 1):
            result = future.result()
            print(f"{number}/{len(futures)} {_summary_line(result)}", file=sys.stderr, flush=True)
            yield result


def _summary_line(result: FileResult) -> str:
    verdict = "right" if result.right else "wrong" if result.ok else "failed"
    hint = {None: "", True: "; the hint works", False: "; the hint does not work"}[result.right_after_hint]
    effects = f"; SIDE EFFECTS: {', '.join(result.side_effects[:3])}" if result.side_effects else ""
    file = f"{result.repository}/{result.path}"
    return f"{verdict} {file} ({result.role}, {result.seconds:.1f} s) {result.problem}{hint}{effects}"


def _is_installed(package: str, folders: Sequence[Path]) -> bool:
    return PathFinder.find_spec(package, [*sys.path, *map(str, folders)]) is not None


def main() -> int:
    """Print the results as Markdown, or as one line of JSON for each file as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, metavar="DIR", help="existing checkouts, named project or owner+project")
    parser.add_argument(
        "--cache", type=Path, default=DEFAULT_CACHE, metavar="DIR", help="where git fetches repositories"
    )
    parser.add_argument(
        "--packages", type=Path, action="append", default=[], metavar="DIR", help="more installed packages"
    )
    parser.add_argument(
        "--group", default="all", choices=("all", "main", "held-out", "hazards"), help="repositories to run"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="files whose repository and path contain this text")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="files at the same time (default: 1)")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="seconds per run (default: 60)")
    parser.add_argument("-f", "--format", default="markdown", choices=("markdown", "json"))
    options = parser.parse_args()
    results = []
    for result in evaluate_all(options):
        results.append(asdict(result))
        if options.format == "json":
            print(json.dumps(results[-1]), flush=True)
    if options.format == "markdown":
        print(markdown_tables(results))
    return 1 if any(result["side_effects"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
