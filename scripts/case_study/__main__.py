"""Reproduces the case study of the slow small network and prints, claim by claim, what is said and what was measured.

On a CUDA machine everything is measured; on a CPU the networks shrink, and the claims that need CUDA say so. With the
package installed (``pip install -e '.[torch]'``)::

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
from scripts.case_study import figures as measured
from scripts.case_study import page
from scripts.case_study.claims import LETTERS
from scripts.case_study.gather import Options, gather

CPU_SIZE, CPU_BATCH = 64, 2  # small enough for a CPU to run every step in well under a second
CUDA_SIZE, CUDA_BATCH = 256, 8


def letters(written: str) -> tuple[str, ...]:
    """The claims written as ``a,d``, in the order of the claims."""
    asked = [letter.strip() for letter in written.split(",")]
    unknown = [letter for letter in asked if letter not in LETTERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no claim {unknown[0]!r}: choose from {','.join(LETTERS)}")
    return tuple(letter for letter in LETTERS if letter in asked)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    line = argparse.ArgumentParser(
        prog="python -m scripts.case_study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    line.add_argument("--claims", type=letters, default=LETTERS, metavar="a,d", help="only these claims (default: all)")
    line.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    line.add_argument(
        "--size", type=int, help=f"image size, a multiple of 4 (default {CUDA_SIZE}, on a CPU {CPU_SIZE})"
    )
    line.add_argument("--batch", type=int, help=f"images per step (default {CUDA_BATCH}, on a CPU {CPU_BATCH})")
    line.add_argument(
        "--budget", type=float, default=20.0, metavar="S", help="seconds of measuring per model (default 20)"
    )
    line.add_argument("--processes", type=int, default=3, help="fresh processes that claim f compares (default 3)")
    line.add_argument("--json", type=Path, metavar="FILE", help="save the measured figures")
    line.add_argument("--add", action="store_true", help="keep what the file of --json holds of other claims")
    line.add_argument("--from-json", type=Path, metavar="FILE", help="judge saved figures; measure nothing")
    line.add_argument("--markdown", type=Path, metavar="FILE", help="print the documentation's page from saved figures")
    return line


def options(args: argparse.Namespace) -> Options:
    """What to measure, with the defaults that suit the device."""
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
    """Measures, or reads figures, and prints the claims or the page."""
    line = parser()
    args = line.parse_args(argv)
    if args.size is not None and (args.size < 16 or args.size % 4):
        line.error("--size: the networks halve the image twice, so give a multiple of 4, at least 16")
    try:
        if args.markdown is not None:
            print(page.markdown(measured.load(args.markdown)), end="")
            return OK
        if args.from_json is not None:
            print(page.terminal(measured.load(args.from_json), args.claims), end="")
            return OK
        # A job's time limit ends with SIGTERM: what was measured before is kept, as with Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        found = gather(options(args), say=lambda said: print(said, file=sys.stderr))
        if args.add and args.json is not None and args.json.exists():
            found = measured.merged(measured.load(args.json), found)
        if args.json is not None:
            measured.save(found, args.json)
        print(page.terminal(found, args.claims), end="")
    except KitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code or USAGE
    return OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
