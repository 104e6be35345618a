"""The peaks of this machine: the most that it can compute and move in a second, measured once.

The rates are those of native loops with the widest vectors on one thread. The best of many short trials counts, so that
other work on the machine does not lower it. All threads together reach at most that rate times their number.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from .. import runtime
from ..ffi import tvm_ffi
from . import fingerprint
from .caches import Caches
from .last_level import caches
from .own_process import measured_by

if TYPE_CHECKING:
    from ..database.costs import CostDatabase

LOGGER = logging.getLogger(__name__)

MARGIN = 1.25
"""The margin of the measured rate of a core: processors raise their clock for short work."""

SHARED_MARGIN = 2.0
"""The margin for the third-level cache and memory, which other work on the machine also uses."""

_OWN_BYTES = 1 << 20
"""Working sets up to this size are in caches of the core alone."""

_RESIDUE = 8
"""Data this many times as large as a cache has at most an eighth in it, which the margin covers."""

_WORKING_SETS = tuple(1 << power for power in range(15, 27, 2))
"""Bytes that the loops read or write repeatedly, from less than a first-level cache to more than most third-level
caches."""

_EVICTED = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
_TRIALS_SECONDS = 0.06
PEAKS = "peaks"
"""The name of a fact: the fields of a :class:`Machine`."""

Curve = tuple[tuple[int, float], ...]
"""(bytes of the working set, bytes a second); the rate never rises."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Measured rates of one thread; the methods give the least seconds that all threads need."""

    threads: int
    flops: float
    """float32 operations a second, two for a multiply-add."""
    reads: Curve
    writes: Curve
    weights: Curve
    """(bytes of other memory that all threads have read before, bytes a second of a first read).

    These bytes evict the second-level cache, or the third-level cache too.
    """

    def compute_seconds(self, flops: float) -> float:
        """Least seconds for ``flops`` float32 operations."""
        return flops / (self.flops * self.threads * MARGIN)

    def read_seconds(self, nbytes: int) -> float:
        """Least seconds to read ``nbytes`` that were just written, from the nearest cache that they fit into."""
        return nbytes / self._rate(self.reads, nbytes)

    def write_seconds(self, nbytes: int) -> float:
        """Least seconds to write ``nbytes``."""
        return nbytes / self._rate(self.writes, nbytes)

    def is_far(self, evict_bytes: int) -> bool:
        """Whether weights have left the caches of the core after ``evict_bytes`` of other memory were read."""
        return evict_bytes >= self.weights[0][0]

    def weights_seconds(self, nbytes: int, evict_bytes: int) -> float:
        """Least seconds to read ``nbytes`` of weights after ``evict_bytes`` of other memory were read."""
        if not self.is_far(evict_bytes):
            return self.read_seconds(nbytes)
        rate = next(rate for evicted, rate in reversed(self.weights) if evicted <= evict_bytes)
        return nbytes / (rate * self.threads * SHARED_MARGIN)

    def load_seconds(self, nbytes: int) -> float:
        """Least seconds to load ``nbytes`` into registers, even from the nearest cache."""
        return nbytes / (self.reads[0][1] * self.threads * MARGIN)

    def slower(self, ratio: float) -> Machine:
        """A machine that takes ``ratio`` times as long for everything."""
        curves = {
            name: tuple((size, rate / ratio) for size, rate in getattr(self, name))
            for name in ("reads", "writes", "weights")
        }
        return Machine(self.threads, self.flops / ratio, **curves)

    def _rate(self, curve: Curve, nbytes: int) -> float:
        share = nbytes / self.threads / _RESIDUE
        size, rate = next((point for point in reversed(curve) if point[0] <= share), curve[0])
        return rate * self.threads * (MARGIN if size <= _OWN_BYTES else SHARED_MARGIN)


