"""The GPU's clock and temperature, by a binding and a driver that are made up."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.records.experiments import DeviceState  # noqa: E402
from profiler_kit.worker import device_state as state_of  # noqa: E402
from profiler_kit.worker.device_state import device_state, throttle_reasons  # noqa: E402


class NVMLError(Exception):
    """What the binding raises."""


class Nvml:
    """A binding with two devices behind it; `fails` are the functions that raise, `lacks` those it does not have."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    def __init__(
        self, *, fails: tuple[str, ...] = (), lacks: tuple[str, ...] = (), mask: int = 0, count: int = 2
    ) -> None:
        self._fails, self._lacks, self._mask, self._count = fails, lacks, mask, count
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        if name in self._lacks:
            raise AttributeError(name)

        def answer(*words: Any) -> Any:
            self.asked.append((name, words))
            if name in self._fails:
                raise NVMLError(name)
            match name:
                case "nvmlDeviceGetHandleByUUID":
                    return {"GPU-aa-1": "first", "GPU-bb-2": "second"}.get(words[0]) or self._no_such()
                case "nvmlDeviceGetHandleByPciBusId":
                    return {"00000000:9b:00.0": "second"}.get(words[0]) or self._no_such()
                case "nvmlDeviceGetHandleByIndex":
                    return ("first", "second")[words[0]]
                case "nvmlDeviceGetCount":
                    return self._count
                case "nvmlDeviceGetClockInfo":
                    return {"first": 1980, "second": 1200}[words[0]]
                case "nvmlDeviceGetTemperature":
                    return 39
                case _ if "Reasons" in name:
                    return self._mask
            return None

        return answer

    def _no_such(self) -> Any:
        raise NVMLError("not found")


def state(monkeypatch: pytest.MonkeyPatch, nvml: object, **properties: object) -> DeviceState | None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**properties))
    return device_state("cuda:0")


def test_a_cpu_has_none() -> None:
    assert device_state(torch.device("cpu")) is None
    assert device_state("mps") is None


def test_without_the_binding_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state(monkeypatch, None, uuid="aa-1") is None


def test_without_a_driver_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state(monkeypatch, Nvml(fails=("nvmlInit",)), uuid="aa-1") is None


def test_without_the_device_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: object) -> None:
        raise RuntimeError("CUDA error: device lost")

    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "get_device_properties", gone)
    assert device_state("cuda:7") is None
    assert nvml.asked[-1][0] == "nvmlShutdown"


def test_clock_and_temperature_and_no_throttle(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(mask=0x1)
    found = state(monkeypatch, nvml, uuid="aa-1")
    assert found == DeviceState(sm_clock_hz=1_980_000_000, temperature_celsius=39, throttled_by=())
    assert nvml.asked[-1][0] == "nvmlShutdown"


@pytest.mark.parametrize(
    "properties",
    [
        {"uuid": "bb-2"},
        {"uuid": "GPU-bb-2"},
        {"uuid": "cc-3", "pci_bus_id": 0x9B, "pci_device_id": 0, "pci_domain_id": 0},
        {"pci_bus_id": 0x9B, "pci_device_id": 0},
    ],
    ids=["uuid", "uuid as NVML writes it", "a slice's uuid", "an older torch"],
)
def test_the_device_is_found_by_identity_not_by_index(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, object]
) -> None:
    """CUDA's device 0 may be NVML's second."""
    found = state(monkeypatch, Nvml(), **properties)
    assert found is not None
    assert found.sm_clock_hz == 1_200_000_000


def test_a_device_without_identity_is_used_only_if_it_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state(monkeypatch, Nvml()) is None
    alone = state(monkeypatch, Nvml(count=1))
    assert alone is not None
    assert alone.sm_clock_hz == 1_980_000_000


def test_unsupported_values_are_unknown_and_the_others_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    found = state(monkeypatch, Nvml(fails=("nvmlDeviceGetTemperature",), mask=0x4), uuid="aa-1")
    assert found == DeviceState(sm_clock_hz=1_980_000_000, throttled_by=("software power cap",))
    silent = ("nvmlDeviceGetTemperature", "nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrentClocksEventReasons")
    assert state(monkeypatch, Nvml(fails=silent), uuid="aa-1") is None


def test_an_older_binding_calls_reasons_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    found = state(monkeypatch, Nvml(lacks=("nvmlDeviceGetCurrentClocksEventReasons",), mask=0x40), uuid="aa-1")
    assert found is not None
    assert found.throttled_by == ("hardware thermal slowdown",)


def test_reasons_are_words_idleness_is_none_and_unknown_bits_are_numbers() -> None:
    assert throttle_reasons(0) == ()
    assert throttle_reasons(state_of.IDLE) == ()
    assert throttle_reasons(0x1 | 0x2 | 0x8) == ("applications clocks setting", "hardware slowdown")
    assert throttle_reasons(0x4 | 0x10000) == ("software power cap", "reason 0x10000")
    bits = [bit for bit, _ in state_of.REASONS]
    assert len(set(bits)) == len(bits) == len({words for _, words in state_of.REASONS})
    assert all(bit & (bit - 1) == 0 for bit in bits)
