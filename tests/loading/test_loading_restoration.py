"""Nothing of the caller's is changed, and every pass starts from the same state: `kept_state` has the ways to keep state."""

from __future__ import annotations

import itertools
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import kept_state
import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import profiler_kit
from profiler_kit.errors import TargetError
from profiler_kit.records.target import Mode
from profiler_kit.user_code.process_settings import SavedSettings
from profiler_kit.user_code.reachable import reachable, tensors_of
from profiler_kit.user_code.restoration import restored_objects


def macs_and_peak(model: nn.Module, inputs: tuple[Any, ...], mode: Mode) -> tuple[int, int]:
    static = profiler_kit.count(model, *inputs, mode=mode).static
    assert static is not None
    assert static.memory is not None, static.notes
    return static.forward.macs, static.memory.peak_bytes


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("build", kept_state.CASES, ids=lambda build: build.__name__)
def test_each_count_starts_from_the_same_state_and_leaves_it(build: Callable[[], kept_state.Case], mode: Mode) -> None:
    model, inputs, state = build()
    before = state()
    first = macs_and_peak(model, inputs, mode)
    assert state() == before
    assert macs_and_peak(model, inputs, mode) == first
    assert state() == before


# their first step has more rows than the one that it computes
LONGER = {
    "filled_slots_input", "replaced_buffer", "random_generators", "buffers_of_bytes", "cached_function", "files_in_memory",
    "context_variables", "process_random_generators",
}  # fmt: skip


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize(
    "build", [build for build in kept_state.CASES if build.__name__ not in LONGER], ids=lambda build: build.__name__
)
def test_the_predicted_memory_is_that_of_the_first_step(build: Callable[[], kept_state.Case], mode: Mode) -> None:
    model, inputs, _ = build()
    twin = kept_state.Noting() if isinstance(model, kept_state.Noting) else kept_state.Attending()
    assert macs_and_peak(model, inputs, mode) == macs_and_peak(twin, inputs[:1], mode)


def test_internal_passes_leave_no_trace_in_each_other() -> None:
    model, inputs, state = kept_state.global_list()
    plain = profiler_kit.count(kept_state.Attending(), *inputs[:1], cross_check=True).static
    checked = profiler_kit.count(model, *inputs, cross_check=True).static
    assert plain is not None
    assert checked is not None
    assert [(check.peer, check.kit_macs, check.peer_macs) for check in checked.cross_checks] == [
        (check.peer, check.kit_macs, check.peer_macs) for check in plain.cross_checks
    ]
    assert state() == []


@pytest.mark.bad_hints
def test_a_step_that_fails_is_restored_too() -> None:
    model, inputs, state = kept_state.closure_list()

    def fail(module: nn.Module, args: object, output: object) -> None:
        raise RuntimeError("no second layer")

    model.register_forward_hook(fail)
    with pytest.raises(TargetError, match="no second layer"):
        profiler_kit.count(model, *inputs)
    assert state() == []


def test_a_model_that_needs_values_is_restored_between_the_kinds_of_tensors() -> None:
    class Model(kept_state.Attending):
        def kept(self, y: Tensor) -> list[Tensor]:
            bank.append(y)
            if y.sum().item() > 1e9:  # refused on meta tensors, after the change
                bank.clear()
            return bank

    bank: list[Tensor] = []
    static = profiler_kit.count(Model(), *kept_state.inputs()).static
    plain = profiler_kit.count(kept_state.Attending(), *kept_state.inputs()).static
    assert static is not None
    assert plain is not None
    assert static.device == "cpu"
    assert static.forward.macs == plain.forward.macs
    assert bank == []


def test_inputs_of_the_caller_are_not_written_where_real_tensors_run() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            x.mul_(2)
            y = self.layer(x)
            return y if y.sum().item() > -1e9 else x

    x = torch.ones(2, 4)
    report = profiler_kit.count(Model(), x)
    assert report.static is not None
    assert report.static.device == "cpu"
    assert x.tolist() == torch.ones(2, 4).tolist()


def test_restored_containers_keep_order_and_identity() -> None:
    class Ordered(OrderedDict[str, int]):
        def __setitem__(self, key: str, value: int) -> None:
            raise AssertionError("a subclass's method runs")

    plain, ordered, user = {"a": 1, "b": 2}, OrderedDict(a=1, b=2), UserDict(a=1)
    strict = Ordered()
    OrderedDict.__setitem__(strict, "a", 1)
    space = SimpleNamespace(list=[1, [2]], plain=plain, ordered=ordered, user=user, strict=strict)
    inner = space.list[1]
    with restored_objects(space):
        space.list[1].append(3)
        space.list = space.list[:1]
        plain["c"] = plain.pop("a")
        ordered.move_to_end("a")
        OrderedDict.clear(strict)
        user["b"] = 2
        space.new = 1
    assert vars(space).keys() == {"list", "plain", "ordered", "user", "strict"}
    assert space.list == [1, [2]]
    assert space.list[1] is inner
    assert list(plain.items()) == [("a", 1), ("b", 2)]
    assert list(ordered) == ["a", "b"]
    assert list(OrderedDict.items(strict)) == [("a", 1)]
    assert user.data == {"a": 1}


