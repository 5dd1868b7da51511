"""Texts to schedules of shapes: what each spelling means, which sizes are made up, and how other tensors follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.configurations.shapes import Schedule, Shape, parse_schedule, schedule_source
from profiler_kit.errors import UsageError
from profiler_kit.records.target import InputInfo


def of(name: str, *shape: int, dtype: str = "float32") -> InputInfo:
    return InputInfo(name=name, shape=shape, dtype=dtype)


IMAGE = of("x", 8, 3, 256, 256)
VOLUME = of("x", 2, 1, 16, 64, 64)
SIGNAL = of("x", 4, 2, 16000)
TOKENS = of("ids", 8, 128, dtype="int64")
ROWS = of("x", 64, 784)


def shapes(text: str, *inputs: InputInfo) -> list[Shape]:
    """The shapes of the first cycle."""
    return [step.shape for step in parse_schedule(text, inputs).steps if step.cycle == 1]


@pytest.mark.parametrize(
    ("text", "inputs", "wanted"),
    [
        ("192", [IMAGE], [(8, 3, 192, 192)]),
        (" 192 , 224x256 ", [IMAGE], [(8, 3, 192, 192), (8, 3, 224, 256)]),
        ("4x3x512X640", [IMAGE], [(4, 3, 512, 640)]),
        ("32,8x32x48", [VOLUME], [(2, 1, 32, 32, 32), (2, 1, 8, 32, 48)]),
        ("8000,2x2x8000", [SIGNAL], [(4, 2, 8000), (2, 2, 8000)]),
        ("64,4x32", [TOKENS], [(8, 64), (4, 32)]),
        ("32x784", [ROWS], [(32, 784)]),
        ("17", [of("x", 4)], [(17,)]),
        ("96", [of("images[0]", 3, 64, 64), of("images[1]", 3, 64, 64)], [(3, 96, 96)]),
        ("96", [TOKENS, IMAGE], [(8, 3, 96, 96)]),
        ("96", [of("scale", dtype="float32"), SIGNAL], [(4, 2, 96)]),
    ],
)
def test_a_list_says_sizes_or_whole_shapes(text: str, inputs: list[InputInfo], wanted: list[Shape]) -> None:
    made = parse_schedule(text, tuple(inputs))
    assert made.source == schedule_source(text) == "given"
    assert [(s.cycle, s.shape) for s in made.steps] == [(c, shape) for c in (1, 2, 3) for shape in wanted]


@pytest.mark.parametrize(
    ("text", "inputs", "words"),
    [
        ("", [IMAGE], "neither a list of shapes nor"),
        ("192,", [IMAGE], "neither a list of shapes nor"),
        ("nowhere.txt", [IMAGE], "No such file"),
        ("192,abc", [IMAGE], "No such file"),
        ("0", [IMAGE], "a size is 0"),
        ("8x3x224", [IMAGE], "3 sizes, but 'x' is 8x3x256x256, with 2 dimensions"),
        ("8x4x224x224", [IMAGE], "dimension 1 is 4, but 'x' is 8x3x256x256"),
        ("32x32x32x32", [SIGNAL], "4 sizes"),
        ("64", [ROWS], "'x' is 64x784"),
        ("auto", [ROWS], "auto: 'x' is 64x784"),
        ("auto", [of("scale")], "no input has dimensions"),
        ("\0", [IMAGE], "not a text file"),
    ],
)
def test_a_text_that_is_no_schedule_says_what_where_and_what_to_do(
    text: str, inputs: list[InputInfo], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schedule(text, tuple(inputs))
    assert words in caught.value.message
    assert (caught.value.where or "").startswith("--shapes")
    assert caught.value.hint


def test_a_recorded_file_keeps_order_and_repeats_and_runs_once(tmp_path: Path) -> None:
    file = tmp_path / "seen.txt"
    file.write_text("# from last night\n224\n\n256x320  # wide\n224\n8x3x64x64\n8x3x64x64\n3x3x64x64\n")
    made = parse_schedule(str(file), (IMAGE,))
    assert made.source == schedule_source(str(file)) == "seen.txt"
    assert {step.cycle for step in made.steps} == {1}
    assert [step.shape[2:] for step in made.steps] == [(224, 224), (256, 320), (224, 224), *[(64, 64)] * 3]
    assert [step.last_batch for step in made.steps] == [False] * 5 + [True]


@pytest.mark.parametrize(("text", "where"), [("224\nwide\n", "seen.txt:2"), ("# nothing\n", "seen.txt")])
def test_a_bad_line_of_a_file_is_named(text: str, where: str, tmp_path: Path) -> None:
    file = tmp_path / "seen.txt"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        parse_schedule(str(file), (IMAGE,))
    assert (caught.value.where or "").endswith(where)


def test_a_smaller_batch_is_the_rarer_of_two() -> None:
    def smaller(text: str) -> list[bool]:
        return [step.last_batch for step in parse_schedule(text, (IMAGE,)).steps if step.cycle == 1]

    assert smaller("64,96,5x3x64x64") == [False, False, True]
    assert smaller("64,9x3x64x64,9x3x96x96") == [True, False, False]  # rarer and smaller, wherever it comes
    assert smaller("64,96,9x3x64x64") == [False] * 3  # a rarer one that is larger is no last batch
    assert smaller("64,5x3x64x64,4x3x64x64,96") == [False] * 4  # three sizes: batches of many sizes


@given(edge=st.integers(1, 3000), batch=st.integers(1, 64))
def test_generated_images_are_twelve_sizes_around_the_present_one(edge: int, batch: int) -> None:
    made = parse_schedule("auto", (of("x", batch, 3, edge, edge),))
    assert made.source == "generated"
    cycles = [[s for s in made.steps if s.cycle == cycle] for cycle in (1, 2, 3)]
    assert [s.shape for s in cycles[0]] == [s.shape for s in cycles[1]] == [s.shape for s in cycles[2]]
    whole = [s.shape for s in cycles[0] if not s.last_batch]
    sizes = sorted(shape[2] for shape in whole)
    assert len(set(whole)) == len(whole) == 12
    assert all(shape == (batch, 3, shape[2], shape[2]) for shape in whole)
    step = sizes[1] - sizes[0]
    assert step & (step - 1) == 0  # a power of two
    assert all(size % step == 0 for size in sizes)
    assert sizes[0] <= edge <= sizes[-1]
    last = [s for s in cycles[0] if s.last_batch]
    assert len(last) == (batch > 1)
    if last:
        assert last == cycles[0][-1:]
        assert 1 <= last[0].shape[0] < batch
        assert last[0].shape[1:] == cycles[0][-2].shape[1:]
    else:
        assert "batch size is 1" in made.notes[-1]


def test_sizes_around_common_ones_are_multiples_of_eight_or_sixteen() -> None:
    assert sorted(s[2] for s in shapes("auto", of("x", 1, 3, 256, 256))) == list(range(176, 353, 16))
    assert sorted(s[2] for s in shapes("auto", of("x", 1, 3, 224, 224))) == list(range(144, 321, 16))
    assert sorted(s[2] for s in shapes("auto", of("x", 1, 3, 128, 128))) == list(range(88, 177, 8))


def test_generated_sizes_do_not_grow_step_by_step() -> None:
    sizes = [shape[2] for shape in shapes("auto", of("x", 1, 3, 256, 256))]
    assert sizes != sorted(sizes)
    largest_so_far = sum(size == max(sizes[: i + 1]) for i, size in enumerate(sizes))
    assert largest_so_far <= 6


def test_a_dimension_of_one_stays_one_and_others_change_together() -> None:
    frames = shapes("auto", of("x", 1, 3, 1, 128, 256))
    assert {shape[2] for shape in frames} == {1}
    assert [shape[4] // 16 for shape in frames] == [shape[3] // 8 for shape in frames]


@given(length=st.integers(1, 5000))
def test_generated_tokens_are_no_longer_than_the_present_ones(length: int) -> None:
    lengths = [shape[1] for shape in shapes("auto", of("ids", 1, length, dtype="int64"))]
    assert len(set(lengths)) == len(lengths) == min(12, length)
    assert all(1 <= size <= length for size in lengths)


def followed(text: str, inputs: list[InputInfo], *others: Shape) -> list[Shape]:
    made: Schedule = parse_schedule(text, tuple(inputs))
    return [made.follow(other, made.steps[0]) for other in others]


def test_what_ends_in_the_image_s_sizes_follows_it() -> None:
    assert followed("96x64", [IMAGE], (8, 3, 256, 256), (8, 1, 256, 256), (8, 256, 256), (256, 256)) == [
        (8, 3, 96, 64), (8, 1, 96, 64), (8, 96, 64), (96, 64),
    ]  # fmt: skip
    same = ((8, 3, 128, 128), (8, 10), (8,), (256,), ())
    assert followed("96x64", [IMAGE], *same) == list(same)


def test_what_has_the_length_of_the_tokens_follows_them() -> None:
    given_ = ((8, 128), (8, 128, 768), (8, 1, 128, 128), (128, 128), (8, 12, 64), (8, 64, 128))
    assert followed("32", [TOKENS], *given_) == [
        (8, 32), (8, 32, 768), (8, 1, 32, 32), (32, 32), (8, 12, 64), (8, 64, 128),
    ]  # fmt: skip


def test_the_batch_follows_where_it_was_the_same() -> None:
    assert followed("5x3x96x96", [IMAGE], (8, 3, 256, 256), (8, 10), (8,), (7, 10), ()) == [
        (5, 3, 96, 96), (5, 10), (5,), (7, 10), (),
    ]  # fmt: skip


def test_notes_say_which_inputs_follow() -> None:
    made = parse_schedule("96", (IMAGE, of("mask", 8, 256, 256, dtype="bool"), of("template", 8, 3, 64, 64)))
    assert made.notes == ("x changes, mask with it; template stays unchanged.",)
    assert parse_schedule("96", (IMAGE,)).notes == ()
