"""The DataLoader classes in a trace, by the profiler's name of the fetch."""

from __future__ import annotations

from pathlib import Path

from inspection_traces import mark, op, table

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.totals import loaders

SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def test_the_one_that_took_longest_comes_first(tmp_path: Path) -> None:
    events = [mark(SINGLE, 0, 10), mark(WORKERS, 20, 50), op(SINGLE, 60, 70), op("aten::relu", 80, 90)]
    assert loaders(attribute(table(tmp_path, events))) == (
        "_MultiProcessingDataLoaderIter",
        "_SingleProcessDataLoaderIter",
    )


def test_other_names_are_no_loaders(tmp_path: Path) -> None:
    events = [
        mark("enumerate(DataLoader)#", 0, 10),
        mark("DataLoader", 20, 50),
        mark("enumerate(DataLoader)#a b.__next__", 60, 70),
    ]
    assert loaders(attribute(table(tmp_path, events))) == ()