def test_objects_in_a_circle_and_objects_that_other_threads_use() -> None:
    class Node:
        def __init__(self) -> None:
            self.me, self.lock, self.items = self, threading.Lock(), [1]

    node = Node()
    with restored_objects(node):
        node.items.append(2)
        node.lock.acquire()
    assert node.items == [1]
    assert node.lock.locked()  # a lock is no data


def test_models_with_parts_that_cannot_be_copied_are_counted() -> None:
    class Model(kept_state.Attending):
        def __init__(self) -> None:
            super().__init__()
            self.functional, self.lock = torch.nn.functional, threading.Lock()
            self.numbers = iter(range(30))

        def kept(self, y: Tensor) -> list[Tensor]:
            with self.lock:
                return [self.functional.relu(y)] * (1 + next(self.numbers))

    model = Model()
    first = macs_and_peak(model, kept_state.inputs(), "train")
    assert macs_and_peak(model, kept_state.inputs(), "train") == first
    assert list(model.numbers) == list(range(30))


def test_reading_runs_no_code_of_the_objects() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]

    hostile: Any = Hostile()
    pair = namedtuple("pair", "first second")(hostile, [torch.ones(1)])
    values = [hostile, pair, mock.MagicMock(), ModuleType("empty"), type("Meta", (type,), {})("Kind", (), {})]
    with restored_objects(values):
        object.__setattr__(hostile, "extra", 1)
        values.append(1)
    assert len(values) == 5
    assert object.__getattribute__(hostile, "__dict__") == {}
    assert len(tensors_of(values)) == 1


def test_packages_are_not_entered() -> None:
    found = list(reachable([torch.nn.functional.relu, torch.optim.SGD, profiler_kit.count, threading.current_thread()]))
    assert len(found) <= 4


def test_the_cache_of_a_decoder_is_counted_and_left_as_it_is() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=50,
    )
    model, cache = transformers.LlamaForCausalLM(config).eval(), transformers.DynamicCache()
    tokens = torch.randint(0, 50, (1, 10))
    with torch.no_grad():
        model(tokens, past_key_values=cache, use_cache=True)
    keys = tensors_of(cache)
    counts = [
        profiler_kit.count(
            model, kwargs={"input_ids": tokens[:, :1], "past_key_values": cache, "use_cache": True}, mode="infer"
        ).static
        for _ in range(2)
    ]
    assert counts[0] is not None
    assert counts[0] == counts[1]
    assert counts[0].device == "meta"
    assert cache.get_seq_length() == 10
    assert all(now is before for now, before in zip(tensors_of(cache), keys, strict=True))


def test_operators_keep_the_overloads_that_a_pass_was_the_first_to_read() -> None:
    """Torch's dispatcher holds no reference to them: an overload that is taken back would be freed, and its next call crash."""
    torch.library.define("restoration_test::twice", "(Tensor a) -> Tensor")
    torch.library.impl("restoration_test::twice", "CompositeExplicitAutograd")(lambda a: a + a)
    packet = torch.ops.restoration_test.twice
    with restored_objects([packet, torch.ops.restoration_test]):
        overload = packet.default
    assert vars(packet)["default"] is overload


def test_a_backward_pass_that_waits_can_still_run() -> None:
    """A global tensor that forward writes gets its values back, and its version: the caller's graph has saved it."""
    values = torch.ones(8)

    class Writes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + values.add_(1)

    weight = torch.ones(8, requires_grad=True)
    result = (weight * values).sum()
    profiler_kit.count(Writes(), torch.randn(2, 8), mode="infer")
    result.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert weight.grad.tolist() == [1.0] * 8


def steps() -> Iterator[int]:
    yield from range(100)


