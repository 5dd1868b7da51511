"""What PyTorch calls what it notes by itself: steps, modules' calls, autograd's nodes, optimizers, loaders, wrappers.

Names of operators are `operators`' matter, names of kernels `kernels`', names of collectives `collectives`'; how the file spells
categories and arguments is `dialect`'s.

Source: torch/profiler/profiler.py, torch/optim/optimizer.py, torch/utils/data/dataloader.py, torch/csrc/autograd/engine.cpp.
"""

from __future__ import annotations

import re
from typing import Final

STEP_PREFIX: Final = "ProfilerStep#"
MODULE_PREFIX: Final = "nn.Module: "
NODE_PREFIX: Final = "autograd::engine::evaluate_function: "
ACCUMULATE: Final = "torch::autograd::AccumulateGrad"
OPTIMIZER_STEP: Final = "Optimizer.step#"
OPTIMIZER_ZERO: Final = "Optimizer.zero_grad#"
LOADER_PREFIX: Final = "enumerate(DataLoader)#"
GRAPH_PREFIX: Final = "## Call CompiledFxGraph "
# TorchScript makes its one node for a stretch of the graph before it runs the stretch's ops: those carry the next number.
TORCHSCRIPT: Final = "torch::jit::"

_NODE_OF: Final = re.compile(r"(?:.*: )?(\w+?)(?:Backward\w*)?\Z")


def accumulates(name: str) -> bool:
    """Whether a node of this name adds a gradient to a leaf: such nodes belong to no forward op."""
    return name.endswith(ACCUMULATE)


def node_agrees(node: str, operator: str) -> bool:
    """Whether the node's name is made of the operator's: ``MulBackward0`` of ``aten::mul``."""
    match = _NODE_OF.match(node)
    return match is not None and match.group(1).lower() in operator.replace("_", "").lower()
