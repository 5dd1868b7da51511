"""Environments in which a correct model is counted: variables, streams, folders, limits, other files."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MODEL: Final = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)


example_inputs = (torch.zeros(2, 8),)
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """What differs from a plain environment.

    `variables` are set (None: removed). `before` runs before the command, in bash, in the folder of the model. `redirection`
    follows the command. `files` are written beside the model. `not_judged` is the reason why a run cannot show a verdict,
    such as Python that ends before it runs any code of the package.
    """

    name: str
    variables: dict[str, str | None] = field(default_factory=dict)
    before: str = ":"
    redirection: str = ""
    files: dict[str, str] = field(default_factory=dict)
    words: str = "net.py"
    not_judged: str = ""


# By round, the first run of the benchmark that had them.
SINGLE: Final[dict[int, list[Environment]]] = {
    int(number): [Environment(**row) for row in rows]
    for number, rows in json.loads(Path(__file__).with_name("environments.json").read_text(encoding="utf-8")).items()
}


def environments(count: int, seed: int, rounds: tuple[int, ...]) -> Iterator[Environment]:
    """`count` environments: each single one, then pairs of variables and other differences."""
    random_numbers = random.Random(seed)
    singles = [environment for number in rounds for environment in SINGLE[number]]
    random_numbers.shuffle(singles)
    yield from singles[:count]
    plain = [environment for environment in singles if environment.variables and not environment.files]
    for _, first, second in zip(
        range(count - len(singles)),
        itertools.cycle(plain),
        random_numbers.choices(singles, k=max(0, count)),
        strict=False,
    ):
        yield Environment(
            f"{first.name}, {second.name}",
            {**first.variables, **second.variables},
            second.before,
            second.redirection,
            second.files,
            second.words,
            second.not_judged,
        )