class Calling(nn.Module):
    """A linear layer that calls a function in forward."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, x: Tensor) -> Tensor:
        self.function()
        return self.layer(x)


def set_process_settings() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_float32_matmul_precision("medium")
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_printoptions(precision=2)
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic = not torch.backends.cudnn.deterministic
    torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32
    torch.backends.cuda.enable_flash_sdp(not torch.backends.cuda.flash_sdp_enabled())
    numpy.seterr(over="raise")
    numpy.set_printoptions(precision=2)
    warnings.simplefilter("error", FutureWarning)
    logging.getLogger().setLevel(3)
    logging.getLogger().addHandler(logging.NullHandler())
    os.environ["RESTORATION_TEST"] = "1"
    os.environ.pop("HOME", None)
    os.chdir("/")
    sys.path.insert(0, "/restoration_test")
    sys.argv = ["restoration_test"]
    sys.setrecursionlimit(sys.getrecursionlimit() + 7)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    sys.excepthook = print


def test_settings_of_the_process_are_restored() -> None:
    """Every line of `set_process_settings` changes a setting; one that is not restored would break the tests after this one."""
    before = SavedSettings()
    path, argv = sys.path, sys.argv
    report = profiler_kit.count(Calling(set_process_settings), torch.ones(2, 4), mode="infer")
    assert report.static is not None
    assert report.static.forward.macs == 2 * 4 * 4
    assert before.restore() == {}
    assert sys.path is path
    assert sys.argv is argv


def test_the_test_of_settings_changes_settings() -> None:
    saved = SavedSettings()
    set_process_settings()
    assert len(saved.restore()) > 20
    assert saved.restore() == {}


@pytest.mark.bad_hints
def test_settings_are_restored_after_an_error() -> None:
    def fail() -> None:
        set_process_settings()
        raise RuntimeError("no")

    before = SavedSettings()
    with pytest.raises(TargetError):
        profiler_kit.count(Calling(fail), torch.ones(2, 4))
    assert before.restore() == {}


def test_random_generators_of_the_process_are_restored() -> None:
    python, of_numpy, of_torch = random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]
    with restored_objects():
        random.random()
        numpy.random.rand()
        torch.rand(1)
    assert random.getstate() == python
    assert numpy.random.get_state()[1].tolist() == of_numpy  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), of_torch)


@pytest.mark.parametrize(
    "make",
    [lambda: iter([1, 2]), lambda: iter(range(3)), lambda: enumerate("ab"), lambda: zip([1], [2], strict=True), steps],
)
def test_the_read_iterators_are_found(make: Callable[[], Iterator[Any]]) -> None:
    read, unread = make(), make()
    with restored_objects([read, unread]) as saved:
        assert saved.read_iterators() == []
        next(read)
        assert len(saved.read_iterators()) == 1


def test_a_generator_stays_the_same_object_and_a_note_names_it() -> None:
    generator = steps()
    static = profiler_kit.count(Calling(lambda: next(generator)), torch.ones(2, 4), mode="infer").static
    assert static is not None
    generator.close()
    [note] = [note for note in static.notes if "cannot be rewound" in note]
    assert "steps() at " in note
    unread = profiler_kit.count(Calling(lambda: generator), torch.ones(2, 4), mode="infer").static
    assert unread is not None
    assert unread.notes == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter([0, 1, 2]), lambda: iter((0, 1, 2)), lambda: iter(range(3)), itertools.count,
        lambda: zip(itertools.count(), iter([5, 6, 7]), strict=False), lambda: enumerate("abc"),
        lambda: itertools.chain([0], [1, 2]), lambda: itertools.islice(itertools.count(), 3), lambda: map(int, iter("012")),
    ],
)  # fmt: skip
def test_a_pass_reads_copies_of_iterators(make: Callable[[], Iterator[Any]]) -> None:
    """Each pass does the work of the first item, and the caller's iterator is unread, also under a second name."""

    class Repeating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.numbers = nn.Linear(4, 4), make()
            self.alias = self.numbers

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            number = next(self.numbers)
            first = number[0] if isinstance(number, tuple) else number
            assert next(self.alias) != number
            for _ in range(first + 1):
                x = self.layer(x)
            return x

    model = Repeating()
    numbers = model.numbers
    static = profiler_kit.count(model, torch.ones(2, 4), mode="infer").static
    assert static is not None
    assert (static.forward.macs, static.notes) == (2 * 4 * 4, ())
    assert model.numbers is numbers
    assert next(numbers) == next(make())


def test_modes_of_the_caller_do_not_see_the_passes() -> None:
    class Functions(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls += 1
            return func(*args, **(kwargs or {}))

    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    functions, flops = Functions(), FlopCounterMode(display=False)
    with torch.device("cpu"), functions, flops:
        functions.calls = 0
        profiler_kit.count(model, x)
        assert functions.calls == 0
        assert flops.get_total_flops() == 0
        model(x)
    assert functions.calls > 0
    assert flops.get_total_flops() == 2 * 2 * 4 * 4
