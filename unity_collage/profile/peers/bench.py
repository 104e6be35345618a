"""Times our program and other runtimes on one ONNX model in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from tvm import relax

from ... import runtime
from ...graph.shapes import tensor_type
from ...program import Program
from ...scratch import Scratch
from ..rounds import Timed, in_turns
from .runtime_process import RuntimeProcess
from .runtimes import OURS

PAUSE_SECONDS = 0.05
"""The pause between two runtimes, until the threads of the first stop spinning."""


def timed_in_turns(
    source: Path,
    program: Program,
    against: Iterable[str] = (),
    rounds: int = 5,
    round_seconds: float = 0.5,
) -> dict[str, list[float]]:
    """The median seconds of a run of each runtime, by round, ours first; all have the same random inputs and threads.

    ``source`` is the file of the model that ``program`` was compiled from. Raises :class:`.RuntimeMissing` for a
    runtime that cannot run the model here.
    """
    assert program.mod is not None
    feeds = dict(zip(program.input_names, feeds_of(program.mod["main"]), strict=True))
    with Scratch("bench") as folder, ExitStack() as stack:
        ours = Path(folder) / "model.so"
        program.save(ours)
        threads = runtime.num_threads()
        runtimes = {OURS: stack.enter_context(RuntimeProcess(OURS, ours, feeds, threads))}
        for name in against:
            runtimes[name] = stack.enter_context(RuntimeProcess(name, source, feeds, threads))
        return interleaved(runtimes, rounds, round_seconds)


def interleaved(
    runtimes: Mapping[str, Timed],
    rounds: int = 5,
    round_seconds: float = 0.5,
    before_round: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """The median seconds of a run of each runtime, by round, from :func:`..rounds.in_turns`."""
    return in_turns(runtimes, rounds, round_seconds, PAUSE_SECONDS, before_round)


def feeds_of(main: relax.Function, seed: int = 0) -> list[np.ndarray]:
    """Random values for the parameters of ``main``; symbolic sizes count as 1, integers are 0 or 1."""
    rng = np.random.default_rng(seed)
    feeds: list[np.ndarray] = []
    for param in main.params:
        ty = tensor_type(param)
        shape = [int(getattr(dim, "value", 1)) for dim in getattr(ty.shape, "values", ())]
        drawn = rng.standard_normal(shape) if "float" in str(ty.dtype) else rng.integers(0, 2, shape)
        feeds.append(drawn.astype(str(ty.dtype)))
    return feeds
