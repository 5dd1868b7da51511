"""Broken traces: small sound ones, changed at random in the ways that files are broken on people's disks, and worse.

The same seed gives the same files. `mutations(seed)` goes through every way once, each in a place of its own.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

Event = dict[str, Any]

NESTED: Final = 1_000_000  # levels
BOMB_BYTES: Final = 96 << 20  # expanded, of what every level of gzip makes a thousandth

# What a number, a text or an object may turn into.
WRONG: Final[tuple[Any, ...]] = (
    *(None, True, False, "", "soon", "12", "1e3", "-1", "NaN", "\ud800", "\u0000", "x" * 5000),
    *(-1, 0, 1.5, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**40, 1e300, -1e300),
    *([], {}, [1, 2], {"a": 1}, [[]]),
)


def sound(random_: random.Random) -> dict[str, Any]:
    """A training loop's trace: steps with forward and backward operators, launches, kernels, copies, stacks, memory, flows."""
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


def written(random_: random.Random, document: Any) -> bytes:
    """`document` as JSON, in one of the layouts that writers use."""
    layout: dict[str, Any] = random_.choice([{}, {"indent": 2}, {"separators": (",", ":")}])
    return json.dumps(document, **layout).encode()


def _any_event(random_: random.Random, document: dict[str, Any]) -> Event:
    found: Event = random_.choice(document["traceEvents"])
    return found


def wrong_type(random_: random.Random, document: dict[str, Any]) -> None:
    """One to ten values, of events, their arguments or the header, become others."""
    for _ in range(random_.randint(1, 10)):
        event = _any_event(random_, document)
        place = random_.choice([event, event, event.get("args") or event, document["distributedInfo"]])
        place[random_.choice(list(place))] = random_.choice(WRONG)


def missing(random_: random.Random, document: dict[str, Any]) -> None:
    """One to ten keys are gone."""
    for _ in range(random_.randint(1, 10)):
        event = _any_event(random_, document)
        place = random_.choice([event, event.get("args") or event])
        if place:
            place.pop(random_.choice(list(place)))


def same_ids(random_: random.Random, document: dict[str, Any]) -> None:
    """Every event has the same ids."""
    for event in document["traceEvents"]:
        for key in ("correlation", "External id", "Sequence number", "Fwd thread id", "Python id"):
            if key in event.get("args", {}):
                event["args"][key] = random_.choice([1, 1, 0, -1])


def absurd_times(random_: random.Random, document: dict[str, Any]) -> None:
    """Times and durations that are negative, of another age, the same everywhere."""
    times = [-1, 0, -1e6, 1e15, 9e15, 2**62, 5e-324, random_.random() * 1e6]
    for event in document["traceEvents"]:
        if random_.random() < 0.4:
            event[random_.choice(["ts", "dur"])] = random_.choice(times)


def other_phase(random_: random.Random, document: dict[str, Any]) -> None:
    """Events of other phases: ends without beginnings, asynchronous ones, what nobody knows."""
    for event in document["traceEvents"]:
        if random_.random() < 0.4:
            event["ph"] = random_.choice("BEbneSTFsftiICMXNDOPZ☃") + random_.choice(["", "", "x"])


def no_events(random_: random.Random, document: dict[str, Any]) -> None:
    """Something else where the list of events should be, or in it."""
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


def shuffled(random_: random.Random, document: dict[str, Any]) -> None:
    """The events in any order, some of them twice."""
    events = document["traceEvents"]
    document["traceEvents"] = random_.choices(events, k=2 * len(events))


def all_inside(random_: random.Random, document: dict[str, Any]) -> None:
    """Every event in every other: as deep as there are events."""
    for number, event in enumerate(document["traceEvents"] * 5):
        event.update(ts=number, dur=random_.choice([10**6 - 2 * number, 10**6]), pid=1, tid=1)


def cut(random_: random.Random, text: bytes) -> bytes:
    """The file ends early."""
    return text[: random_.randrange(len(text))]


def bits(random_: random.Random, text: bytes) -> bytes:
    """One to thirty bits are others."""
    changed = bytearray(text)
    for _ in range(random_.randint(1, 30)):
        changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)
    return bytes(changed)


def hole(random_: random.Random, text: bytes) -> bytes:
    """A part in the middle is gone, or there twice."""
    start, end = sorted(random_.randrange(len(text)) for _ in range(2))
    return text[:start] + text[end:] if random_.random() < 0.5 else text[:end] + text[start:]


