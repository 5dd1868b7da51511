"""The work on gradients of parameters in nodes of autograd that compute those of their input as well."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.records.families import is_product_family
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.names import is_operator, operator_family
from profiler_kit.traces.table import NONE, Ids, Ints, Mask


class ParameterGradients(NamedTuple):
    """Finds the work on gradients of parameters in a node.

    Of two products of a node, the second one is that of the parameter: autograd computes gradients in the order of arguments, and
    the input precedes the weight. A convolution launches kernels of both gradients in one operator. A sum reduces a gradient to
    the shape of a bias.

    `order`: the host events by their node; `node`: the node of each of these. Of host events: `parent`, `start_ns` and `end_ns`;
    `is_product`, `is_sum`: operators; `computes_any`: operators that are no views; `is_weight`: launches of kernels for the
    weight of a convolution.
    """

    order: Ints
    node: Ids
    parent: Ids
    start_ns: Ints
    end_ns: Ints
    is_product: Mask
    is_sum: Mask
    computes_any: Mask
    is_weight: Mask

    @classmethod
    def of(cls, attribution: Attribution, node: Ids) -> ParameterGradients:
        """Return those of a trace. `node`: the node of each host event, or NONE."""
        host, table, device = attribution.host, attribution.table, attribution.device
        name, order = table.name[host.rows], np.argsort(node, kind="stable")
        family = [operator_family(text) if is_operator(text) else "view" for text in table.names]
        of_weight = np.array([classify(text).op == "wgrad" for text in table.names], np.bool_)
        launch = device.launch[of_weight[table.name[device.rows]]]
        is_weight = np.zeros(len(host.rows), np.bool_)
        is_weight[launch[launch != NONE]] = True
        return cls(
            order=order,
            node=node[order],
            parent=host.parent,
            start_ns=host.start_ns,
            end_ns=host.end_ns,
            is_product=np.array([is_product_family(item) for item in family], np.bool_)[name],
            is_sum=np.array([text == "aten::sum" for text in table.names], np.bool_)[name],
            computes_any=np.array([item not in ("view", "autograd") for item in family], np.bool_)[name],
            is_weight=is_weight,
        )

    def computes(self, node: int) -> bool:
        """Return whether a node calls operators that are no views."""
        return bool(self.computes_any[self._inside(node)].any())

    def work(self, node: int) -> Ints:
        """Return the events of the work on gradients of parameters in a node."""
        events = self._inside(node)
        calls = [
            node,
            *events[self.parent[events] == node].tolist(),
        ]  # autograd records a node twice: in its evaluation is the call
        outer = events[np.isin(self.parent[events], calls)]
        of_parameters = (*outer[self.is_product[outer]][1:].tolist(), *outer[self.is_sum[outer]].tolist())
        is_inside = self.is_weight[events]
        for at in of_parameters:
            is_inside |= (events >= at) & (self.start_ns[events] < self.end_ns[at])
        return events[is_inside]

    def _inside(self, node: int) -> Ints:
        low, high = np.searchsorted(self.node, (node, node + 1)).tolist()
        return self.order[low:high]
