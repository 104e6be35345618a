"""A race: our program and other runtimes on one model."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

from ... import runtime
from ...program import Program
from .contestant import Contestant
from .rounds import interleaved, random_feeds
from .runtimes import OURS


def race(
    model: onnx.ModelProto,
    program: Program,
    against: Iterable[str] = (),
    rounds: int = 5,
    round_seconds: float = 0.5,
) -> dict[str, list[float]]:
    """The median seconds of a run of each runtime, ours first, by round, on the same random inputs and threads.

    Raises :class:`.Missing` for a runtime that cannot run the model here.
    """
    feeds = random_feeds(model)
    with TemporaryDirectory(prefix="collage-bench-") as folder, ExitStack() as stack:
        source, ours = Path(folder) / "model.onnx", Path(folder) / "model.so"
        onnx.save(model, source)
        program.save(ours)
        threads = runtime.num_threads()
        contestants = {OURS: stack.enter_context(Contestant(OURS, ours, feeds, threads))}
        for name in against:
            contestants[name] = stack.enter_context(Contestant(name, source, feeds, threads))
        return interleaved(contestants, rounds, round_seconds)
