"""Models that keep a tensor or a number of every step, in the places where programs keep them.

Each entry of `CASES` is a function that returns a model, its inputs, and a function that reads the kept state as plain values.
"""

from __future__ import annotations

import array
import functools
import io
import queue
import random
import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy
import torch
from torch import Tensor, nn

WIDTH = 16
ROWS = 8

Case = tuple[nn.Module, tuple[Any, ...], Callable[[], object]]
CASES: list[Callable[[], Case]] = []

BANK: list[Tensor] = []
CACHE: dict[tuple[int, ...], Tensor] = {}
ARRAY = numpy.zeros(4)
BYTES = bytearray(b"ab")
CODES = array.array("i", [1, 2])
GENERATOR = random.Random(3)
TORCH_GENERATOR = torch.Generator().manual_seed(5)
NUMPY_GENERATOR = numpy.random.default_rng(7)
TOTAL = torch.zeros(2)
COUNTER = 0
LOCAL = threading.local()
QUEUE: queue.Queue[int] = queue.Queue()
LOG = io.StringIO()
CALLS: ContextVar[int] = ContextVar("CALLS")
NUMBERS: ContextVar[list[int]] = ContextVar("NUMBERS")


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES.append(build)
    return build


class Attending(nn.Module):
    """Attends to all rows that `kept` returns: its work grows with what earlier steps have left behind."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, *more: Any) -> Tensor:
        y = self.layer(x)
        k = torch.cat(self.kept(y.detach(), *more))
        return torch.softmax(y @ k.T, -1) @ k

    def kept(self, y: Tensor) -> list[Tensor]:
        self.last = y
        return [y]


class Noting(Attending):
    """Changes something else than tensors in every step; `note` is the change."""

    def kept(self, y: Tensor, *more: Any) -> list[Tensor]:
        times = self.note(*more)
        return [y] * (times or 1)

    def note(self) -> int | None:
        return None


def inputs(*more: Any) -> tuple[Any, ...]:
    return (torch.randn(ROWS, WIDTH), *more)


@case
def attribute_list() -> Case:
    class Model(Attending):
        def __init__(self) -> None:
            super().__init__()
            self.bank: list[Tensor] = []

        def kept(self, y: Tensor) -> list[Tensor]:
            self.bank.append(y)
            return self.bank

    model = Model()
    return model, inputs(), lambda: list(model.bank)


@case
def global_list() -> Case:
    class Model(Attending):
        def kept(self, y: Tensor) -> list[Tensor]:
            BANK.append(y)
            return BANK

    return Model(), inputs(), lambda: list(BANK)


@case
def closure_list() -> Case:
    bank: list[Tensor] = []

    class Model(Attending):
        def kept(self, y: Tensor) -> list[Tensor]:
            bank.append(y)
            return bank

    return Model(), inputs(), lambda: list(bank)


@case
def class_attribute() -> Case:
    class Model(Attending):
        bank: tuple[Tensor, ...] = ()

        def kept(self, y: Tensor) -> list[Tensor]:
            type(self).bank = (*self.bank, y)
            return list(self.bank)

    return Model(), inputs(), lambda: Model.bank


@case
def attribute_deque() -> Case:
    class Model(Attending):
        bank: ClassVar[deque[Tensor]] = deque(maxlen=5)

        def kept(self, y: Tensor) -> list[Tensor]:
            self.bank.appendleft(y)
            return list(self.bank)

    return Model(), inputs(), lambda: (list(Model.bank), Model.bank.maxlen)


@case
def dict_by_shape() -> Case:
    class Model(Attending):
        def kept(self, y: Tensor) -> list[Tensor]:
            before = CACHE.get(tuple(y.shape))
            CACHE[tuple(y.shape)] = y if before is None else torch.cat([before, y])
            return [CACHE[tuple(y.shape)]]

    return Model(), inputs(), lambda: dict(CACHE)


@dataclass
class Memory:
    items: list[Tensor] = field(default_factory=list)
    seen: int = 0


@case
def dataclass_input() -> Case:
    class Model(Attending):
        def kept(self, y: Tensor, memory: Memory) -> list[Tensor]:
            memory.items.append(y)
            memory.seen += 1
            return memory.items

    memory = Memory()
    return Model(), inputs(memory), lambda: (list(memory.items), memory.seen)


class SlotCache:
    """As the cache of a decoder: tensors in slots, replaced by longer ones."""

    __slots__ = ("keys", "steps")

    def __init__(self, keys: Tensor | None = None) -> None:
        self.steps = 0
        if keys is not None:
            self.keys = keys

    def update(self, y: Tensor) -> Tensor:
        self.steps += 1
        self.keys = torch.cat([self.keys, y]) if hasattr(self, "keys") else y
        return self.keys


@case
def slots_input() -> Case:
    class Model(Attending):
        def kept(self, y: Tensor, cache: SlotCache) -> list[Tensor]:
            return [cache.update(y)]

    cache = SlotCache()
    return Model(), inputs(cache), lambda: (hasattr(cache, "keys"), cache.steps)


@case
def filled_slots_input() -> Case:
    class Model(Attending):
        def kept(self, y: Tensor, cache: SlotCache) -> list[Tensor]:
            return [cache.update(y)]

    cache = SlotCache(torch.ones(10, WIDTH))
    return Model(), inputs(cache), lambda: (cache.keys, cache.keys.tolist(), cache.steps)


@case
def default_argument() -> Case:
    class Model(Attending):
        def kept(self, y: Tensor, bank: list[Tensor] = []) -> list[Tensor]:  # noqa: B006 the mistake is the case
            bank.append(y)
            return bank

    return Model(), inputs(), lambda: list(Model.kept.__defaults__[0])  # type: ignore[index]


@case
def function_attribute() -> Case:
    class Model(Attending):
        def kept(self, y: Tensor) -> list[Tensor]:
            bank = vars(Model.kept).setdefault("bank", [])
            bank.append(y)
            return list(bank)

    return Model(), inputs(), lambda: dict(vars(Model.kept))


@case
def hook_closure() -> Case:
    features: list[Tensor] = []

    class Model(Attending):
        def kept(self, y: Tensor) -> list[Tensor]:
            return features

    model = Model()
    model.layer.register_forward_hook(lambda module, args, output: features.append(output.detach()))
    return model, inputs(), lambda: list(features)


@case
def method_of_an_object() -> Case:
    class Store:
        def __init__(self) -> None:
            self.items: set[Tensor] = set()

        def add(self, y: Tensor) -> list[Tensor]:
            self.items.add(y)
            return list(self.items)

    store = Store()

    class Model(Attending):
        kept = staticmethod(store.add)  # type: ignore[assignment]

    return Model(), inputs(), lambda: set(store.items)


@case
def cached_function() -> Case:
    @functools.lru_cache
    def rows(count: int, device: str) -> list[Tensor]:
        return [torch.ones(count, WIDTH, device=device)]

    class Model(Attending):
        def kept(self, y: Tensor) -> list[Tensor]:
            bank = rows(2, str(y.device))
            bank.append(y)
            return bank

    rows(2, "cpu")
    return Model(), inputs(), lambda: (rows.cache_info(), rows(2, "cpu"))[1]


@case
def counter_of_module() -> Case:
    class Model(Noting):
        calls = 0

        def note(self) -> int:
            self.calls += 1
            return self.calls

    model = Model()
    return model, inputs(), lambda: (model.calls, "calls" in vars(model))


@case
def global_counter() -> Case:
    class Model(Noting):
        def note(self) -> int:
            global COUNTER
            COUNTER += 1
            return COUNTER

    return Model(), inputs(), lambda: COUNTER


@case
def nonlocal_counter() -> Case:
    count = 0

    class Model(Noting):
        def note(self) -> int:
            nonlocal count
            count += 1
            return count

    return Model(), inputs(), lambda: count


@case
def numpy_array() -> Case:
    class Model(Noting):
        def note(self) -> int:
            ARRAY[0] += 1
            return int(ARRAY[0])

    return Model(), inputs(), ARRAY.tolist


@case
def tensor_with_values() -> Case:
    class Model(Noting):
        def note(self) -> None:
            TOTAL.add_(1)

    return Model(), inputs(), TOTAL.tolist


@case
def buffers_of_bytes() -> Case:
    class Model(Noting):
        def note(self) -> int:
            BYTES.append(1)
            CODES.append(3)
            return len(BYTES)

    return Model(), inputs(), lambda: (bytes(BYTES), CODES.tolist())


@case
def random_generators() -> Case:
    class Model(Noting):
        def note(self) -> int:
            torch.randint(9, (), generator=TORCH_GENERATOR)
            return 1 + GENERATOR.randrange(50) + int(NUMPY_GENERATOR.integers(50))

    def state() -> object:
        return GENERATOR.getstate(), TORCH_GENERATOR.get_state().tolist(), NUMPY_GENERATOR.bit_generator.state["state"]

    return Model(), inputs(), state


@case
def thread_local() -> Case:
    class Model(Noting):
        def note(self) -> int:
            LOCAL.calls = getattr(LOCAL, "calls", 0) + 1
            return LOCAL.calls

    return Model(), inputs(), lambda: dict(vars(LOCAL))


@case
def thread_local_of_module() -> Case:
    class Model(Noting):
        def __init__(self) -> None:
            super().__init__()
            self.local = threading.local()

        def note(self) -> int:
            self.local.calls = getattr(self.local, "calls", 0) + 1
            return int(self.local.calls)

    model = Model()
    return model, inputs(), lambda: dict(vars(model.local))


@case
def queues() -> Case:
    simple: queue.SimpleQueue[int] = queue.SimpleQueue()
    simple.put(3)

    class Model(Noting):
        def note(self) -> int:
            QUEUE.put(QUEUE.qsize())
            simple.put(simple.get() + 1)
            return QUEUE.qsize()

    def state() -> object:
        items = [simple.get() for _ in range(simple.qsize())]
        for item in items:
            simple.put(item)
        return list(QUEUE.queue), QUEUE.unfinished_tasks, items

    return Model(), inputs(), state


@case
def files_in_memory() -> Case:
    log = io.BytesIO(b"ab")

    class Model(Noting):
        def note(self) -> int:
            LOG.write("step ")
            log.read(1)
            return LOG.tell() // 5 + log.tell()

    return Model(), inputs(), lambda: (LOG.getvalue(), LOG.tell(), log.getvalue(), log.tell())


@case
def context_variables() -> Case:
    class Model(Noting):
        def note(self) -> int:
            CALLS.set(CALLS.get(0) + 1)
            NUMBERS.get().append(1)
            return CALLS.get() + len(NUMBERS.get())

    NUMBERS.set([])
    return Model(), inputs(), lambda: (CALLS.get(0), list(NUMBERS.get()))


@case
def process_random_generators() -> Case:
    class Model(Noting):
        def note(self) -> int:
            return 1 + random.randrange(50) + int(numpy.random.randint(50))

    return Model(), inputs(), lambda: (random.getstate(), numpy.random.get_state()[1].tolist())  # type: ignore[index]


@case
def replaced_buffer() -> Case:
    class Model(Attending):
        bank: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("bank", torch.zeros(1, WIDTH))

        def kept(self, y: Tensor) -> list[Tensor]:
            self.bank = torch.cat([self.bank, y])
            return [self.bank]

    model = Model()
    return model, inputs(), lambda: (id(model.bank), model.bank.tolist())
