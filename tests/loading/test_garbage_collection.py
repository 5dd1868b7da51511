"""Garbage collection during a count searches only new objects, and is as before afterwards."""

from __future__ import annotations

import gc
import weakref

import pytest

from profiler_kit.meta.garbage_collection import older_objects_frozen
from profiler_kit.pipeline.packages import collection_paused


class Node:
    """An object in a reference cycle."""

    def __init__(self) -> None:
        self.own = self


def test_only_objects_of_the_block_are_collected() -> None:
    older = weakref.ref(Node())
    with older_objects_frozen():
        assert gc.get_freeze_count() > 0
        newer = weakref.ref(Node())
        gc.collect()
        assert newer() is None
        assert older() is not None
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert older() is None


def test_objects_are_collected_less_often_in_the_block() -> None:
    before = gc.get_threshold()
    with older_objects_frozen():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_threshold()[1:] == before[1:]
    assert gc.get_threshold() == before


def test_a_higher_limit_of_the_caller_stays() -> None:
    before = gc.get_threshold()
    gc.set_threshold(10**6, *before[1:])
    try:
        with older_objects_frozen():
            assert gc.get_threshold()[0] == 10**6
    finally:
        gc.set_threshold(*before)


def test_nested_blocks_restore_the_outermost_state() -> None:
    with older_objects_frozen():
        with older_objects_frozen():
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_an_error_in_the_block_restores_the_state() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), older_objects_frozen():
        _ = 1 / 0
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before


def test_objects_that_the_caller_froze_stay_frozen() -> None:
    gc.freeze()
    before = gc.get_threshold()
    try:
        with older_objects_frozen():
            assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_a_pause_keeps_collection_off_where_it_was_off() -> None:
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with collection_paused(), older_objects_frozen():
            assert gc.get_freeze_count() == 0
        assert not gc.isenabled()
    finally:
        gc.enable()
