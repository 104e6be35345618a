"""Walks through the states of a problem, layer by layer, for the exact search and the regrets.

A walk is a shortest-path computation over the layered graph of states (:mod:`.states`). A state is pruned if the cost
so far plus a lower bound of the remaining cost is above a ceiling. No plan up to the ceiling goes through it. This is
the pruning of A*. The bound is the sum of the potentials of the nodes that are not covered yet.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .states import DONE, Move, Space, State

INFINITE = float("inf")

_CHECK_EVERY = 1000
"""After how many states the budget is looked at: one layer may have nearly all of them."""

_ROUNDING = 1e-9
"""The relative error of a sum that is computed in another order."""


class Label(NamedTuple):
    """The cheapest known way to a state."""

    seconds: float
    rest: float
    """A lower bound of the remaining cost; it may be negative, which means 0."""
    layer: int
    """The layer of the state before."""
    previous: State
    move: Move | None
    """The move from there; None at the start."""


Layers = dict[int, dict[State, Label]]


@dataclass(slots=True)
class Budget:
    """How many states may be visited, and until when."""

    states: int
    deadline: float
    visited: int = 0

    def is_spent(self) -> bool:
        return self.visited > self.states or time.monotonic() > self.deadline


def walk(
    space: Space, potential: float, ceiling: float, budget: Budget, width: int | None = None
) -> tuple[Layers, float]:
    """All states of plans up to the cost ``ceiling``, and a lower bound of the cost of every plan up to it.

    ``potential`` is the sum of all potentials. With ``width`` only the best states of each layer are expanded, and the
    second result is the cost of the cheapest plan found. If the budget ends, it is the bound of the open states.
    """
    top, start = space.start()
    limit = ceiling * (1 + _ROUNDING)
    layers: Layers = {top: {start: Label(0.0, potential, DONE, None, None)}}
    for layer in range(top, DONE, -1):
        states = layers.get(layer)
        if states is None:
            continue
        if width is not None and len(states) > width:
            kept = heapq.nsmallest(width, states.items(), key=lambda item: item[1].seconds + item[1].rest)
            states = layers[layer] = dict(kept)
        for number, (state, (seconds, rest, _, _, _)) in enumerate(states.items()):
            if number % _CHECK_EVERY == 0:
                budget.visited += min(_CHECK_EVERY, len(states) - number)
                if width is None and budget.is_spent():
                    return layers, _open_bound(layers, layer)
            for below, following, paid, move in space.successors(layer, state):
                cost, left = seconds + paid, rest - move.potential
                if cost + (left if left > 0.0 else 0.0) > limit:
                    continue
                found = layers.get(below)
                if found is None:
                    found = layers[below] = {}
                known = found.get(following)
                if known is None or cost < known.seconds:
                    found[following] = Label(cost, left, layer, state, move)
    return layers, cheapest_finished(layers)


def _open_bound(layers: Layers, layer: int) -> float:
    """A lower bound of the cost of every plan that goes through a state that was not expanded."""
    return min(
        label.seconds + max(0.0, label.rest)
        for number, states in layers.items()
        if number <= layer
        for label in states.values()
    )


def cheapest_finished(layers: Layers) -> float:
    """The cost of the cheapest complete plan; infinite if there is none."""
    done = layers.get(DONE)
    return min((label.seconds for label in done.values()), default=INFINITE) if done else INFINITE


class Edge(NamedTuple):
    """A move from a visited state to another one."""

    layer: int
    """The layer of the first state."""
    below: int
    """The layer of the second state."""
    move: Move
    seconds: float
    """The cost of the cheapest complete plan through this edge."""


def edges(space: Space, layers: Layers) -> Iterator[Edge]:
    """Every edge on a complete plan, with the least cost to it plus its own plus the least cost from it on."""
    onward: dict[int, dict[State, float]] = {DONE: dict.fromkeys(layers.get(DONE, {}), 0.0)}
    for layer in sorted(layers):
        if layer == DONE:
            continue
        onward[layer] = {}
        for state, label in layers[layer].items():
            least = INFINITE
            for below, following, paid, move in space.successors(layer, state):
                rest = onward.get(below, {}).get(following)
                if rest is not None:
                    least = min(least, paid + rest)
                    yield Edge(layer, below, move, label.seconds + paid + rest)
            if least < INFINITE:
                onward[layer][state] = least
