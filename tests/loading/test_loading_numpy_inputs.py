"""Inputs as NumPy arrays: of ``-i``, of a script, and found by the search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from profiler_kit.counting import count_target
from profiler_kit.errors import UsageError
from profiler_kit.loading import load
from profiler_kit.loading.input_search.outcomes import InputGuess
from profiler_kit.loading.input_search.search import search_inputs
from profiler_kit.loading.inputs import parse_input, text_of
from profiler_kit.meta.batch import Batch, batch_size, resized
from profiler_kit.records.target import TargetSpec


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.item, self.pos = nn.Embedding(100, 8), nn.Embedding(21, 8)

    def rows(self, indices: Tensor) -> Tensor:
        y: Tensor = self.item(indices)
        return y


class FromNumpy(Table):
    def forward(self, seqs: Any) -> Tensor:
        return self.rows(torch.from_numpy(seqs))


class Casts(Table):
    def forward(self, seqs: Any) -> Tensor:
        return self.rows(torch.as_tensor(seqs.astype(np.int64)))


class Mixes(Table):
    def forward(self, users: Any, seqs: Any) -> Tensor:
        steps = np.tile(np.arange(1, seqs.shape[1] + 1), [seqs.shape[0], 1])
        steps *= seqs != 0
        y: Tensor = self.rows(torch.LongTensor(seqs)) + self.pos(torch.LongTensor(steps))
        return y


@pytest.mark.parametrize(("kind", "count"), [(FromNumpy, 1), (Casts, 1), (Mixes, 2)])
def test_code_that_takes_arrays_gets_arrays(kind: type[nn.Module], count: int) -> None:
    result = search_inputs(kind().to("meta"), {})
    assert isinstance(result, InputGuess)
    assert [text.is_array for text in result.texts] == [True] * count
    assert result.texts[-1].dtype == "int64"
    assert [str(parse_input(str(text))) for text in result.texts] == [str(text) for text in result.texts]


def test_code_that_takes_tensors_gets_tensors() -> None:
    class Plain(Table):
        def forward(self, seqs: Tensor) -> Tensor:
            return self.rows(seqs)

    result = search_inputs(Plain().to("meta"), {})
    assert isinstance(result, InputGuess)
    assert not result.texts[0].is_array


def test_text_of_an_array() -> None:
    text = parse_input("seqs=2,3:np.int64[0:5]")
    value = text.make(generator=torch.Generator().manual_seed(0), dtype=torch.float32, device=torch.device("meta"))
    assert isinstance(value, np.ndarray)
    assert (value.shape, str(value.dtype), bool((value < 5).all())) == ((2, 3), "int64", True)
    assert str(text_of(value, "seqs")) == "seqs=2,3:np.int64"
    assert str(text_of(np.zeros((4,), dtype="float32"))) == "4:np.float32"
    with pytest.raises(UsageError):
        parse_input("2:np.bfloat16")


def test_arrays_have_a_batch_size() -> None:
    batch = Batch(args=(np.arange(3), 7), kwargs={"y": np.ones((3, 2))})
    larger = resized(batch, 5)
    assert (batch_size(batch), batch_size(larger), larger.kwargs["y"].shape) == (3, 5, (5, 2))
    assert list(larger.args[0]) == [0, 1, 2, 0, 1]


def test_arrays_that_a_script_passes_are_the_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rec.py").write_text(
        "import numpy as np\nimport torch\nfrom torch import nn\n"
        "class Rec(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.item, self.lin = nn.Embedding(100, 32), nn.Linear(32, 32)\n"
        "    def forward(self, seqs):\n        return self.lin(self.item(torch.LongTensor(seqs)))\n"
        "if __name__ == '__main__':\n"
        "    batch = np.random.randint(0, 100, (8, 20))\n    print(Rec()(batch).shape)\n"
    )
    target = load(TargetSpec(spec="rec.py"), device="meta")
    assert [(item.shape, item.dtype) for item in target.info.inputs] == [((8, 20), "np.int64")]
    assert count_target(target).forward.macs == 8 * 20 * 32 * 32
