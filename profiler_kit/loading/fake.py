"""A target on fake tensors, which know shape, dtype and a device but hold no values."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from profiler_kit.errors import TargetError
from profiler_kit.loading.batch import map_batch
from profiler_kit.loading.meta import copy_with
from profiler_kit.loading.model import Target
from profiler_kit.loading.values import remember_like

CPU = torch.device("cpu")


def as_fake(target: Target) -> Target:
    """A copy of a `target` on meta whose tensors are fake ones of the CPU.

    Tensors that its code makes without naming a device then meet their like. To be called, and the copy to be run, under a
    FakeTensorMode that allows real inputs. Raises TargetError when the model cannot be copied.
    """
    batch = map_batch(target.batch, fake_of, fake_of)
    return target.replaced(lambda model: copy_with(model, fake_of), batch, CPU)


def fake_of(tensor: Tensor) -> Tensor:
    """A fake tensor of the CPU like `tensor`; a parameter stays one, with its marks. Lazy ones have nothing to fake.

    Raises: TargetError for a sparse or nested tensor, which would come out as a dense one.
    """
    if is_lazy(tensor):
        return tensor
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise TargetError("a sparse or nested tensor has no fake version", hint="take --device cpu")
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=CPU)
    if not isinstance(tensor, nn.Parameter):
        return remember_like(made, tensor).requires_grad_(tensor.requires_grad)
    parameter = nn.Parameter(made, requires_grad=tensor.requires_grad)
    vars(parameter).update(vars(tensor))
    return parameter
