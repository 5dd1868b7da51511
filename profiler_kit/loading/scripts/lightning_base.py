"""A substitute for Lightning's base class where the package is missing, so that its models can still be built and run."""

from __future__ import annotations

import inspect
import sys
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import nn

NAME = "LightningModule"


class _Hyperparameters(SimpleNamespace):
    """Values that are read as attributes or as items, as Lightning's ``hparams``."""

    def __getitem__(self, key: str) -> Any:
        return vars(self)[key]

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, value)

    def __contains__(self, key: str) -> bool:
        return key in vars(self)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, as of a dict."""
        return vars(self).get(key, default)


class LightningModule(nn.Module):
    """The parts of Lightning's class that constructors use.

    Source: https://lightning.ai/docs/pytorch/stable/common/lightning_module.html
    """

    example_input_array: Any = None
    automatic_optimization = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As in Lightning, a model can define only its training step."""
        return super().forward(*args, **kwargs)

    def save_hyperparameters(self, *names: Any, ignore: Any = (), frame: Any = None, logger: bool = True) -> None:
        """Store the arguments of the calling constructor, or those in `names`, in ``hparams``."""
        caller: FrameType = frame or sys._getframe(1)
        arguments = inspect.getargvalues(caller)
        values = {name: arguments.locals[name] for name in arguments.args[1:]}
        values |= arguments.locals.get(arguments.keywords or "", {})
        if names and all(isinstance(name, str) for name in names):
            values = {name: arguments.locals[name] for name in names if name in arguments.locals}
        elif names:
            values = dict(names[0] if isinstance(names[0], dict) else vars(names[0]))
        ignored = {ignore} if isinstance(ignore, str) else set(ignore or ())
        vars(self.hparams).update({name: value for name, value in values.items() if name not in ignored})

    @property
    def hparams(self) -> _Hyperparameters:
        """The stored arguments."""
        values: _Hyperparameters = vars(self).setdefault("_stored_hyperparameters", _Hyperparameters())
        return values

    @property
    def device(self) -> torch.device:
        """The device of the first parameter."""
        return next((parameter.device for parameter in self.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first parameter."""
        return next((parameter.dtype for parameter in self.parameters()), torch.float32)

    def freeze(self) -> None:
        """Turn off gradients of all parameters."""
        self.requires_grad_(False)
        self.eval()
