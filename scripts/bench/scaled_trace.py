"""Make a long trace from a short one by repeating its events with new times and ids.

    python -m scripts.bench.scaled_trace trace.json.gz long.json --mb 500

The text layout does not change. Each repeat starts after the previous one and gets new correlations, external ids, sequence
numbers, flow ids and step numbers, as in a longer recording. The last repeat is truncated in time at the requested size; it
contains complete events only.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

EVENT_SEPARATOR: Final = "\n  },\n  {\n"  # as Kineto writes it
ID_KEYS: Final = (
    "correlation",
    "External id",
    "External Id",
    "external id",
    "Sequence number",
    "Python id",
    "Python parent id",
    "Ev Idx",
)
ID: Final = re.compile(rf'("(?:{"|".join(ID_KEYS)})":\s*)([1-9]\d*)')
FLOW_ID: Final = re.compile(r'("id":\s*)(\d+)')
IS_FLOW: Final = re.compile(r'"ph":\s*"[stf]"')
TIME: Final = re.compile(r'("ts":\s*)(\d+)(?:\.(\d{1,3})\d*)?')
DURATION: Final = re.compile(r'"dur":\s*(\d+)')
STEP: Final = re.compile(r"(ProfilerStep#)(\d+)")
METADATA: Final = re.compile(r'"ph":\s*"M"')
REPEAT_GAP_NS: Final = 1_000_000


@dataclass(slots=True)
class EventText:
    """An event's text, split at its numbers: `texts[i]` precedes `numbers[i]`, which is of kind `kinds[i]`."""

    texts: list[str]
    numbers: list[int]
    kinds: list[str]
    start_ns: int
    end_ns: int
    size: int

    def shift(self, repeat: int, period_ns: int, ids: int, steps: int) -> str:
        """Return the text of the event in repeat number `repeat`. `ids` and `steps` are the numbers used per repeat."""
        out = []
        for text, number, kind in zip(self.texts, self.numbers, self.kinds, strict=False):
            out.append(text)
            if kind == "ns":
                number += repeat * period_ns
                out.append(f"{number // 1000}.{number % 1000:03d}")
            else:
                out.append(str(number + repeat * {"us": period_ns // 1000, "id": ids, "step": steps}[kind]))
        out.append(self.texts[-1])
        return "".join(out)


def main() -> None:
    """Write the long trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--mb", type=float, default=100, help="approximate size (default: 100)")
    args = parser.parse_args()
    events = scale(args.source, args.target, round(args.mb * 1e6))
    print(f"{args.target}  {args.target.stat().st_size / 1e6:,.1f} MB, {events:,} events")


def scale(source: Path, target: Path, size: int) -> int:
    """Write a trace of about `size` bytes to `target`; return the number of entries in its event list."""
    head, events, metadata, tail = _split(_read(source))
    period_ns = (
        (max(event.end_ns for event in events) - min(event.start_ns for event in events) + REPEAT_GAP_NS) // 1000 * 1000
    )
    ids = 1 + max((n for e in events for n, kind in zip(e.numbers, e.kinds, strict=True) if kind == "id"), default=0)
    step_numbers = {n for e in events for n, kind in zip(e.numbers, e.kinds, strict=True) if kind == "step"}
    steps = max(step_numbers) - min(step_numbers) + 1 if step_numbers else 0
    repeat_bytes = sum(event.size for event in events)
    available_bytes = size - len(head) - len(tail) - sum(map(len, metadata))
    entries = len(metadata)
    with target.open("w") as out:
        out.write(head)
        out.write(EVENT_SEPARATOR.join(metadata))
        first = not metadata
        for repeat in range(available_bytes // repeat_bytes + 1):
            remaining_bytes = available_bytes - repeat * repeat_bytes
            repeated = events if remaining_bytes >= repeat_bytes else _first_events(events, remaining_bytes)
            entries += len(repeated)
            if repeated:
                out.write("" if first else EVENT_SEPARATOR)
                out.write(EVENT_SEPARATOR.join(event.shift(repeat, period_ns, ids, steps) for event in repeated))
                first = False
        out.write(tail)
    return entries


def _read(source: Path) -> str:
    data = source.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


def _split(text: str) -> tuple[str, list[EventText], list[str], str]:
    """Split a trace's text into: text before the events, timed events, metadata events, text after the events."""
    document = json.loads(text)
    list_start = re.search(r'"traceEvents":\s*\[\s*\{\n', text)
    if list_start is not None:
        end = text.rindex("\n  }", 0, text.rindex("]"))
        events = text[list_start.end() : end].split(EVENT_SEPARATOR)
        head, tail = text[: list_start.end()], text[end:]
    if list_start is None or len(events) != len(document["traceEvents"]):  # another writer: convert to Kineto's layout
        events = [_format_event(event) for event in document.pop("traceEvents")]
        head = json.dumps(document, indent=2).rstrip().removesuffix("}").rstrip() + ',\n  "traceEvents": [\n  {\n'
        tail = "\n  }\n  ]\n}\n"
    timed_events, metadata = [], []
    for event in events:
        if METADATA.search(event) or TIME.search(event) is None:
            metadata.append(event)
        else:
            timed_events.append(_parse_event(event))
    return head, timed_events, metadata, tail


def _format_event(event: dict[str, Any]) -> str:
    arguments = event.pop("args", None)
    lines = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in event.items())
    if arguments is None:
        return f"    {lines}"
    argument_text = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in arguments.items())
    return f'    {lines},\n    "args": {{\n      {argument_text}\n    }}'


def _parse_event(event: str) -> EventText:
    matches = [(match.end(1), match.end(2), int(match[2]), "id") for match in ID.finditer(event)]
    if IS_FLOW.search(event):
        matches += [(match.end(1), match.end(2), int(match[2]), "id") for match in FLOW_ID.finditer(event)]
    matches += [(match.end(1), match.end(2), int(match[2]), "step") for match in STEP.finditer(event)]
    time = TIME.search(event)
    assert time is not None
    integer_us, fraction = int(time[2]), time[3]
    start_ns = integer_us * 1000 + int((fraction or "0").ljust(3, "0"))
    matches.append(
        (time.end(1), time.end(), integer_us if fraction is None else start_ns, "us" if fraction is None else "ns")
    )
    matches.sort()
    texts, end = [], 0
    for begin, after, _, _ in matches:
        texts.append(event[end:begin])
        end = after
    texts.append(event[end:])
    duration = DURATION.search(event)
    end_ns = start_ns + (1000 * (int(duration[1]) + 1) if duration is not None else 0)
    numbers, kinds = [number for _, _, number, _ in matches], [kind for _, _, _, kind in matches]
    return EventText(texts, numbers, kinds, start_ns, end_ns, len(event) + len(EVENT_SEPARATOR))


def _first_events(events: list[EventText], size: int) -> list[EventText]:
    """Return the earliest events that fit into `size` bytes, in file order."""
    indices: set[int] = set()
    for index in sorted(range(len(events)), key=lambda index: events[index].start_ns):
        size -= events[index].size
        if size < 0:
            break
        indices.add(index)
    return [event for index, event in enumerate(events) if index in indices]


if __name__ == "__main__":
    main()
