"""The finder that --hardware and --gpu share, and that a card is one entry of one file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import profiler_kit.devices.cards as family
from profiler_kit.cli import main
from profiler_kit.devices.architectures import GPUS, nearest_architecture
from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.devices.cards.data_center import A100, H100, T4
from profiler_kit.devices.device import Device
from profiler_kit.devices.registry import (
    architecture_names,
    device_choices,
    devices,
    devices_with_peaks,
    find_device,
    peaks_of,
)
from profiler_kit.errors import UsageError

NEWCOMER = """
from profiler_kit.devices.architectures import SM90
from profiler_kit.devices.device import Device, Figure, Peaks

DEVICES = (
    Device(
        label="Z1000",
        short_names=("z1000",),
        torch_names=("Acme Z1000",),
        architecture=SM90,
        multiprocessors=Figure(10, "made up"),
        peaks=Peaks(fp32=1e12, bandwidth=1e11, source="made up"),
    ),
)
"""
NET = """
from torch import nn

model = nn.Linear(4, 4)
"""


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.short_names[0])
def test_every_device_is_found_by_all_its_names(device: Device) -> None:
    for name in (*device.torch_names, *device.short_names):
        assert find_device(name, "--gpu", devices()) is device
        assert find_device(name.upper().replace(" ", "-"), "--gpu", devices()) is device


def test_names_and_labels_are_unambiguous() -> None:
    names = [name for device in devices() for name in (*device.torch_names, *device.short_names)]
    assert len(set(names)) == len(names)
    labels = [device.label for device in devices()]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("name", "device"), [("cpu", CPU), ("sm75", T4), ("sm80", A100), ("sm90", H100), ("h100", H100)]
)
def test_an_architectures_name_is_its_best_known_card(name: str, device: Device) -> None:
    assert find_device(name, "--gpu", devices()) is device
    assert find_device("sm86", "--gpu", devices()) is find_device("rtx3090", "--gpu", devices())


def test_every_architecture_has_a_card_that_stands_for_it() -> None:
    assert architecture_names().split(", ") == [architecture.name for architecture in GPUS]
    for name in architecture_names().split(", "):
        assert find_device(name, "--gpu", devices()).architecture.name == name


@pytest.mark.parametrize(
    ("capability", "name"), [(50, "sm61"), (61, "sm61"), (72, "sm70"), (87, "sm86"), (90, "sm90"), (120, "sm90")]
)
def test_an_unknown_capability_has_the_nearest_older_architecture(capability: int, name: str) -> None:
    assert nearest_architecture(capability).name == name


@pytest.mark.parametrize("option", ["--gpu", "--hardware"])
@pytest.mark.parametrize("name", ["", "x", "h300", "nvidia", "rtx", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"])
def test_an_unknown_device_is_refused_with_the_choices(name: str, option: str) -> None:
    with pytest.raises(UsageError) as error:
        find_device(name, option, devices(), also="; or else")
    assert error.value.where == option
    assert error.value.hint is not None
    assert error.value.hint.startswith("one of: ")
    assert error.value.hint.endswith("; or else")


def test_a_part_of_a_name_will_do_where_one_device_has_it() -> None:
    assert find_device("l40", "--gpu", devices()).short_names[0] == "l40s"
    assert find_device("1080", "--gpu", devices()).short_names[0] == "gtx1080ti"


def test_a_device_without_peaks_has_no_roof() -> None:
    assert find_device("cpu", "--gpu", devices()) is CPU
    with pytest.raises(UsageError, match="'cpu' is not a known device"):
        find_device("cpu", "--hardware", devices_with_peaks())


@pytest.fixture
def newcomer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of cards with one card of its own, and a network in the current directory."""
    cards = tmp_path / "cards"
    cards.mkdir()
    (cards / "acme.py").write_text(NEWCOMER)
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(cards)])
    monkeypatch.chdir(tmp_path)
    devices.cache_clear()
    yield tmp_path
    devices.cache_clear()
    sys.modules.pop("profiler_kit.devices.cards.acme", None)
    delattr(family, "acme")


def test_a_new_card_is_one_file(newcomer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = find_device("z1000", "--gpu", devices())
    assert peaks_of("Acme Z1000") is card.peaks is not None
    assert "z1000" in device_choices(devices()).split(", ")

    assert main(["count", "--help"]) == 0
    assert capsys.readouterr().out.count("z1000") == 2
    for option in ("--gpu", "--hardware"):
        assert main(["count", "net.py", option, "abacus"]) == 2
        printed = capsys.readouterr().err
        assert f"{option}: 'abacus' is not a known device" in printed
        assert "z1000" in printed

    pytest.importorskip("torch")
    assert main(["count", "net.py", "-i", "2,4", "--gpu", "z1000", "--hardware", "Acme Z1000"]) == 0
    printed = capsys.readouterr().out
    assert "sm90 (Z1000)" in printed
    assert "Acme Z1000" in printed
