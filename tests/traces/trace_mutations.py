"""Broken traces for fuzzing: small valid traces with random damage, from typical file damage to hostile input.

The same seed gives the same files. `mutations(seed)` yields each kind of damage once, applied to a fresh trace.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

Event = dict[str, Any]

NESTING_LEVELS: Final = 1_000_000
BOMB_BYTES: Final = 96 << 20  # uncompressed; gzip compresses it by a factor of about 1,000

# Replacements for a number, a string or an object.
WRONG_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, "", "soon", "12", "1e3", "-1", "NaN", "\ud800", "\u0000", "x" * 5000),
    *(-1, 0, 1.5, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**40, 1e300, -1e300),
    *([], {}, [1, 2], {"a": 1}, [[]]),
)


def make_valid_trace(random_: random.Random) -> dict[str, Any]:
    """Make the trace of a training loop: operators, launches, kernels, copies, Python stacks, memory events and flows."""
    events: list[Event] = [
        {"ph": "M", "name": "process_name", "ts": 0, "pid": 1, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "ts": 0, "pid": 1, "tid": 2, "args": {"name": "thread 2 (pt_autograd_0)"}},
    ]
    clock, correlation, busy = random_.choice([0, 5_000_000, 2**42, 1_700_000_000_000_000]) + 0.125, 10, 0.0

    def event(cat: str, name: str, ts: float, dur: float, tid: Any = 1, pid: Any = 1, **args: Any) -> None:
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": round(dur, 3), "args": args}
        )

    for step in range(random_.randint(1, 3)):
        begin = clock
        event("python_function", "nn.Module: Net_0", clock, 400, **{"Python id": step, "Python parent id": None})
        for backward in (False, True):
            for sequence in range(4):
                name = "autograd::engine::evaluate_function: ConvolutionBackward0" if backward else "aten::conv2d"
                number = 100 * step + (3 - sequence if backward else sequence)
                ids = {"External id": correlation, "Sequence number": number, "Fwd thread id": int(backward)}
                event("cpu_op", name, clock, 20, tid=2 if backward else 1, **ids, **{"Input Dims": [[8, 3]]})
                event(
                    "cuda_runtime", "cudaLaunchKernel", clock + 2, 5, tid=2 if backward else 1, correlation=correlation
                )
                busy = max(busy, clock + 8)
                event("kernel", "sm80_gemm", busy, 15, tid=7, pid=0, device=0, stream=7, correlation=correlation)
                flow = {"id": correlation, "pid": 1, "tid": 1, "ts": clock, "cat": "ac2g", "name": "ac2g"}
                events.extend(({"ph": "s", **flow}, {"ph": "f", "bp": "e", **flow}))
                busy, clock, correlation = busy + 15, clock + 30, correlation + 1
        event("gpu_memcpy", "Memcpy DtoH", busy, 3, tid=7, pid=0, device=0, stream=7, correlation=correlation, bytes=4)
        event("cuda_runtime", "cudaStreamSynchronize", clock, 20, correlation=correlation + 1)
        event("user_annotation", "Optimizer.step#SGD.step", clock + 21, 10)
        clock += 60
        event("user_annotation", f"ProfilerStep#{step}", begin, clock - begin - 1)
        memory = {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Total Allocated": 1024, "Addr": 2**46}
        events.append(
            {
                "ph": "i",
                "s": "t",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "pid": 1,
                "tid": 1,
                "ts": clock,
                "args": memory,
            }
        )
        events.append({"ph": "C", "name": "gpu", "pid": 0, "tid": 0, "ts": clock, "args": {"util": 50}})
        events.append({"ph": "B", "cat": "cpu_op", "name": "aten::relu", "pid": 1, "tid": 1, "ts": clock})
        events.append({"ph": "E", "pid": 1, "tid": 1, "ts": clock + 1})
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "traceEvents": events,
        "traceName": "trace.json",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    }


def encode(random_: random.Random, document: Any) -> bytes:
    """Encode `document` as JSON in a random layout that trace writers use."""
    layout: dict[str, Any] = random_.choice([{}, {"indent": 2}, {"separators": (",", ":")}])
    return json.dumps(document, **layout).encode()


def _random_event(random_: random.Random, document: dict[str, Any]) -> Event:
    event: Event = random_.choice(document["traceEvents"])
    return event


def set_wrong_types(random_: random.Random, document: dict[str, Any]) -> None:
    """Replace one to ten values of events, their arguments or the header by wrong ones."""
    for _ in range(random_.randint(1, 10)):
        event = _random_event(random_, document)
        mapping = random_.choice([event, event, event.get("args") or event, document["distributedInfo"]])
        mapping[random_.choice(list(mapping))] = random_.choice(WRONG_VALUES)


def remove_keys(random_: random.Random, document: dict[str, Any]) -> None:
    """Remove one to ten keys."""
    for _ in range(random_.randint(1, 10)):
        event = _random_event(random_, document)
        mapping = random_.choice([event, event.get("args") or event])
        if mapping:
            mapping.pop(random_.choice(list(mapping)))


def set_equal_ids(random_: random.Random, document: dict[str, Any]) -> None:
    """Give every event the same ids."""
    for event in document["traceEvents"]:
        for key in ("correlation", "External id", "Sequence number", "Fwd thread id", "Python id"):
            if key in event.get("args", {}):
                event["args"][key] = random_.choice([1, 1, 0, -1])


def set_absurd_times(random_: random.Random, document: dict[str, Any]) -> None:
    """Set times and durations to negative, huge or equal values."""
    times = [-1, 0, -1e6, 1e15, 9e15, 2**62, 5e-324, random_.random() * 1e6]
    for event in document["traceEvents"]:
        if random_.random() < 0.4:
            event[random_.choice(["ts", "dur"])] = random_.choice(times)


def change_phases(random_: random.Random, document: dict[str, Any]) -> None:
    """Change event phases: unmatched begin and end events, asynchronous events, unknown phases."""
    for event in document["traceEvents"]:
        if random_.random() < 0.4:
            event["ph"] = random_.choice("BEbneSTFsftiICMXNDOPZ☃") + random_.choice(["", "", "x"])


def replace_events(random_: random.Random, document: dict[str, Any]) -> None:
    """Replace the event list, or its entries, by other values."""
    document["traceEvents"] = random_.choice(
        [
            {},
            [],
            None,
            "events",
            7,
            [[]],
            [[document["traceEvents"]]],
            [1, 2],
            [None, *document["traceEvents"]],
            [{}] * 5,
        ]
    )


def shuffle_events(random_: random.Random, document: dict[str, Any]) -> None:
    """Shuffle the events and duplicate some of them."""
    events = document["traceEvents"]
    document["traceEvents"] = random_.choices(events, k=2 * len(events))


def nest_events(random_: random.Random, document: dict[str, Any]) -> None:
    """Nest all events in each other."""
    for number, event in enumerate(document["traceEvents"] * 5):
        event.update(ts=number, dur=random_.choice([10**6 - 2 * number, 10**6]), pid=1, tid=1)


def truncate(random_: random.Random, text: bytes) -> bytes:
    """Truncate the file."""
    return text[: random_.randrange(len(text))]


def flip_bits(random_: random.Random, text: bytes) -> bytes:
    """Flip one to thirty bits."""
    changed = bytearray(text)
    for _ in range(random_.randint(1, 30)):
        changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)
    return bytes(changed)


def remove_or_repeat_part(random_: random.Random, text: bytes) -> bytes:
    """Remove or duplicate a part in the middle."""
    start, end = sorted(random_.randrange(len(text)) for _ in range(2))
    return text[:start] + text[end:] if random_.random() < 0.5 else text[:end] + text[start:]


BAD_TEXTS: Final = (
    *((b"aten::conv2d", name) for name in (b"a\xff\xfe\x80", b"a\x01\nb", b"\\ud800", b'a"b', b"a\\")),
    *((b"[[8, 3]]", shapes) for shapes in (b"[NaN, -Infinity]", b"[nan, inf]")),
    *((b"15", b"1e999"), (b"20", b"020")),
)


def insert_bad_text(random_: random.Random, text: bytes) -> bytes:
    """Insert names that JSON or UTF-8 forbids, or invalid numbers."""
    old, new = random_.choice(BAD_TEXTS)
    return text.replace(old, new, random_.choice([1, -1]))


def duplicate_keys(random_: random.Random, text: bytes) -> bytes:
    """Duplicate keys of events or of the document."""
    old, new = random_.choice(
        [
            (b'"ph": "X"', b'"ph": "X", "ph": "X"'),
            (b'"name"', b'"name": "other", "name"'),
            (b'"traceName"', b'"traceEvents": [], "traceName"'),
            (b'"ts"', b'"ts": 1, "ts"'),
        ]
    )
    return text.replace(old, new)


def change_structure(random_: random.Random, text: bytes) -> bytes:
    """Put the document into a list, repeat it, or write only its event list, complete or truncated."""
    events = json.dumps(json.loads(text)["traceEvents"]).encode()
    return random_.choice([b"[" + text + b"]", text + text, text + b"\n{}", events, events[:-1], events + b"]"])


def nest_deeply(random_: random.Random, text: bytes) -> bytes:
    """Nest a million levels, closed or not: as the document, as a name or as an argument."""
    opening, closing = random_.choice([(b"[", b"]"), (b'{"a":', b"}")])
    deep = opening * NESTING_LEVELS + b"0" + closing * random_.choice([0, NESTING_LEVELS])
    return random_.choice([deep, text.replace(b'"sm80_gemm"', deep, 1), text.replace(b"[[8, 3]]", deep, 1)])


def damage_gzip(random_: random.Random, text: bytes) -> bytes:
    """Compress with gzip, then truncate, damage or extend the file."""
    data = gzip.compress(text, random_.randint(1, 9), mtime=0)
    return random_.choice([truncate(random_, data), flip_bits(random_, data), data + b"more", data + data])


BOMBS: Final = (
    *((b"", b"["), (b"", b" "), (b"17", b" ")),
    (b'{"traceEvents": [{"ph": "X", "name": "', b"a"),
    (b"[", b'{"ph":"X","cat":"cpu_op","ts":1,"name":"a"},'),
    (b"[", b"{},"),
    (b"{", b'"a":1,'),
)


def make_gzip_bomb(random_: random.Random, _text: bytes) -> bytes:
    """Make a gzip bomb: a few hundred kB that expand a thousandfold into brackets, spaces, one string or events."""
    begin, repeated = random_.choice(BOMBS)
    repeated *= (1 << 20) // len(repeated)
    return gzip.compress(begin, mtime=0) + gzip.compress(repeated, 9, mtime=0) * (BOMB_BYTES // len(repeated))


def replace_content(random_: random.Random, text: bytes) -> bytes:
    """Return bytes that are not JSON, or JSON that is not a trace."""
    binary = [random_.randbytes(2000), b"\x1f\x8b" + random_.randbytes(500), text[::-1], b"\xef\xbb\xbf" + text]
    plain = [b"", b"  \n", b"17", b'"trace"', b"null", b"{}", b"[]", text.decode().encode("utf-16")]
    return random_.choice([*binary, *plain])


DOCUMENT_MUTATIONS: Final[tuple[Callable[[random.Random, dict[str, Any]], None], ...]] = (
    set_wrong_types, remove_keys, set_equal_ids, set_absurd_times, change_phases, replace_events, shuffle_events, nest_events,
)  # fmt: skip
TEXT_MUTATIONS: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    truncate, flip_bits, remove_or_repeat_part, insert_bad_text, duplicate_keys, change_structure, nest_deeply, damage_gzip,
    make_gzip_bomb, replace_content,
)  # fmt: skip
MUTATION_COUNT: Final = len(DOCUMENT_MUTATIONS) + len(TEXT_MUTATIONS)


def mutations(seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield a name and the file's bytes for each kind of damage. The first file is valid."""
    random_ = random.Random(seed)
    yield f"{seed}-valid", encode(random_, make_valid_trace(random_))
    for damage_document in random_.sample(DOCUMENT_MUTATIONS, len(DOCUMENT_MUTATIONS)):
        document = make_valid_trace(random_)
        damage_document(random_, document)
        yield f"{seed}-{damage_document.__name__}", encode(random_, document)
    for damage_text in random_.sample(TEXT_MUTATIONS, len(TEXT_MUTATIONS)):
        yield f"{seed}-{damage_text.__name__}", damage_text(random_, encode(random_, make_valid_trace(random_)))
