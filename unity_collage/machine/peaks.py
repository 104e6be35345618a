"""Machine: the most that this machine can compute and move in a second, measured once and kept.

The rates are those of native loops with the widest vectors on one thread, the best of many short trials, so that other
work on the machine does not lower them; times the number of threads they are more than all threads reach together.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, cast

import tvm_ffi

from .. import runtime
from ..database.costs import CostDatabase
from . import fingerprint
from .environment import environment
from .last_level import caches

MARGIN = 1.25
"""What is taken for possible over what was seen of a core alone: processors raise their clock for short work."""

SHARED_MARGIN = 2.0
"""The same for the third-level cache and memory: what others take of them meanwhile comes and goes."""

_OWN_BYTES = 1 << 20
"""Working sets up to this are a matter of the core alone."""

_RESIDUE = 8
"""Of data so many times as large as a cache an eighth at most is still there: the margin covers that."""

_WORKING_SETS = tuple(1 << power for power in range(15, 27, 2))
"""Bytes that the loops go over again and again, from less than a first-level cache to more than most third-level
ones."""

_EVICTED = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
_TRIALS_SECONDS = 0.06
_FACT = "peaks"

Curve = tuple[tuple[int, float], ...]
"""(bytes of the working set, bytes a second), the rate never rising."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates of one thread as they were seen; the methods give the least seconds that all threads need."""

    threads: int
    flops: float
    """float32 operations a second, two for a multiply-add."""
    reads: Curve
    writes: Curve
    weights: Curve
    """(bytes that all threads have streamed over before, bytes a second of what is read once then), as far as they
    matter: what leaves nothing in the second level, and what leaves nothing in the third."""

    def compute_seconds(self, flops: float) -> float:
        """Doing so many float32 operations."""
        return flops / (self.flops * self.threads * MARGIN)

    def read_seconds(self, nbytes: int) -> float:
        """Reading so many bytes that were just written, wherever they fit."""
        return nbytes / self._rate(self.reads, nbytes)

    def write_seconds(self, nbytes: int) -> float:
        """Writing so many bytes."""
        return nbytes / self._rate(self.writes, nbytes)

    def is_far(self, evict_bytes: int) -> bool:
        """Whether weights behind so many bytes of other memory have left the caches of the core."""
        return evict_bytes >= self.weights[0][0]

    def weights_seconds(self, nbytes: int, evict_bytes: int) -> float:
        """Reading so many bytes of weights that lie behind ``evict_bytes`` of other memory."""
        if not self.is_far(evict_bytes):
            return self.read_seconds(nbytes)
        rate = next(rate for evicted, rate in reversed(self.weights) if evicted <= evict_bytes)
        return nbytes / (rate * self.threads * SHARED_MARGIN)

    def load_seconds(self, nbytes: int) -> float:
        """Bringing so many bytes into registers, from however near."""
        return nbytes / (self.reads[0][1] * self.threads * MARGIN)

    def _rate(self, curve: Curve, nbytes: int) -> float:
        share = nbytes / self.threads / _RESIDUE
        size, rate = next((point for point in reversed(curve) if point[0] <= share), curve[0])
        return rate * self.threads * (MARGIN if size <= _OWN_BYTES else SHARED_MARGIN)


def machine(database: CostDatabase) -> Machine:
    """This machine with the threads that kernels use: from the database, else measured now and kept."""
    known = known_machine(database)
    if known is None:
        here = caches(database)
        known = _measured_apart([2 * here.l2_bytes, here.all_bytes])
        database.keep_fact(_FACT, _fingerprint(), asdict(known))
    return known


def known_machine(database: CostDatabase) -> Machine | None:
    """This machine if the database knows it."""
    kept = database.fact(_FACT, _fingerprint())
    return None if kept is None else _decoded(kept)


def measured(threads: int, evict_bytes: Sequence[int]) -> Machine:
    """The rates of this thread, measured now; takes about two seconds.

    Of weights, those behind each of ``evict_bytes`` that all threads have streamed over.
    """
    runtime.num_threads()  # loads the library
    return Machine(
        threads,
        _peak("flops")(_TRIALS_SECONDS),
        _curve(_peak("read")),
        _curve(_peak("write")),
        tuple((nbytes, _evicted(nbytes // threads)) for nbytes in sorted(evict_bytes)),
    )


def _measured_apart(evict_bytes: Sequence[int]) -> Machine:
    """Measured in a process of its own, where no other library's threads run."""
    threads = str(runtime.num_threads())
    command = [
        sys.executable,
        "-m",
        "unity_collage.processes.launcher",
        "unity_collage.machine.peaks",
        threads,
        json.dumps(evict_bytes),
    ]
    done = subprocess.run(command, env=environment(), cwd="/", capture_output=True, text=True, check=True)
    return _decoded(json.loads(done.stdout))


def _decoded(data: dict[str, Any]) -> Machine:
    curves = {
        name: tuple((int(size), float(rate)) for size, rate in data[name])
        for name in ("reads", "writes", "weights")
    }
    return Machine(int(data["threads"]), float(data["flops"]), **curves)


def _peak(name: str) -> Callable[..., float]:
    return cast(Callable[..., float], tvm_ffi.get_global_func(f"collage.runtime.peak_{name}"))


def _curve(rate: Callable[[int, float], float]) -> Curve:
    """The rate for each working set; a larger one is never faster, whatever noise says."""
    rates = [rate(size, _TRIALS_SECONDS) for size in _WORKING_SETS]
    rising = list(accumulate(reversed(rates), max))
    return tuple(zip(_WORKING_SETS, reversed(rising), strict=True))


def _evicted(nbytes: int) -> float:
    return max(_peak("read_evicted")(size, nbytes, 3 * _TRIALS_SECONDS) for size in _EVICTED)


def _fingerprint() -> str:
    return fingerprint.text_of(
        {"method": "peaks 3", **fingerprint.machine(), "threads": runtime.num_threads()}
    )


if __name__ == "__main__":
    found = measured(int(sys.argv[1]), json.loads(sys.argv[2]))
    sys.stdout.write(json.dumps(asdict(found)) + "\n")