def machine(database: CostDatabase) -> Machine:
    """The peaks of this machine with the threads that kernels use: from the database, else measured now."""
    known = known_machine(database)
    if known is None:
        known = measured_apart(caches(database))
        database.keep_fact(PEAKS, peaks_fingerprint(), asdict(known))
    return known


def known_machine(database: CostDatabase) -> Machine | None:
    """The peaks of this machine, if the database has them."""
    known = database.fact(PEAKS, peaks_fingerprint())
    return None if known is None else machine_from(known)


def of_family(database: CostDatabase) -> dict[str, Any]:
    """The peaks of this machine, if the database has them, by the fingerprint of its family: for a pack."""
    known = known_machine(database)
    return {} if known is None else {peaks_fingerprint(fingerprint.family()): asdict(known)}


def take(database: CostDatabase, packed: Mapping[str, Any], ratio: float) -> None:
    """Store what :func:`of_family` returned elsewhere as the peaks of this machine, unless it has some.

    Kernels take ``ratio`` times as long here. Peaks that were measured with another share of the third-level cache say
    nothing about memory here, and are not taken.
    """
    data = packed.get(peaks_fingerprint(fingerprint.family()))
    if data is None or known_machine(database) is not None:
        return
    try:
        found = machine_from(data)
    except (KeyError, TypeError, ValueError):
        LOGGER.warning("the peaks in a pack are damaged, and are measured instead")
        return
    if found.weights and found.weights[-1][0] == caches(database).all_bytes:
        database.keep_fact(PEAKS, peaks_fingerprint(), asdict(found.slower(ratio)))


def measured(threads: int, evict_bytes: Sequence[int]) -> Machine:
    """The rates of this thread, measured now; takes about two seconds.

    The rates of weights are those after each of ``evict_bytes`` of other memory, which all threads read together.
    """
    runtime.num_threads()  # loads the library
    return Machine(
        threads,
        _peak("flops")(_TRIALS_SECONDS),
        _curve(_peak("read")),
        _curve(_peak("write")),
        tuple((nbytes, _evicted(nbytes // threads)) for nbytes in sorted(evict_bytes)),
    )


def measured_apart(here: Caches) -> Machine:
    """The peaks of this machine with these caches, measured now in a process of its own; raises CollageError."""
    threads = str(runtime.num_threads())
    evict_bytes = [2 * here.l2_bytes, here.all_bytes]
    return machine_from(measured_by("unity_collage.machine.peaks", threads, json.dumps(evict_bytes)))


def machine_from(data: Mapping[str, Any]) -> Machine:
    """The peaks in the fields that ``asdict`` makes of them; raises KeyError, TypeError or ValueError."""
    curves = {
        name: tuple((int(size), float(rate)) for size, rate in data[name])
        for name in ("reads", "writes", "weights")
    }
    return Machine(int(data["threads"]), float(data["flops"]), **curves)


def _peak(name: str) -> Callable[..., float]:
    return cast(Callable[..., float], tvm_ffi.get_global_func(f"collage.runtime.peak_{name}"))


def _curve(rate: Callable[[int, float], float]) -> Curve:
    """The rate for each working set; noise cannot make a larger one faster."""
    rates = [rate(size, _TRIALS_SECONDS) for size in _WORKING_SETS]
    rising = list(accumulate(reversed(rates), max))
    return tuple(zip(_WORKING_SETS, reversed(rising), strict=True))


def _evicted(nbytes: int) -> float:
    return max(_peak("read_evicted")(size, nbytes, 3 * _TRIALS_SECONDS) for size in _EVICTED)


def peaks_fingerprint(fields: Mapping[str, str] | None = None) -> str:
    """The fingerprint of the peaks of this machine, or of all machines with these ``fields``."""
    described = fingerprint.machine() if fields is None else fields
    return fingerprint.text_of({"method": "peaks 3", **described, "threads": runtime.num_threads()})


if __name__ == "__main__":
    found = measured(int(sys.argv[1]), json.loads(sys.argv[2]))
    sys.stdout.write(json.dumps(asdict(found)) + "\n")
