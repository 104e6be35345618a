"""Times our program and other runtimes on one ONNX model in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

from ... import runtime
from ...program import Program
from ..rounds import Timed, in_turns
from .runtime_process import RuntimeProcess
from .runtimes import OURS

PAUSE_SECONDS = 0.05
"""The pause between two runtimes, until the threads of the first stop spinning."""


def timed_in_turns(
    model: onnx.ModelProto,
    program: Program,
    against: Iterable[str] = (),
    rounds: int = 5,
    round_seconds: float = 0.5,
) -> dict[str, list[float]]:
    """The median seconds of a run of each runtime, by round, ours first; all have the same random inputs and threads.

    Raises :class:`.RuntimeMissing` for a runtime that cannot run the model here.
    """
    feeds = random_feeds(model)
    with TemporaryDirectory(prefix="collage-bench-") as folder, ExitStack() as stack:
        source, ours = Path(folder) / "model.onnx", Path(folder) / "model.so"
        onnx.save(model, source)
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


def random_feeds(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random values for the inputs of ``model``; dynamic extents count as 1, integers are 0 or 1."""
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
