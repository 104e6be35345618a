"""Times our program and other runtimes on one ONNX model in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from ... import runtime
from ...program import Program
from ...scratch import Scratch
from ..agreement import drawn_inputs
from ..rounds import Timed, in_turns
from .runtime_process import RuntimeMissing, RuntimeProcess
from .runtimes import CONVERTING, ONNX_RUNTIME, OURS, Inputs

PAUSE_SECONDS = 0.05
"""The pause between two runtimes, until the threads of the first stop spinning."""


EXTENT = 1
"""The size of a symbolic dimension where nothing says which sizes matter."""


@dataclass(frozen=True, slots=True)
class PeerTimes:
    """Runtimes on one model."""

    medians: dict[str, list[float]]
    """The median seconds of a run of each runtime, by round; ours first."""
    missing: dict[str, str]
    """Why the others were not timed, by name."""


def timed_in_turns(
    source: Path,
    program: Program,
    against: Iterable[str] = (),
    rounds: int = 5,
    round_seconds: float = 0.5,
    sizes: Mapping[str, int] | None = None,
    libraries: Sequence[str | Path] = (),
) -> PeerTimes:
    """Time ours and the runtimes named in ``against``; all have the same random inputs and threads.

    ``source`` is the file of the model that ``program`` was compiled from. ``sizes``: those of symbolic dimensions, by
    name. ``libraries``: those with custom operators, which ONNX Runtime registers. Raises :class:`.RuntimeMissing` if
    ours does not run.
    """
    feeds = feeds_of(program, sizes=sizes)
    with Scratch("bench") as folder, ExitStack() as stack:
        ours = Path(folder) / "model.so"
        program.save(ours)
        threads = runtime.num_threads()
        runtimes = {OURS: stack.enter_context(RuntimeProcess(OURS, ours, feeds, threads))}
        makers = {
            name: partial(RuntimeProcess, name, source, feeds, threads, libraries=libraries)
            for name in against
        }
        found, missing = started(makers, source, feeds, stack)
        return PeerTimes(interleaved(runtimes | found, rounds, round_seconds), missing)


def started(
    makers: Mapping[str, Callable[[], RuntimeProcess]], source: Path, feeds: Inputs, stack: ExitStack
) -> tuple[dict[str, RuntimeProcess], dict[str, str]]:
    """The processes of runtimes that can run a model, closed by ``stack``, and why the others cannot, by name.

    A runtime of :data:`.runtimes.CONVERTING` must compute what ONNX Runtime computes of ``source``.
    """

    @cache
    def expected() -> list[np.ndarray]:
        threads = runtime.num_threads()
        with RuntimeProcess(ONNX_RUNTIME, source, feeds, threads, is_reference=True) as reference:
            return reference.outputs()

    running: dict[str, RuntimeProcess] = {}
    missing: dict[str, str] = {}
    for name, make in makers.items():
        try:
            running[name] = _checked(name, make, expected) if name in CONVERTING else make()
            stack.enter_context(running[name])
        except RuntimeMissing as error:
            missing[name] = str(error)
    return running, missing


def _checked(
    name: str, make: Callable[[], RuntimeProcess], expected: Callable[[], Sequence[np.ndarray]]
) -> RuntimeProcess:
    """A process with the expected results.

    Raises RuntimeMissing if they differ, or if the expected ones are not known.
    """
    try:
        right = expected()
    except RuntimeMissing as error:
        raise RuntimeMissing(f"{name}: not checked: {error}") from error
    process = make()
    process.check(right)
    return process


def interleaved(
    runtimes: Mapping[str, Timed],
    rounds: int = 5,
    round_seconds: float = 0.5,
    before_round: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """The median seconds of a run of each runtime, by round, from :func:`..rounds.in_turns`."""
    return in_turns(runtimes, rounds, round_seconds, PAUSE_SECONDS, before_round)


def feeds_of(
    program: Program, seed: int = 0, sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Random values for the inputs of a program; integers are 0 or 1.

    ``sizes``: those of symbolic dimensions, by name; others are 1.
    """
    return drawn_inputs(program, seed, EXTENT, sizes)
