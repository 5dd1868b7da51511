"""A malformed trace gives a consistent table or one error."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from examples import count as example_count
from trace_mutations import MUTATION_COUNT, mutations

from profiler_kit.errors import TraceError
from profiler_kit.traces.reader import read
from profiler_kit.traces.source import BLOCK_BYTES
from profiler_kit.traces.table import NONE, Table

SEEDS = range(example_count(10))
LIMIT_S = 20.0  # of CPU time: a hundred times what most take


def outcome(path: Path, block_bytes: int = BLOCK_BYTES) -> Table | TraceError:
    try:
        return read(path, block_bytes=block_bytes)
    except TraceError as error:
        return error


def assert_sound(table: Table) -> None:
    """Every column has a value for every row, and every number points at something."""
    rows = len(table)
    assert rows + table.pairs + table.flows + table.metadata + table.unpaired + table.malformed == table.events
    assert (table.duration_ns >= 0).all()
    assert (table.end_ns >= table.start_ns).all()
    for column, pool in (
        (table.name, table.names), (table.category, table.categories), (table.thread, table.threads),
        (table.stream, table.streams), (table.shapes, table.texts), (table.inputs, table.texts),
    ):  # fmt: skip
        assert len(column) == rows
        assert ((column >= NONE) & (column < len(pool))).all()
    for column in (table.name, table.category, table.thread):
        assert (column >= 0).all()
    for column in (table.kind, table.correlation, table.external, table.sequence, table.forward_thread):
        assert len(column) == rows
    for sparse in table.more.values():
        assert len(sparse.rows) == len(sparse.values)
        assert (np.diff(sparse.rows) > 0).all()
        assert sparse.rows[0] >= 0
        assert sparse.rows[-1] < rows
        if sparse.texts:
            assert ((sparse.values >= 0) & (sparse.values < len(sparse.texts))).all()
    for text in (*table.names, *table.categories, *table.texts):
        text.encode()


@pytest.mark.parametrize("seed", SEEDS)
def test_broken_traces(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "trace.json"
    finished = 0
    for name, data in mutations(seed):
        path.write_bytes(data)
        started = time.process_time()
        result = outcome(path)
        if isinstance(result, TraceError):
            assert result.where == str(path), name
            assert "\n" not in result.message, name
        else:
            assert_sound(result)
        assert time.process_time() - started < LIMIT_S, name
        finished += 1
    assert finished == MUTATION_COUNT + 1


def test_a_broken_file_is_read_alike_whatever_the_size_of_the_blocks(tmp_path: Path) -> None:
    """Where a file is cut into blocks must not decide what is read of it."""
    path = tmp_path / "trace.json"
    for seed in range(3):
        for name, data in mutations(seed):
            if len(data) > 100_000:
                continue
            path.write_bytes(data)
            outcomes: set[object] = set()
            for block_bytes in (997, 1 << 20):
                result = outcome(path, block_bytes)
                if isinstance(result, TraceError):
                    outcomes.add(result.message)
                else:
                    ns = int(result.start_ns.sum())
                    outcomes.add((len(result), result.events, result.malformed, result.cut_off, ns))
            assert len(outcomes) == 1, (name, outcomes)
