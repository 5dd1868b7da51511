"""Makes a long trace from a short one: the same steps again and again, with times and ids of their own.

    python -m scripts.bench.scaled_trace trace.json.gz long.json --mb 500

The text stays as its writer laid it out. Every repetition is moved behind the one before it, and each of its correlations,
external ids, sequence numbers, flows and step numbers is a new one, so that a reader finds what a longer recording would have
held. The last repetition is cut off in time where the size asked for is reached; what is left of it is whole events.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BETWEEN: Final = "\n  },\n  {\n"  # events, as Kineto writes them
IDS: Final = (
    "correlation",
    "External id",
    "External Id",
    "external id",
    "Sequence number",
    "Python id",
    "Python parent id",
    "Ev Idx",
)
NUMBER: Final = re.compile(rf'("(?:{"|".join(IDS)})":\s*)([1-9]\d*)')
FLOW: Final = re.compile(r'("id":\s*)(\d+)')
IS_FLOW: Final = re.compile(r'"ph":\s*"[stf]"')
TIME: Final = re.compile(r'("ts":\s*)(\d+)(?:\.(\d{1,3})\d*)?')
LENGTH: Final = re.compile(r'"dur":\s*(\d+)')
STEP: Final = re.compile(r"(ProfilerStep#)(\d+)")
METADATA: Final = re.compile(r'"ph":\s*"M"')
GAP_NS: Final = 1_000_000  # between repetitions


@dataclass(slots=True)
class Piece:
    """An event's text, split where its numbers are: `texts[i]`, then a number of kind `kinds[i]`, and so on."""

    texts: list[str]
    numbers: list[int]
    kinds: list[str]
    at_ns: int
    end_ns: int
    size: int

    def moved(self, times: int, period_ns: int, ids: int, steps: int) -> str:
        """The event's text `times` repetitions later."""
        out = []
        for text, number, kind in zip(self.texts, self.numbers, self.kinds, strict=False):
            out.append(text)
            if kind == "ns":
                number += times * period_ns
                out.append(f"{number // 1000}.{number % 1000:03d}")
            else:
                out.append(str(number + times * {"us": period_ns // 1000, "id": ids, "step": steps}[kind]))
        out.append(self.texts[-1])
        return "".join(out)


def main() -> None:
    """Writes the long trace."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("source", type=Path)
    line.add_argument("target", type=Path)
    line.add_argument("--mb", type=float, default=100, help="about how large (100)")
    asked = line.parse_args()
    events = scale(asked.source, asked.target, round(asked.mb * 1e6))
    print(f"{asked.target}  {asked.target.stat().st_size / 1e6:,.1f} MB, {events:,} events")


def scale(source: Path, target: Path, size: int) -> int:
    """Writes a trace of about `size` bytes to `target`; returns how many entries its list of events has."""
    head, pieces, metadata, tail = _parts(_text(source))
    period_ns = (max(piece.end_ns for piece in pieces) - min(piece.at_ns for piece in pieces) + GAP_NS) // 1000 * 1000
    ids = 1 + max((n for p in pieces for n, kind in zip(p.numbers, p.kinds, strict=True) if kind == "id"), default=0)
    marked = {n for p in pieces for n, kind in zip(p.numbers, p.kinds, strict=True) if kind == "step"}
    steps = max(marked) - min(marked) + 1 if marked else 0
    whole = sum(piece.size for piece in pieces)
    room = size - len(head) - len(tail) - sum(map(len, metadata))
    events = len(metadata)
    with target.open("w") as out:
        out.write(head)
        out.write(BETWEEN.join(metadata))
        first = not metadata
        for times in range(room // whole + 1):
            chosen = pieces if room - times * whole >= whole else _first(pieces, room - times * whole)
            events += len(chosen)
            if chosen:
                out.write("" if first else BETWEEN)
                out.write(BETWEEN.join(piece.moved(times, period_ns, ids, steps) for piece in chosen))
                first = False
        out.write(tail)
    return events


def _text(source: Path) -> str:
    data = source.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


def _parts(text: str) -> tuple[str, list[Piece], list[str], str]:
    """What stands before the events, the events, the metadata's text, and what stands behind."""
    document = json.loads(text)
    listed = re.search(r'"traceEvents":\s*\[\s*\{\n', text)
    if listed is not None:
        end = text.rindex("\n  }", 0, text.rindex("]"))
        events = text[listed.end() : end].split(BETWEEN)
        head, tail = text[: listed.end()], text[end:]
    if listed is None or len(events) != len(
        document["traceEvents"]
    ):  # written by something else: laid out as Kineto would
        events = [_laid_out(event) for event in document.pop("traceEvents")]
        head = json.dumps(document, indent=2).rstrip().removesuffix("}").rstrip() + ',\n  "traceEvents": [\n  {\n'
        tail = "\n  }\n  ]\n}\n"
    pieces, metadata = [], []
    for event in events:
        if METADATA.search(event) or TIME.search(event) is None:
            metadata.append(event)
        else:
            pieces.append(_piece(event))
    return head, pieces, metadata, tail


def _laid_out(event: dict[str, Any]) -> str:
    arguments = event.pop("args", None)
    lines = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in event.items())
    if arguments is None:
        return f"    {lines}"
    inner = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in arguments.items())
    return f'    {lines},\n    "args": {{\n      {inner}\n    }}'


def _piece(event: str) -> Piece:
    found = [(match.end(1), match.end(2), int(match[2]), "id") for match in NUMBER.finditer(event)]
    if IS_FLOW.search(event):
        found += [(match.end(1), match.end(2), int(match[2]), "id") for match in FLOW.finditer(event)]
    found += [(match.end(1), match.end(2), int(match[2]), "step") for match in STEP.finditer(event)]
    time = TIME.search(event)
    assert time is not None
    whole, fraction = int(time[2]), time[3]
    at_ns = whole * 1000 + int((fraction or "0").ljust(3, "0"))
    found.append((time.end(1), time.end(), whole if fraction is None else at_ns, "us" if fraction is None else "ns"))
    found.sort()
    texts, end = [], 0
    for begin, after, _, _ in found:
        texts.append(event[end:begin])
        end = after
    texts.append(event[end:])
    length = LENGTH.search(event)
    end_ns = at_ns + (1000 * (int(length[1]) + 1) if length is not None else 0)
    numbers, kinds = [number for _, _, number, _ in found], [kind for _, _, _, kind in found]
    return Piece(texts, numbers, kinds, at_ns, end_ns, len(event) + len(BETWEEN))


def _first(pieces: list[Piece], size: int) -> list[Piece]:
    """The pieces that start first and have `size` bytes together, in the order of the file."""
    chosen: set[int] = set()
    for place in sorted(range(len(pieces)), key=lambda place: pieces[place].at_ns):
        size -= pieces[place].size
        if size < 0:
            break
        chosen.add(place)
    return [piece for place, piece in enumerate(pieces) if place in chosen]


if __name__ == "__main__":
    main()
