"""Model files that misbehave: where user code runs, times what it does there."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

TEMPLATE: Final = """\
import ctypes, os, signal, subprocess, sys, threading, time
import torch
from torch import nn
{top}

class Fatal(BaseException):
    pass


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        {block_forward}
        return self.linear(x)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        {backward}
        return gradient * 2


class Net(nn.Module):
    {class_body}

    def __init__(self):
        super().__init__()
        {init}
        self.block = Block()
        self.head = nn.Linear(8, 2)
        {after_init}

    def forward(self, x):
        {forward}
        return self.head(Function.apply(self.block(x)))

{methods}


def get_model():
    {build}
    return Net()


def loss_fn(output, *labels):
    {loss}
    return output.float().square().mean()


def example_inputs():
    {inputs}
    return (torch.zeros(2, 8),)

{bottom}
"""
METHODS: Final = {
    "state_dict": "(self, *args, **kwargs)",
    "named_parameters": "(self, *args, **kwargs)",
    "named_modules": "(self, *args, **kwargs)",
    "parameters": "(self, *args, **kwargs)",
    "train": "(self, mode=True)",
    "to": "(self, *args, **kwargs)",
    "__del__": "(self)",
    "__repr__": "(self)",
    "extra_repr": "(self)",
    "__getattr__": "(self, name)",
    "__deepcopy__": "(self, memo)",
    "__setattr__": "(self, name, value)",
    "__call__": "(self, *args, **kwargs)",
    "__getstate__": "(self)",
    "__dir__": "(self)",
}
SPECIAL: Final = {
    "optimizer": "def configure_optimizer(model):\n    {act}\n    return torch.optim.SGD(model.parameters(), lr=0.1)\n",
    "loader": ("def train_loader():\n    {act}\n    return [(torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64))]\n"),
    "tensor_hook": "",
    "module_hook": "",
}
PLACES: Final = (
    "top", "class_body", "init", "after_init", "build", "forward", "block_forward", "loss", "backward", "inputs", "bottom",
    *METHODS, *SPECIAL,
)  # fmt: skip
# what happens, as one line of Python; "round" is the first run of the benchmark that had it
ACTS: Final[dict[int, dict[str, str]]] = {
    1: {
        "exit in Python": "os._exit(0)",
        "exit 1 in Python": "os._exit(1)",
        "exit in C": "ctypes.CDLL(None).exit(0)",
        "exit 1 in C": "ctypes.CDLL(None).exit(1)",
        "posix exit": "__import__('posix')._exit(0)",
        "abort": "os.abort()",
        "null pointer": "ctypes.string_at(0)",
        "SIGKILL": "signal.raise_signal(signal.SIGKILL)",
        "SIGTERM": "signal.raise_signal(signal.SIGTERM)",
        "kill by id": "os.kill(os.getpid(), 9)",
        "kill the group": "os.killpg(os.getpgrp(), 15)",
        "GeneratorExit": "raise GeneratorExit",
        "BaseException": "raise Fatal('panic')",
        "sys.exit 0": "sys.exit(0)",
        "sys.exit 1": "sys.exit(1)",
        "sys.exit text": "sys.exit('usage: net.py')",
        "KeyboardInterrupt": "raise KeyboardInterrupt",
        "ValueError": "raise ValueError('no')",
        "fork": "os.fork()",
        "fork that raises": "raise ValueError('copy') if os.fork() == 0 else None",
        "exec": "os.execv('/bin/true', ['true'])",
        "exec of itself": "os.execv(sys.executable, [sys.executable, *sys.argv])",
        "deep recursion": "sys.setrecursionlimit(10**9); f = lambda n: f(n + 1) + sum(map(f, [n])); f(0)",
        "daemon": "subprocess.Popen(['sleep', '300'], start_new_session=True)",
        "late exit of a thread": "threading.Timer(0.3, os._exit, (0,)).start()",
        "thread that stays": "threading.Thread(target=time.sleep, args=(300,)).start()",
        "close stdout": "sys.stdout.close()",
        "close stderr": "sys.stderr.close()",
        "close descriptors": "os.closerange(0, 3)",
        "close all descriptors": "os.closerange(0, 300)",
        "streams are None": "sys.stdout = sys.stderr = None",
        "chdir": "os.chdir('/')",
        "no descriptors left": "__import__('resource').setrlimit(7, (4, 4))",
        "no file size": "__import__('resource').setrlimit(1, (0, 0))",
        "exit handler": "__import__('atexit').register(os._exit, 0)",
        "printing exit handler": "__import__('atexit').register(print, 'bye')",
        "hang": "exec('while True: pass')",
        "hang in sleep": "time.sleep(10000)",
        "hang in C": "ctypes.PyDLL(None).sleep(10000)",
        "hang that catches all": "exec('while True:\\n try:\\n  time.sleep(1)\\n except BaseException: pass')",
        "signals ignored": "[signal.signal(n, signal.SIG_IGN) for n in (2, 14, 15)]",
        "flood of stdout": "sys.stdout.write('x' * 10**6); os.write(1, b'y' * 10**5)",
        "false report": 'os.write(1, b\'{"verdict": "pass"}\')',
        "no modules": "[sys.modules.pop(n) for n in list(sys.modules) if n.startswith(('json', 'torch.nn'))]",
        "no path": "sys.path.clear(); sys.path_importer_cache.clear()",
        "no environment": "os.environ.clear()",
        "print replaced": "__import__('builtins').print = None",
        "exception without text": (
            "raise type('E', (Exception,), {'__str__': lambda self: 1/0, '__repr__': lambda self: 1/0})()"
        ),
    },
    2: {
        "quick_exit": "ctypes.CDLL(None).quick_exit(0)",
        "_exit in C": "ctypes.CDLL(None)._exit(0)",
        "SIGBUS": "signal.raise_signal(signal.SIGBUS)",
        "SIGFPE": "signal.raise_signal(signal.SIGFPE)",
        "SIGHUP": "signal.raise_signal(signal.SIGHUP)",
        "SIGPIPE": "signal.signal(13, signal.SIG_DFL); signal.raise_signal(13)",
        "SIGALRM": "signal.signal(14, signal.SIG_DFL); signal.raise_signal(14)",
        "SIGSTOP of the parent": "ctypes.CDLL(None).kill(os.getppid(), 19) if False else None",
        "wild jump": "ctypes.CFUNCTYPE(None)(16)()",
        "write to code": "ctypes.memset(id(None), 255, 64)",
        "StopIteration": "raise StopIteration",
        "CancelledError": "raise __import__('asyncio').CancelledError",
        "exception group": "raise BaseExceptionGroup('group', [Fatal(), KeyError('x')])",
        "exception class that raises": (
            "raise type('E', (BaseException,), {'__getattribute__': lambda self, n: os._exit(0)})()"
        ),
        "MemoryError": "raise MemoryError",
        "SystemExit in a thread": "threading.Thread(target=sys.exit, args=(0,)).start()",
        "forks without end": "[os.fork() for _ in range(3)]",
        "fork in C": "ctypes.CDLL(None).fork()",
        "fork in a thread": "t = threading.Thread(target=os.fork); t.start(); t.join()",
        "pool of processes": "__import__('multiprocessing').Pool(2)",
        "process that stays": "__import__('multiprocessing').Process(target=time.sleep, args=(300,)).start()",
        "double fork": ("subprocess.Popen('(setsid sleep 300 &) ; exit 0', shell=True, stdout=2).wait()"),
        "exec in a thread": "threading.Thread(target=os.execv, args=('/bin/true', ['true'])).start()",
        "shell": "os.system('exit 3')",
        "new session": "os.setsid() if os.getpid() != os.getsid(0) else None",
        "stdout to a file": "os.dup2(os.open('/dev/null', 1), 1); os.dup2(os.open('/dev/null', 1), 2)",
        "stderr replaced": "sys.stderr = open('/dev/null')",
        "stdout replaced": "sys.stdout = type('S', (), {})()",
        "deleted folder": (
            "d = __import__('tempfile').mkdtemp() if False else '/tmp/hostile_gone'; "
            "os.makedirs(d, exist_ok=True); os.chdir(d); os.rmdir(d)"
        ),
        "little memory": "__import__('resource').setrlimit(9, (2**31, 2**31))",
        "little time": "__import__('resource').setrlimit(0, (1, 1))",
        "no processes": "__import__('resource').setrlimit(6, (0, 0))",
        "umask": "os.umask(0o777)",
        "trace function": "sys.settrace(lambda *a: 1/0)",
        "profile function": "sys.setprofile(lambda *a: None)",
        "excepthook": "sys.excepthook = lambda *a: os._exit(0)",
        "unraisable hook": "sys.unraisablehook = lambda *a: os._exit(0)",
        "import hook": "sys.meta_path.insert(0, type('F', (), {'find_spec': lambda *a: 1/0})())",
        "audit hook": "sys.addaudithook(lambda e, a: os._exit(0) if e == 'os.fork' else None)",
        "open replaced": "__import__('builtins').open = None",
        "isinstance replaced": "__import__('builtins').isinstance = lambda *a: True",
        "json replaced": "__import__('json').dumps = lambda *a, **k: '{}'",
        "time replaced": "time.monotonic = time.perf_counter = lambda: 0",
        "Linear replaced": "nn.Linear.forward = lambda self, x: None",
        "call replaced": "nn.Module.__call__ = lambda self, *a: None",
        "default device": "torch.set_default_device('cuda')",
        "default type": "torch.set_default_dtype(torch.float16)",
        "inference mode": "torch.inference_mode().__enter__()",
        "dispatch mode": "torch.utils._python_dispatch.TorchDispatchMode().__enter__()",
        "anomaly mode": "torch.autograd.set_detect_anomaly(True)",
        "no collection": "__import__('gc').set_threshold(1, 1, 1)",
        "collection callback": "__import__('gc').callbacks.append(lambda *a: 1/0)",
        "warnings are errors": "__import__('warnings').simplefilter('error'); __import__('warnings').warn('w')",
        "lock held": "__import__('logging')._lock.acquire()",
        "import lock": "__import__('_imp').acquire_lock()",
        "blocked signals": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
        "handler that exits": "signal.signal(14, lambda *a: os._exit(0)); signal.setitimer(0, 0.2)",
        "closed held output": "sys.stdout.buffer.close() if hasattr(sys.stdout, 'buffer') else None",
        "huge text": "raise ValueError('x' * 10**7)",
        "control characters": "raise ValueError('\\x1b[2J\\n::error::\\n\\x00\\udcff')",
    },
}


@dataclass(frozen=True, slots=True)
class HostileModel:
    """A model file with `act` at `place`."""

    place: str
    act: str
    source: str


def hostile_models(count: int, seed: int, rounds: tuple[int, ...]) -> Iterator[HostileModel]:
    """`count` model files with the acts of `rounds`; each act and each place as often as the others, up to one."""
    random_numbers = random.Random(seed)
    acts = {name: code for number in rounds for name, code in ACTS[number].items()}
    names: list[str] = []
    places: list[str] = []
    for _ in range(count):
        names = names or random_numbers.sample(list(acts), len(acts))
        places = places or random_numbers.sample(PLACES, len(PLACES))
        place, name = places.pop(), names.pop()
        yield HostileModel(place=place, act=name, source=model_source(place, acts[name]))


def model_source(place: str, act: str) -> str:
    """The text of a model file that does `act` at `place`."""
    parts: Mapping[str, str] = dict.fromkeys(
        ("top", "class_body", "init", "after_init", "build", "forward", "block_forward", "loss", "backward", "inputs"),
        "pass",
    ) | {"methods": "", "bottom": ""}
    if place in METHODS:
        arguments = METHODS[place]
        names = arguments.removeprefix("(self").removesuffix(")").removeprefix(", ").replace("=True", "")
        guard = "if name == 'head': " if place in ("__getattr__", "__setattr__") else ""
        result = f"return super().{place}({names})" if place != "__del__" else "return"
        body = f"    def {place}{arguments}:\n        {guard}{_inline(act)}\n        {result}\n"
        return TEMPLATE.format(**{**parts, "methods": body})
    if place == "tensor_hook":
        return TEMPLATE.format(
            **{**parts, "forward": f"x.requires_grad and x.register_hook(lambda g: {_expression(act)})"}
        )
    if place == "module_hook":
        hook = f"self.block.register_forward_hook(lambda *a: {_expression(act)})"
        return TEMPLATE.format(**{**parts, "after_init": hook})
    if place in SPECIAL:
        return TEMPLATE.format(**{**parts, "bottom": SPECIAL[place].format(act=act)})
    return TEMPLATE.format(**{**parts, place: act})


def _inline(act: str) -> str:
    return f"exec({act!r}, globals())"


def _expression(act: str) -> str:
    return f"exec({act!r}, globals())"