BAD_TEXTS: Final = (
    *((b"aten::conv2d", name) for name in (b"a\xff\xfe\x80", b"a\x01\nb", b"\\ud800", b'a"b', b"a\\")),
    *((b"[[8, 3]]", shapes) for shapes in (b"[NaN, -Infinity]", b"[nan, inf]")),
    *((b"15", b"1e999"), (b"20", b"020")),
)


def bad_text(random_: random.Random, text: bytes) -> bytes:
    """Names with what JSON or UTF-8 forbids, numbers that are none."""
    old, new = random_.choice(BAD_TEXTS)
    return text.replace(old, new, random_.choice([1, -1]))


def twice_a_key(random_: random.Random, text: bytes) -> bytes:
    """Keys that are there twice, of events or of the document."""
    old, new = random_.choice(
        [
            (b'"ph": "X"', b'"ph": "X", "ph": "X"'),
            (b'"name"', b'"name": "other", "name"'),
            (b'"traceName"', b'"traceEvents": [], "traceName"'),
            (b'"ts"', b'"ts": 1, "ts"'),
        ]
    )
    return text.replace(old, new)


def in_a_list(random_: random.Random, text: bytes) -> bytes:
    """The document in a list, several after each other, or only its events, with and without the end."""
    events = json.dumps(json.loads(text)["traceEvents"]).encode()
    return random_.choice([b"[" + text + b"]", text + text, text + b"\n{}", events, events[:-1], events + b"]"])


def nested(random_: random.Random, text: bytes) -> bytes:
    """A million levels, closed or not, in a name's place, an argument's, or by themselves."""
    opening, closing = random_.choice([(b"[", b"]"), (b'{"a":', b"}")])
    deep = opening * NESTED + b"0" + closing * random_.choice([0, NESTED])
    return random_.choice([deep, text.replace(b'"sm80_gemm"', deep, 1), text.replace(b"[[8, 3]]", deep, 1)])


def zipped_badly(random_: random.Random, text: bytes) -> bytes:
    """A gzip file that is cut off, damaged, or has something after its end."""
    data = gzip.compress(text, random_.randint(1, 9), mtime=0)
    return random_.choice([cut(random_, data), bits(random_, data), data + b"more", data + data])


BOMBS: Final = (
    *((b"", b"["), (b"", b" "), (b"17", b" ")),
    (b'{"traceEvents": [{"ph": "X", "name": "', b"a"),
    (b"[", b'{"ph":"X","cat":"cpu_op","ts":1,"name":"a"},'),
    (b"[", b"{},"),
    (b"{", b'"a":1,'),
)


def bomb(random_: random.Random, _text: bytes) -> bytes:
    """A few hundred kB that expand a thousandfold: brackets, spaces, one text, events, each over and over."""
    begin, again = random_.choice(BOMBS)
    again *= (1 << 20) // len(again)
    return gzip.compress(begin, mtime=0) + gzip.compress(again, 9, mtime=0) * (BOMB_BYTES // len(again))


def noise(random_: random.Random, text: bytes) -> bytes:
    """No JSON at all, or none that is a trace."""
    made = [random_.randbytes(2000), b"\x1f\x8b" + random_.randbytes(500), text[::-1], b"\xef\xbb\xbf" + text]
    plain = [b"", b"  \n", b"17", b'"trace"', b"null", b"{}", b"[]", text.decode().encode("utf-16")]
    return random_.choice([*made, *plain])


OF_DOCUMENTS: Final[tuple[Callable[[random.Random, dict[str, Any]], None], ...]] = (
    wrong_type, missing, same_ids, absurd_times, other_phase, no_events, shuffled, all_inside,
)  # fmt: skip
OF_TEXT: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    cut, bits, hole, bad_text, twice_a_key, in_a_list, nested, zipped_badly, bomb, noise,
)  # fmt: skip
WAYS: Final = len(OF_DOCUMENTS) + len(OF_TEXT)


def mutations(seed: int) -> Iterator[tuple[str, bytes]]:
    """A broken trace for each way to break one: the way's name, and the file's bytes. The first is sound."""
    random_ = random.Random(seed)
    yield f"{seed}-sound", written(random_, sound(random_))
    for of_document in random_.sample(OF_DOCUMENTS, len(OF_DOCUMENTS)):
        document = sound(random_)
        of_document(random_, document)
        yield f"{seed}-{of_document.__name__}", written(random_, document)
    for of_text in random_.sample(OF_TEXT, len(OF_TEXT)):
        yield f"{seed}-{of_text.__name__}", of_text(random_, written(random_, sound(random_)))
