"""Environments in which a correct model is counted: variables, streams, folders, limits, other files."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
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


UNSET_ALL: Final = 'for v in $(compgen -e); do case $v in PYTHONPATH|HOSTILE) ;; *) unset "$v";; esac; done'
THREAD: Final = "import threading, time; threading.Thread(target=time.sleep, args=(300,), daemon=True).start()"
WRAPPED: Final = """\
import sys
class Stream:
    write = lambda self, text: len(text)
    flush = lambda self: None
sys.stdout = Stream()
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


def _variable(name: str, *values: str | None) -> list[Environment]:
    return [Environment(f"{name}={value}", {name: value}) for value in values]


SINGLE: Final[dict[int, list[Environment]]] = {
    1: [
        *_variable("PYTHONWARNINGS", "error", "junk::x"),
        *_variable("PYTHONHASHSEED", "0", "4294967295"),
        *_variable("PYTHONOPTIMIZE", "2"),
        *_variable("PYTHONDONTWRITEBYTECODE", "1"),
        *_variable("PYTHONUNBUFFERED", "1"),
        *_variable("PYTHONIOENCODING", "ascii", "utf-16"),
        *_variable("PYTHONDEVMODE", "1"),
        *_variable("PYTHONFAULTHANDLER", "1"),
        *_variable("HOME", None, "/nonexistent", "/proc"),
        *_variable("TMPDIR", "/nonexistent", "/proc", "relative", "/dev/full"),
        *_variable("LANG", "C", "junk"),
        *_variable("LC_ALL", "C", "POSIX"),
        *_variable("COLUMNS", "0", "-5", "junk", "1", "99999999999999999999"),
        *_variable("LINES", "junk"),
        *_variable("TERM", "", "dumb", "junk"),
        *_variable("FORCE_COLOR", "1", "junk"),
        *_variable("NO_COLOR", "1"),
        *_variable("CUDA_VISIBLE_DEVICES", "junk", "-1", "99"),
        *_variable("OMP_NUM_THREADS", "0", "junk", "-1"),
        *_variable("MKL_NUM_THREADS", "junk"),
        *_variable("PATH", "", None),
        *_variable("PYTHONSTARTUP", "/nonexistent"),
        *_variable("XDG_CACHE_HOME", "/proc", "/dev/null"),
        *_variable("TORCH_LOGS", "junk"),
        *_variable("GIT_DIR", "/nonexistent"),
        Environment("stdin closed", redirection="<&-"),
        Environment("stdout closed", redirection=">&-"),
        Environment("stderr closed", redirection="2>&-"),
        Environment("all streams closed", redirection="<&- >&- 2>&-"),
        Environment("stdout full", redirection=">/dev/full"),
        Environment("stderr full", redirection="2>/dev/full"),
        Environment("reader leaves", redirection="| true; exit ${PIPESTATUS[0]}"),
        Environment("deleted folder", before="mkdir gone && cd gone && rmdir ../gone", words="$OLDPWD/net.py"),
        Environment("few descriptors", before="ulimit -n 16"),
        Environment("small files", before="ulimit -f 0", not_judged="stderr is a file here, and may not grow"),
        Environment("little memory", before="ulimit -v 4000000"),
        Environment("tiny memory", before="ulimit -v 600000"),
        Environment("little stack", before="ulimit -s 256"),
        Environment("core files", before="ulimit -c 0"),
        Environment("little time", before="ulimit -t 1"),
        Environment("signals ignored", before="trap '' INT TERM HUP CHLD PIPE"),
        Environment("job of a shell", before="sleep 30 & disown", redirection=""),
        *(
            Environment(f"{name} shadowed", files={f"{name}.py": "x = 1\n"})
            for name in ("random", "json", "typing", "torch", "numpy", "rich", "signal", "ctypes", "types")
        ),
        Environment(
            "sitecustomize exits", {"PYTHONPATH": "site"}, files={"site/sitecustomize.py": "raise SystemExit(0)"},
            not_judged="sitecustomize runs when Python starts, and ends it",
        ),
        Environment("sitecustomize raises", {"PYTHONPATH": "site"}, files={"site/sitecustomize.py": "1/0"}),
        Environment(
            "modules polluted", {"PYTHONPATH": "site"},
            files={"site/sitecustomize.py": "import sys; sys.modules['numpy'] = None; sys.modules['junk'] = 3"},
        ),
        Environment("broken package", {"PYTHONPATH": "site"}, files={"site/numpy/__init__.py": "1/0"}),
        Environment("broken rich", {"PYTHONPATH": "site"}, files={"site/rich/__init__.py": "import os; os._exit(0)"}),
        Environment("not a package", {"PYTHONPATH": "net.py:/nonexistent:/dev/null"}),
        Environment("broken git", before="mkdir .git && echo junk > .git/HEAD"),
        Environment("git file", before="echo 'gitdir: /nonexistent' > .git"),
        Environment("broken settings", files={"pyproject.toml": "[tool.profiler-kit\n"}),
        Environment("argument bytes", words="$'n\\xfft.py'"),
        Environment("empty argument", words="''"),
        Environment("long argument", words="$(printf 'x%.0s' $(seq 5000)).py"),
        Environment("line end in argument", words="$'net.py\\n'"),
        Environment("folder as target", words="."),
        Environment("model without permission", before="chmod 000 net.py"),
    ],
    2: [
        *_variable("PYTHONPATH", "/dev/null/x", ":::", "\udcff"),
        *_variable("PYTHONINSPECT", "1"),
        *_variable("PYTHONVERBOSE", "1"),
        *_variable("PYTHONSAFEPATH", "1"),
        *_variable("PYTHONNOUSERSITE", "1"),
        *_variable("PYTHONMALLOC", "debug"),
        *_variable("PYTHONTRACEMALLOC", "5"),
        *_variable("PYTHONUTF8", "0"),
        *_variable("PYTHONINTMAXSTRDIGITS", "640"),
        *_variable("PYTHONPROFILEIMPORTTIME", "1"),
        *_variable("PYTHONBREAKPOINT", "os._exit"),
        *_variable("TZ", "junk", ":/nonexistent"),
        *_variable("CI", "1"),
        *_variable("GITHUB_ACTIONS", "true"),
        *_variable("CLICOLOR_FORCE", "1"),
        *_variable("TORCH_HOME", "/proc"),
        *_variable("TORCHINDUCTOR_CACHE_DIR", "/proc"),
        *_variable("PYTORCH_CUDA_ALLOC_CONF", "junk"),
        *_variable("TORCH_SHOW_CPP_STACKTRACES", "1"),
        *_variable("TORCHDYNAMO_DISABLE", "1"),
        *_variable("RANK", "junk", "0"),
        *_variable("WORLD_SIZE", "2"),
        *_variable("LD_LIBRARY_PATH", "/nonexistent"),
        *_variable("LD_PRELOAD", "/nonexistent.so"),
        *_variable("MALLOC_CHECK_", "3"),
        *_variable("KMP_AFFINITY", "junk"),
        *_variable("GOMP_CPU_AFFINITY", "99"),
        *_variable("USER", None),
        *_variable("PWD", "/nonexistent"),
        Environment("no variables", before=UNSET_ALL),
        Environment("stdin full of bytes", redirection="< /dev/urandom"),
        Environment("stdin is a folder", redirection="< .", not_judged="Python refuses a folder as standard input"),
        Environment("stderr into stdin", redirection="2<&0"),
        Environment("stdout read-only", redirection="1< net.py"),
        Environment("stderr reader leaves", redirection="2> >(true)"),
        Environment("unreadable folder", before="mkdir dark && cd dark && chmod 000 .", words="$OLDPWD/net.py"),
        Environment("read-only folder", before="chmod 555 ."),
        Environment("no new processes", before="ulimit -u 1"),
        Environment("no locked memory", before="ulimit -l 0"),
        Environment("blocked by nice", before="renice 19 $$ > /dev/null"),
        Environment("umask", before="umask 777"),
        Environment("in the background", before="set -m", redirection="& wait $!"),
        Environment("under timeout", words="net.py", before="export PREFIX='timeout 100'"),
        *(
            Environment(f"{name} shadowed", files={f"{name}.py": "raise ValueError('shadow')\n"})
            for name in ("os", "re", "enum", "struct", "select", "logging", "inspect", "copy", "msgspec")
        ),
        Environment(
            "profiler_kit shadowed", files={"profiler_kit.py": "raise ValueError('shadow')\n"},
            not_judged="python -m runs the file of the working directory",
        ),
        *(
            Environment(f"{name} as a folder", files={f"{name}/__init__.py": "x = 1\n"})
            for name in ("torch", "json", "numpy", "packaging", "sympy")
        ),
        Environment(
            "audit hook", {"PYTHONPATH": "site"},
            files={"site/sitecustomize.py": "import sys\nsys.addaudithook(lambda e, a: 1/0 if e == 'os.fork' else None)"},
        ),
        Environment(
            "no fork", {"PYTHONPATH": "site"}, files={"site/sitecustomize.py": "import os; del os.fork"}
        ),
        Environment(
            "thread at the start", {"PYTHONPATH": "site"},
            files={"site/sitecustomize.py": THREAD},
        ),
        Environment(
            "exit handler", {"PYTHONPATH": "site"},
            files={"site/sitecustomize.py": "import atexit, os; atexit.register(os._exit, 0)"},
        ),
        Environment(
            "streams wrapped", {"PYTHONPATH": "site"},
            files={"site/sitecustomize.py": WRAPPED},
        ),
        Environment(
            "stderr is None", {"PYTHONPATH": "site"}, files={"site/sitecustomize.py": "import sys; sys.stderr = None"}
        ),
        Environment(
            "ctypes refused", {"PYTHONPATH": "site"}, files={"site/ctypes.py": "raise ImportError('no ctypes')"}
        ),
        Environment("settings as a folder", before="mkdir pyproject.toml"),
        Environment("link to itself", before="ln -s loop.py loop.py", words="loop.py"),
        Environment("pipe as target", before="mkfifo pipe.py", words="pipe.py"),
        Environment("device as target", words="/dev/null"),
        Environment("huge line", before="python3 -c \"print('x = 1 #' + 'y' * 10**7)\" >> net.py"),
        Environment("mixed encoding", before="printf '# \\xff\\n' >> net.py"),
        Environment("null bytes", before="printf 'x = 1\\0' >> net.py"),
    ],
}  # fmt: skip


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
