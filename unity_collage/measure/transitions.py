"""Measures how much a value costs more if one backend writes it and another reads it, by the size of the value.

Two chains have the same kernels of two backends and differ in their order: ``a b a b`` and ``a a b b``. In each run
the first has two transitions more. Both directions occur equally often, so each gets half of the difference. The time
lost by calling other code than before counts too: it is part of a mixed plan.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations

from tvm.ir import IRModule
from tvm.target import Target

from ..backends.base import Backend
from ..errors import last_line
from .transition_chains import SIZES, Chains, chains, probes

Begin = Callable[[str], None]
"""Called with what is measured next, since a process that is silent for long counts as hanging."""

ROUNDS = 12
"""The number of rounds in which a transition has to show. The first round without it ends the measuring."""
NOISE = 0.1
"""The part of a chain's time that counts as noise between chains with the same kernels in another order."""
LEAST_SECONDS = 0.25e-6
"""A transition below this counts as none. It is less than two calls of kernels cost, and a search with transitions has
far more states.
"""


@dataclass(frozen=True, slots=True)
class Transitions:
    """What transitions cost."""

    seconds: dict[str, list[tuple[int, float]]] = field(default_factory=dict[str, list[tuple[int, float]]])
    """By ``"writer>reader"``: the seconds at each of ``SIZES``. Pairs that have none at any size are left out."""
    unknown: dict[str, str] = field(default_factory=dict[str, str])
    """The backends, or pairs of them, whose transitions could not be measured, with the reason."""


def transitions(target: Target, backends: Sequence[Backend], begin: Begin) -> Transitions:
    """The transitions between each two of ``backends``; ``begin`` is told before each pair."""
    kernels, unknown = probes(target, backends)
    found = _measured(kernels, list(combinations(kernels, 2)), target, begin)
    return Transitions(found.seconds, {**unknown, **found.unknown})


def _measured(
    kernels: Mapping[str, IRModule], pairs: Sequence[tuple[str, str]], target: Target, begin: Begin
) -> Transitions:
    """The transitions of ``pairs``. If a kernel does not link or does not run, each pair is tried alone."""
    found = Transitions()
    try:
        begin(f"building probes of {' and '.join(dict.fromkeys(chain(*pairs)))}")
        timers = chains(kernels, pairs, target)
        for one, other in pairs:
            begin(f"measuring transitions between {one} and {other}")
            points = [(size, _excess(timers[one, other, size])) for size in SIZES]
            if any(seconds for _, seconds in points):
                found.seconds.update({f"{one}>{other}": points, f"{other}>{one}": points})
        return found
    except Exception as error:  # a foreign kernel failed
        if len(pairs) == 1:
            return Transitions({}, {" and ".join(pairs[0]): f"their probes do not run: {last_line(error)}"})
    for part in [_measured(kernels, [pair], target, begin) for pair in pairs]:
        found.seconds.update(part.seconds)
        found.unknown.update(part.unknown)
    return found


def _excess(timer: Chains) -> float:
    """Seconds of a transition: 0 unless each round shows one that exceeds the noise of the kernels, and a least."""
    more: list[float] = []
    for _ in range(ROUNDS):
        mixed, apart = timer()
        if mixed - apart <= NOISE * apart:
            return 0.0
        more.append(mixed - apart)
    found = statistics.median(more) / 2
    return found if found >= LEAST_SECONDS else 0.0
