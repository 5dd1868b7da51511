"""Reproduce the case study of the slow small network: measure, then print every claim with its figures and its verdict.

A CUDA machine measures everything. A CPU uses smaller inputs and reports "Needs CUDA" for the claims that it cannot judge.
Install the package first (``pip install -e '.[torch]'``)::

    python -m scripts.case_study --json figures.json
    python -m scripts.case_study --claims a,d --budget 60 --json figures.json --add
    python -m scripts.case_study --markdown figures.json > docs/case-studies.md
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from profiler_kit.errors import OK, USAGE, KitError
from scripts.case_study import page
from scripts.case_study.claims import LETTERS
from scripts.case_study.figures import load, merge, save
from scripts.case_study.measurement import Options, measure

CPU_SIZE, CPU_BATCH = 64, 2  # small enough for a CPU to run every step in well under a second
CUDA_SIZE, CUDA_BATCH = 256, 8


def parse_letters(text: str) -> tuple[str, ...]:
    """Parse claims written as ``a,d``; return them in the order of the page."""
    selected = [letter.strip() for letter in text.split(",")]
    unknown = [letter for letter in selected if letter not in LETTERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown claim {unknown[0]!r}; choose from {','.join(LETTERS)}")
    return tuple(letter for letter in LETTERS if letter in selected)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.case_study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--claims",
        type=parse_letters,
        default=LETTERS,
        metavar="a,d",
        help="measure and print only these claims (default: all)",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--size", type=int, help=f"image size, a multiple of 4 (default: {CUDA_SIZE}; on a CPU {CPU_SIZE})"
    )
    parser.add_argument("--batch", type=int, help=f"images per step (default: {CUDA_BATCH}; on a CPU {CPU_BATCH})")
    parser.add_argument(
        "--budget", type=float, default=20.0, metavar="S", help="seconds of measurement per model (default: 20)"
    )
    parser.add_argument("--processes", type=int, default=3, help="fresh processes that claim f compares (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the measured figures")
    parser.add_argument("--add", action="store_true", help="merge the new figures into the file of --json")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="judge saved figures without measuring")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="print docs/case-studies.md from saved figures")
    return parser


def options(args: argparse.Namespace) -> Options:
    """Convert the arguments to options; size and batch default to the values for the device."""
    import torch

    device = args.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    cuda = device == "cuda"
    return Options(
        claims=args.claims,
        device=device,
        size=args.size or (CUDA_SIZE if cuda else CPU_SIZE),
        batch=args.batch or (CUDA_BATCH if cuda else CPU_BATCH),
        budget_s=args.budget,
        processes=args.processes,
    )


def main(argv: list[str]) -> int:
    """Measure or load figures, then print the claims or the page."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.size is not None and (args.size < 16 or args.size % 4):
        parser.error("--size must be a multiple of 4 and at least 16: the networks halve the image twice")
    try:
        if args.markdown is not None:
            print(page.markdown(load(args.markdown)), end="")
            return OK
        if args.from_json is not None:
            print(page.terminal(load(args.from_json), args.claims), end="")
            return OK
        # Batch systems send SIGTERM at the time limit. Handle it like Ctrl-C, which keeps the figures measured so far.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        figures = measure(options(args), on_progress=lambda message: print(message, file=sys.stderr))
        if args.add and args.json is not None and args.json.exists():
            figures = merge(load(args.json), figures)
        if args.json is not None:
            save(figures, args.json)
        print(page.terminal(figures, args.claims), end="")
    except KitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code or USAGE
    return OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
