"""The order in which configurations are visited: there and back, and how many visits that makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profiler_kit.records.configs import RunConfig

if TYPE_CHECKING:
    from profiler_kit.measurement.launcher import Order


@dataclass(slots=True, kw_only=True)
class Tour:
    """Orders there and back: `there`, `optional` ones as long as they are wanted, `back` in turn, `last`.

    `optional_order` makes the order of an optional configuration, when its turn has come; None: it and those after it are
    left out. What has `failed` on the way there is not visited on the way back. `last` follows where there is more than one.
    """

    failed: Callable[[RunConfig], bool]
    there: list[Order]
    back: list[Order]
    last: list[Order] = field(default_factory=list)
    optional: list[RunConfig] = field(default_factory=list)
    optional_order: Callable[[RunConfig], Order | None] = lambda config: None
    visited: set[RunConfig] = field(default_factory=set)

    def orders(self) -> Iterator[Order]:
        """Each order as it is asked for."""
        from profiler_kit.measurement.sweep import way_back

        yield from list(self.there)  # as it is now: it grows below
        while self.optional:
            order = self.optional_order(self.optional[0])
            if order is None:
                self.optional.clear()
                break
            del self.optional[0]
            self.there.append(order)
            self.back = [*way_back([order]), *self.back]
            yield order
        for order in self.back:
            if not self.failed(order.config):
                self.visited.add(order.config)
                yield order
        if len(self.there) > 1:
            yield from self.last

    def count(self) -> int:
        """How many orders there will be, as far as it is known now."""
        back = [o for o in self.back if o.config in self.visited or not self.failed(o.config)]
        several = len(self.there) + len(self.optional) > 1
        return len(self.there) + 2 * len(self.optional) + len(back) + (len(self.last) if several else 0)
