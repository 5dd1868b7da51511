"""The table of names: each row is reachable, no spelling is in two rows, and usual values fit."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

import profiler_kit.loading
from profiler_kit.loading.vocabulary import (
    CONCEPTS,
    LABELS,
    Concept,
    Role,
    concept_of,
    input_concept,
    is_concept,
    is_label,
    spelling_rank,
    spellings_of,
)

ROOM = Path(profiler_kit.loading.__file__).parent


def name_of(words: tuple[str, ...]) -> str:
    return "_".join(word for word in words if word != "*")


def test_no_spelling_is_in_two_rows() -> None:
    rows: dict[tuple[str, ...], set[str]] = {}
    for concept in CONCEPTS:
        for words in spellings_of(concept):
            rows.setdefault(words, set()).add(concept.name)
    assert {words: names for words, names in rows.items() if len(names) > 1} == {}
    assert len({concept.name for concept in CONCEPTS}) == len(CONCEPTS)


@pytest.mark.parametrize("concept", CONCEPTS, ids=lambda concept: concept.name)
def test_each_row_is_reachable_by_all_of_its_spellings(concept: Concept) -> None:
    for words in spellings_of(concept):
        found = concept_of(name_of(words))
        if words[0] != "*":  # another row may have the shortest name itself: "channels" beside "* channels"
            assert found is concept or words[-1] == "*", words
        assert concept_of(f"third_{name_of(words)}") is concept if words[0] == "*" else True
    if concept.role is not None:
        reached = {input_concept(word) for word in concept.inputs.split()}
        assert concept in reached
    assert concept.arguments or concept.inputs


@pytest.mark.parametrize("concept", [c for c in CONCEPTS if c.role is not None], ids=lambda concept: concept.name)
def test_a_row_with_a_role_has_words_for_it_and_no_other_row_has_the_role(concept: Concept) -> None:
    assert concept.inputs
    assert [c.name for c in CONCEPTS if c.role is concept.role] == [concept.name]


@pytest.mark.parametrize("concept", [c for c in CONCEPTS if c.usual is not None], ids=lambda concept: concept.name)
def test_usual_values_fit_the_meaning(concept: Concept) -> None:
    value = concept.usual({"image_size": 32, "embed_dim": 96}) if callable(concept.usual) else concept.usual
    if concept.name in ("classes", "heads", "head width", "feed-forward width", "width", "length", "layers", "tokens"):
        assert type(value) is int
        assert value > 0
    if re.search(r"channels|size|side|rate|frames|count|points", concept.name):
        assert isinstance(value, (int, float))
        assert value > 0
    if concept.name in ("dropout", "probability", "momentum", "slope", "epsilon"):
        assert 0 < value < 1
    if concept.name.startswith("switch"):
        assert type(value) is bool


@pytest.mark.parametrize(
    ("names", "concept"),
    [
        (("num_classes", "nclass", "numClasses", "number_of_classes", "n_labels", "class_num"), "classes"),
        (("in_channels", "inputChan", "nc", "num_ch", "img_channels", "c_in"), "image channels"),
        (("hidden_channels", "base_ch", "convChannels"), "inner channels"),
        (("imgsz_", "zebra"), None),
        (("maxlen", "max_len", "seqLen", "block_size"), "length"),
        (("drop", "droprate", "attn_dropout", "p_drop", "dropRate"), "dropout"),
        (("vocab_size", "src_vocab", "ntoken", "n_src_vocab"), "tokens"),
        (("use_bias",), "switch that is on"),
        (("use_attention", "is_causal"), "switch"),
        (("cfg", "model_config", "hparams"), "configuration"),
        (("backbone", "base_model", "student", "text_encoder"), "module"),
        (("num_layers", "depths", "encoder_layers", "n_layer"), "layers"),
    ],
)
def test_names_of_arguments(names: tuple[str, ...], concept: str | None) -> None:
    for name in names:
        found = concept_of(name)
        assert (found.name if found is not None else None) == concept, name


def test_the_order_of_spellings_is_that_of_their_certainty() -> None:
    names = ["crop_size", "in_size", "image_size"]
    assert sorted(names, key=lambda name: spelling_rank(name, "image size") or 0) == names[::-1]
    assert spelling_rank("image_size", "length") is None
    assert is_concept("image_size", "image size")


def test_labels_are_one_list_for_parameters_keys_and_losses() -> None:
    for name in LABELS:
        concept = input_concept(name)
        assert concept is not None
        assert concept.role is Role.CLASS
        assert is_label(name.upper())
    assert not is_label("image")


def test_no_other_file_of_the_room_lists_names_of_labels_or_sizes() -> None:
    """A list of names that stands beside the table would answer the same question a second time."""
    lists = re.compile(r"[(\[{]((?:\s*\"[a-z_]+\",?){4,})\s*[)\]}]")
    spellings = {name_of(words) for concept in CONCEPTS for words in spellings_of(concept)} - {""}
    for file in ROOM.rglob("*.py"):
        for match in lists.finditer(file.read_text(encoding="utf-8")) if file.name != "vocabulary.py" else ():
            names = re.findall(r"\"([a-z_]+)\"", match[1])
            shared = [name for name in names if (name in spellings and "_" in name) or name in LABELS]
            assert len(shared) * 2 < len(names), (file.name, list(itertools.islice(shared, 5)))
