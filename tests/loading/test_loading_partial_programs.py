"""Programs of which a part cannot run here: a package or data are missing, an option is required. The rest states its values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small_files import HEAD, NET

from profiler_kit.loading import Target, load
from profiler_kit.records.target import TargetSpec

Write = Callable[..., None]

PROGRAMS = {
    "a constructor that reads missing files": (
        "from data import Words\nwords = Words('absent')\nmodel = Net(words.width)\n",
        "class Words:\n    def __init__(self, path):\n        self.lines = open(path).read()\n        self.width = 11\n",
    ),
    "a constructor of a derived class": (
        "from data import Words\nwords = Words('absent')\nmodel = Net(words.width)\n",
        "class Base:\n    def __init__(self, width):\n        self.width = width\n"
        "class Words(Base):\n    def __init__(self, path):\n        super().__init__(11)\n"
        "        self.lines = open(path).read()\n",
    ),
    "an argument that needs a missing package": (
        "import absent_package as ap\nfrom data import Words\n"
        "change = ap.Compose([ap.Scale(3)])\nmodel = Net(Words(change).width)\n",
        "class Words:\n    width = 11\n    def __init__(self, change):\n        self.change = change\n",
    ),
    "a method of an object with missing files": (
        "from data import Words\nmodel = Net(Words('absent').classes())\n",
        "class Words:\n    def __init__(self, path):\n        self.lines = open(path).read()\n"
        "    def classes(self):\n        return 11\n",
    ),
    "one of several results": (
        "from data import made\nlines, width = made('absent')\nmodel = Net(width)\n",
        "def made(path):\n    width = 11\n    return open(path).read(), width\n",
    ),
    "a function with an inner one": (
        "from data import made\nlines, width = made('absent')\nmodel = Net(width)\n",
        "def made(path):\n    def read(name):\n        return open(name).read()\n"
        "    width = 11\n    lines = read(path)\n    return lines, width\n",
    ),
    "a chain over a required option": (
        "import argparse\nfrom data import Words\np = argparse.ArgumentParser()\np.add_argument('--data')\na = p.parse_args()\n"
        "if a.data == 'words':\n    data = Words(11)\nelif a.data == 'pairs':\n    data = Words(7)\n"
        "else:\n    raise ValueError(a.data)\nmodel = Net(data.width)\n",
        "class Words:\n    def __init__(self, width):\n        self.width = width\n",
    ),
}


def loaded(target: str) -> Target:
    return load(TargetSpec(spec=target, inputs=("2,3",), mode="infer", command=("count", "")))


@pytest.mark.parametrize(("program", "data"), PROGRAMS.values(), ids=PROGRAMS)
def test_the_rest_of_a_program_states_its_values(write: Write, program: str, data: str) -> None:
    write(
        {
            "net.py": HEAD + NET.format(name="n", width="n"),
            "data.py": data,
            "train.py": "from net import Net\n" + program,
        }
    )
    target = loaded("net.py")
    assert target.model.fc.out_features == 11
    assert target.info.confidence.arguments == "derived"


def test_the_stated_items_of_a_list_are_kept(write: Write) -> None:
    write(
        {
            "net.py": HEAD + NET.format(name="sizes", width="sizes[0] + 0 * sizes[1]"),
            "train.py": "from net import Net\nitems = open('absent').read()\nmodel = Net([11, len(items)])\n",
        }
    )
    target = loaded("net.py")
    assert target.model.fc.out_features == 11
    assert target.info.confidence.arguments == "assumed"


def test_a_loop_over_missing_data_ends(write: Write) -> None:
    write(
        {
            "net.py": HEAD + NET.format(name="n", width="n"),
            "train.py": "from net import Net\nclass Data:\n    def __init__(self):\n        self.lines = []\n"
            "        self.lines.append(open('absent').read())\n"
            "lines = []\nwhile len(lines) < 3:\n    lines += Data().lines\nwidth = 11\nmodel = Net(width)\nprint(lines)\n",
        }
    )
    assert loaded("net.py").model.fc.out_features == 11


def test_a_file_next_to_the_script_is_found_from_another_folder(write: Write) -> None:
    write(
        {
            "net.py": HEAD + NET.format(name="n", width="n"),
            "run/train.py": "import json, pathlib\nfrom net import Net\n"
            "model = Net(json.loads(pathlib.Path('sizes.json').read_text())['wide'])\n",
            "run/sizes.json": '{"wide": 11}',
        }
    )
    assert loaded("net.py").model.fc.out_features == 11


def test_an_item_that_an_earlier_evaluation_has_deleted_from_a_class(write: Write) -> None:
    write(
        {
            "net.py": HEAD + NET.format(name="n, text=None", width="n"),
            "data.py": "class Words:\n    table = dict.fromkeys([*range(11), 'last'])\n",
            "train.py": "from net import Net\nfrom data import Words\ntable = Words.table\ndel table['last']\n"
            "model = Net(len(table), open('absent').read() + str(len(table)))\n",
        }
    )
    assert loaded("net.py").model.fc.out_features == 11
