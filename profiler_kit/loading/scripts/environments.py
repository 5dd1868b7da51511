"""A stand-in for gym and gymnasium: environments whose observations and actions have the known shapes, and do nothing."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

_VERSION: Final = re.compile(r"(?:ALE/)?(.+?)(?:NoFrameskip|Deterministic)?-v(\d+)")
_STEPS: Final = 1000
_FRAME: Final = (210, 160, 3)
_RAM: Final = (128,)
# name: (shape of an observation, or number of states; number of actions, or (size of an action, largest value)).
# From https://gymnasium.farama.org/environments; of Ant, the versions up to 3, whose observations contain contact forces.
_ENVIRONMENTS: Final[dict[str, tuple[tuple[int, ...] | int, int | tuple[int, float]]]] = {
    "CartPole": ((4,), 2), "MountainCar": ((2,), 3), "MountainCarContinuous": ((2,), (1, 1)), "Acrobot": ((6,), 3),
    "Pendulum": ((3,), (1, 2)), "LunarLander": ((8,), 4), "LunarLanderContinuous": ((8,), (2, 1)),
    "BipedalWalker": ((24,), (4, 1)), "BipedalWalkerHardcore": ((24,), (4, 1)), "CarRacing": ((96, 96, 3), (3, 1)),
    "FrozenLake": (16, 4), "FrozenLake8x8": (64, 4), "Taxi": (500, 6), "CliffWalking": (48, 4),
    "HalfCheetah": ((17,), (6, 1)), "Hopper": ((11,), (3, 1)), "Walker2d": ((17,), (6, 1)), "Ant": ((111,), (8, 1)),
    "Humanoid": ((376,), (17, 0.4)), "HumanoidStandup": ((376,), (17, 0.4)), "InvertedPendulum": ((4,), (1, 3)),
    "InvertedDoublePendulum": ((11,), (1, 1)), "Reacher": ((11,), (2, 1)), "Swimmer": ((8,), (2, 1)), "Pusher": ((23,), (7, 2)),
}  # fmt: skip
_ATARI: Final = {
    "Pong": 6, "Breakout": 4, "SpaceInvaders": 6, "Qbert": 6, "Seaquest": 18, "BeamRider": 9, "Enduro": 9, "MsPacman": 9,
    "Asterix": 9, "Assault": 7, "Freeway": 3, "Boxing": 18, "MontezumaRevenge": 18, "Alien": 18, "Amidar": 10, "Asteroids": 14,
    "Atlantis": 4, "BankHeist": 18, "Bowling": 6, "Centipede": 18, "CrazyClimber": 9, "DemonAttack": 6, "Frostbite": 18,
    "Gopher": 8, "Hero": 18, "IceHockey": 18, "Jamesbond": 18, "Kangaroo": 18, "Krull": 18, "KungFuMaster": 14, "Pitfall": 18,
    "PrivateEye": 18, "Riverraid": 18, "RoadRunner": 18, "Robotank": 18, "Solaris": 18, "StarGunner": 18, "Tennis": 18,
    "TimePilot": 10, "Tutankham": 8, "UpNDown": 6, "Venture": 18, "VideoPinball": 9, "WizardOfWor": 10, "Zaxxon": 18,
}  # fmt: skip


class Space:
    """The values of observations or actions."""

    shape: tuple[int, ...] = ()
    dtype: Any = np.dtype(np.float32)

    def sample(self) -> Any:
        """A value of the space; always the same."""
        return np.zeros(self.shape, self.dtype)

    def seed(self, *_: Any) -> None:
        """Nothing."""


class Box(Space):
    """Arrays between `low` and `high`."""

    def __init__(self, low: Any, high: Any, shape: Any = None, dtype: Any = np.float32, **_: Any) -> None:
        self.shape = tuple(shape) if shape is not None else np.shape(low)
        self.low, self.high = np.broadcast_to(low, self.shape), np.broadcast_to(high, self.shape)
        self.dtype = np.dtype(dtype)


class Discrete(Space):
    """The numbers below `n`."""

    dtype = np.dtype(np.int64)

    def __init__(self, n: int, **_: Any) -> None:
        self.n = n

    def sample(self) -> int:
        """The first number."""
        return 0


class Environment:
    """An environment with `observation_space` and `action_space`, of which each step gives zeros."""

    observation_space: Any = None
    action_space: Any = None
    metadata: Any = {}  # noqa: RUF012  as of the class that it stands for
    reward_range = (-np.inf, np.inf)
    num_envs = 1
    has_info = False  # as in gymnasium: an observation comes with a dict, and an episode ends in two ways
    _max_episode_steps = _STEPS

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    @property
    def unwrapped(self) -> Any:
        """The environment itself."""
        return self

    @property
    def spec(self) -> Any:
        """Its description."""
        return SimpleNamespace(max_episode_steps=self._max_episode_steps, reward_threshold=None, id="")

    single_observation_space = property(lambda self: self.observation_space)
    single_action_space = property(lambda self: self.action_space)

    def reset(self, **_: Any) -> Any:
        """An observation."""
        observation = self.observation_space.sample()
        return (observation, {}) if self.has_info else observation

    def step(self, action: Any) -> Any:
        """An observation, a reward, whether the episode has ended, and nothing else."""
        ends = (False, False) if self.has_info else (False,)
        return (self.observation_space.sample(), 0.0, *ends, {})

    def get_action_meanings(self) -> list[str]:
        """A name for each action, of which the second starts a game."""
        return ["NOOP", "FIRE", *("MOVE" for _ in range(self.action_space.n))][: self.action_space.n]

    def seed(self, *_: Any) -> None:
        """Nothing."""

    render = close = seed


class Wrapper(Environment):
    """An environment around `env`."""

    def __init__(self, env: Any, *_: Any, **__: Any) -> None:
        self.env, self.has_info = env, env.has_info
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def __getattr__(self, name: str) -> Any:
        if name == "env" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.env, name)


class _Reshaped(Wrapper):
    """An environment whose observations have another shape."""

    def __init__(self, env: Any, *args: Any, **words: Any) -> None:
        super().__init__(env)
        space = env.observation_space
        shape = self._shape(space.shape, *args, **words)
        self.observation_space = Box(space.low.min(), space.high.max(), shape, space.dtype)

    def _shape(self, shape: tuple[int, ...], *args: Any, **words: Any) -> tuple[int, ...]:
        return (int(np.prod(shape)),)


class _Stacked(_Reshaped):
    def _shape(self, shape: tuple[int, ...], *args: Any, **words: Any) -> tuple[int, ...]:
        return (next(iter((*args, *words.values()))), *shape)


class _Resized(_Reshaped):
    def _shape(self, shape: tuple[int, ...], *args: Any, **words: Any) -> tuple[int, ...]:
        size = next(iter((*args, *words.values())))
        return (*((size, size) if isinstance(size, int) else size), *shape[2:])


class _Gray(_Reshaped):
    def _shape(self, shape: tuple[int, ...], *args: Any, **words: Any) -> tuple[int, ...]:
        return (*shape[:2], 1) if words.get("keep_dim") else shape[:2]


class Vector(Wrapper):
    """Several environments as one."""

    def __init__(self, functions: Any, *_: Any, **__: Any) -> None:
        super().__init__(functions[0]())
        self.num_envs = len(functions)

    single_observation_space = property(lambda self: self.env.observation_space)
    single_action_space = property(lambda self: self.env.action_space)


def make(name: Any, *_: Any, has_info: bool = False, **__: Any) -> Environment:
    """The environment `name`. Raises LookupError for one whose shapes are not known here."""
    match = _VERSION.fullmatch(str(name))
    kind = match[1] if match is not None else str(name)
    if kind in _ENVIRONMENTS:
        observations, actions = _ENVIRONMENTS[kind]
        if kind == "Ant" and match is not None and int(match[2]) > 3:
            observations = (27,)
    elif kind.removesuffix("-ram") in _ATARI:
        observations, actions = _RAM if kind.endswith("-ram") else _FRAME, _ATARI[kind.removesuffix("-ram")]
    else:
        raise LookupError(f"the shapes of the environment {name} are not known without its package")
    environment = Environment()
    environment.has_info = has_info
    is_image = isinstance(observations, tuple) and (len(observations) > 1 or observations == _RAM)
    environment.observation_space = (
        Discrete(observations)
        if isinstance(observations, int)
        else Box(
            0 if is_image else -np.inf, 255 if is_image else np.inf, observations, np.uint8 if is_image else np.float32
        )
    )
    environment.action_space = (
        Discrete(actions) if isinstance(actions, int) else Box(-actions[1], actions[1], (actions[0],))
    )
    return environment


def module_contents(package: str) -> dict[str, dict[str, Any]]:
    """The names of each module of `package`, which is gym or gymnasium."""
    spaces: dict[str, Any] = {"Space": Space, "Box": Box, "Discrete": Discrete}
    wrappers = dict.fromkeys(("Wrapper", "ObservationWrapper", "ActionWrapper", "RewardWrapper"), Wrapper)
    reshaped = {
        "FrameStack": _Stacked, "FrameStackObservation": _Stacked, "ResizeObservation": _Resized, "FlattenObservation": _Reshaped,
        "GrayScaleObservation": _Gray, "GrayscaleObservation": _Gray,
    }  # fmt: skip
    same = (
        "RecordEpisodeStatistics", "RecordVideo", "Monitor", "TimeLimit", "ClipAction", "RescaleAction", "NormalizeObservation",
        "NormalizeReward", "TransformObservation", "TransformReward", "AtariPreprocessing", "OrderEnforcing",
    )  # fmt: skip
    vectors = dict.fromkeys(("SyncVectorEnv", "AsyncVectorEnv"), Vector)
    nothing = dict.fromkeys(("register", "register_envs"), lambda *_, **__: None)
    own_make = partial(make, has_info=package == "gymnasium")
    return {
        package: {"make": own_make, "Env": Environment, "Space": Space, "__version__": "1.0", **nothing, **wrappers},
        f"{package}.spaces": spaces, f"{package}.spaces.box": {"Box": Box}, f"{package}.spaces.discrete": {"Discrete": Discrete},
        f"{package}.core": {"Env": Environment, **wrappers},
        f"{package}.wrappers": {**reshaped, **dict.fromkeys(same, Wrapper)},
        f"{package}.envs": {}, f"{package}.envs.registration": nothing, f"{package}.utils": {}, f"{package}.vector": vectors,
    }  # fmt: skip
