"""The comparison of `tune` with settings by hand: which sets are timed, and the shares of its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench import tune, tune_by_hand


def test_sets_by_hand_keep_the_given_ones_and_have_no_setting_of_other_devices_or_layouts() -> None:
    also = ["fused_optimizer,channels_last", "compile"]
    sets = tune_by_hand.sets_to_try(is_image=False, is_cuda=False, also=also)
    assert sets[0] == {"fused_optimizer", "channels_last"}
    assert set(sets[1:]) == {
        frozenset({"fused_optimizer"}),
        frozenset({"amp_bf16", "fused_optimizer"}),
        frozenset({"amp_bf16"}),
    }
    assert len(tune_by_hand.sets_to_try(is_image=True, is_cuda=True, also=[])) == len(tune_by_hand.SETS)


def test_the_share_is_the_gain_of_tune_over_the_best_one_by_hand_with_the_same_precision() -> None:
    answer = {"changes": ["fused_optimizer"], "outcome": "better", "ratio": 0.8, "low": 0.78, "high": 0.82}
    by_hand = [
        {"settings": [], "ratio": 1.0},
        {"settings": ["fused_optimizer"], "ratio": 0.81},
        {"settings": ["benchmark", "fused_optimizer"], "ratio": 0.75},
        {"settings": ["amp_bf16"], "ratio": 0.5},
    ]
    row = {"network": "net", "batch": 4, "answers": {"same": answer}, "by_hand": by_hand, "tune_s": 60.0}
    same, reduced = (line.split(" | ") for line in tune.table([row])[2:])
    assert same[4:8] == ["20.0 % (18.0 to 22.0 %)", "19.0 %", "`benchmark`, `fused_optimizer`", "25.0 %"]
    assert (same[8], reduced[8]) == ("0.80", "0.40")
    row["answers"] = {"same": {**answer, "outcome": "not confirmed"}}
    assert tune.table([row])[2].split(" | ")[8] == "0.00"


def test_every_network_has_its_file_and_class() -> None:
    root = Path(tune.__file__).parents[2]
    for network in tune.NETWORKS.values():
        file, _, name = network.target.partition(":")
        text = (root / file).read_text()
        assert f"class {name}(" in text or f"def {name}(" in text


@pytest.mark.jobs
def test_changes_without_an_effect_are_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["tune", "--aa", "--device", "cpu", "--small", "--only", "tagger", "--budget", "20", "--out"]
    monkeypatch.setattr("sys.argv", [*words, str(tmp_path / "aa.jsonl")])
    tune.main()
    assert "| 0 of " in tune.table(list(map(tune.json.loads, (tmp_path / "aa.jsonl").read_text().splitlines())))[2]
