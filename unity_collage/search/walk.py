"""Walks through the states of a problem, layer by layer: what the exact search and its regrets are made of."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .states import DONE, Move, Space, State

INFINITE = float("inf")

_ROUNDING = 1e-9
"""Sums in another order differ by so much of their value at most."""


class Label(NamedTuple):
    """The cheapest way to a state that is known."""

    seconds: float
    rest: float
    """At least what the rest costs."""
    layer: int
    """Where it comes from."""
    previous: State
    move: Move | None


Layers = dict[int, dict[State, Label]]


@dataclass(slots=True)
class Budget:
    """How much may be looked at."""

    states: int
    deadline: float
    visited: int = 0

    def is_spent(self) -> bool:
        return self.visited > self.states or time.monotonic() > self.deadline


def walk(
    space: Space, potential: float, ceiling: float, budget: Budget, width: int | None = None
) -> tuple[Layers, float]:
    """All states within ``ceiling``, and a lower bound of the plans that were not looked at for want of budget."""
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
        budget.visited += len(states)
        if width is None and budget.is_spent():
            return layers, _open_bound(layers, layer)
        for state, (seconds, rest, _, _, _) in states.items():
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
    """The least that any plan costs which goes through a state that was not expanded."""
    return min(
        label.seconds + max(0.0, label.rest)
        for number, states in layers.items()
        if number <= layer
        for label in states.values()
    )


def cheapest_finished(layers: Layers) -> float:
    """The cost of the cheapest finished plan."""
    done = layers.get(DONE)
    return min((label.seconds for label in done.values()), default=INFINITE) if done else INFINITE


class Edge(NamedTuple):
    """A step of walked plans."""

    layer: int
    below: int
    move: Move
    seconds: float
    """What the cheapest plan with it costs."""


def edges(space: Space, layers: Layers) -> Iterator[Edge]:
    """Every step that leads to a finished plan: the cost to it, its own, and the least from it on."""
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
