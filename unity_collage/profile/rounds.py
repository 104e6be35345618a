"""Interleaved rounds, so that drift hits all alike, and what to make of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx

Timed = Callable[[float], list[float]]
"""Runs a model for about so many seconds and returns the seconds of each run."""

PAUSE_SECONDS = 0.05
"""Between two runtimes: the threads of the one stop spinning before the other is timed."""


def interleaved(
    contestants: Mapping[str, Timed],
    rounds: int = 5,
    round_seconds: float = 0.5,
    before_round: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """The median seconds of a run of each contestant, by round. The order rotates from round to round.

    ``before_round`` is called before each: it may look at the machine.
    """
    names = list(contestants)
    medians: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        before_round()
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            time.sleep(PAUSE_SECONDS)
            medians[name].append(statistics.median(contestants[name](round_seconds)))
    return medians


def random_feeds(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random values for the inputs of ``model``; dynamic extents are taken as 1, integers are small."""
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [dim.dim_value or 1 for dim in kind.shape.dim]
        if np.issubdtype(dtype, np.floating):
            feeds[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[value.name] = rng.integers(0, 2, shape).astype(dtype)
    return feeds


def speedup(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How many times faster ``ours`` is: the median over rounds of the ratio within a round."""
    return statistics.median(t / o for o, t in zip(ours, theirs, strict=True))
