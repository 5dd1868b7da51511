"""Notes have a subject and a code; the lines of older reports become notes when they are read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sample_reports import v0_cpu

from profiler_kit.errors import ReportError
from profiler_kit.records.notes import PARTS, Choice, Note, note_of_line, plain_notes
from profiler_kit.records.report import Report
from profiler_kit.records.serde import dumps, loads, to_json

LINES = {
    "inputs: guessed x=1,3,32,32. To set them, run it": ("inputs", "guessed"),
    "GUESSED inputs 1,3 from the first layer": ("", "guessed"),
    "model: GuessingGame(), the first function": ("model", ""),
    "inputs: random, x=2 (sizes from guessing_game/config.json)": ("inputs", ""),
    "scripted modules: counted as one module each": ("", ""),
    "No TF32 configurations.": ("", ""),
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_an_older_report_keeps_its_words_and_gets_a_code(line: str) -> None:
    note = note_of_line(line)
    assert (note.subject, note.code) == LINES[line]
    assert str(note) == line


def test_an_older_report_is_read_with_notes() -> None:
    report = v0_cpu()
    lines = [*LINES]
    data = json.loads(dumps(replace(report, notes=plain_notes(lines))))
    data["notes"] = data["target"]["notes"] = lines
    older = loads(Report, json.dumps(data), "old.json")
    assert older.notes == older.target.notes == tuple(map(note_of_line, lines))
    assert loads(Report, dumps(older), "new.json") == older


def test_a_note_of_another_type_is_refused_with_its_place() -> None:
    data = json.loads(dumps(v0_cpu()))
    data["target"]["notes"] = ["a line", 3]
    with pytest.raises(ReportError) as caught:
        loads(Report, json.dumps(data), "x.json")
    assert caught.value.where == "x.json: target.notes[1]"


def test_notes_rank_in_the_order_of_a_step() -> None:
    notes = [Note(subject=part, text="x") for part in reversed(PARTS)]
    assert [note.subject for note in sorted(notes, key=lambda note: note.rank)] == [*PARTS]
    assert Note(text="x").rank == Note(subject="batch", text="x").rank > Note(subject=PARTS[-1], text="x").rank


def test_a_choice_is_saved_with_the_target() -> None:
    report = v0_cpu()
    choice = Choice(subject="inputs", value="x=1,3,32,32", why="image_size is the model's")
    target = replace(report.target, choices=(choice,))
    assert loads(Report, dumps(replace(report, target=target)), "x.json").target.choices == (choice,)
    assert to_json(choice)["value"] == "x=1,3,32,32"
