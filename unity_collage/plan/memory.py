"""The memory of a program as plain data: how many bytes each device holds while each kernel runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from ..errors import CollageError
from ..search.memory_bounded import MemoryGoal

PAGE = 4096
"""TVM's pooled allocator takes memory in pages of this many bytes."""


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """The memory of one device and scope."""

    device: str
    """As ``kind:index``, such as ``llvm:0``."""
    scope: str = "global"
    live: tuple[int, ...] = ()
    """For each kernel the most bytes of intermediates and results until it ends, in pages of TVM's allocator."""
    scratch: tuple[int, ...] = ()
    """For each kernel the bytes of its temporaries, as far as they are known."""
    weights: int = 0
    """The bytes of constants and of their packed copies, which stay."""
    held: int = 0
    """The bytes that TVM's allocator holds after a run.

    It keeps free memory, by size, for later values. The bytes of other functions are added for each call, and those
    of both branches of an ``If``: then this is an upper bound.
    """

    @property
    def curve(self) -> tuple[int, ...]:
        """For each kernel the bytes of weights, live values and its temporaries."""
        return tuple(
            self.weights + live + own for live, own in zip(self.live, self._temporaries(), strict=True)
        )

    @property
    def peak(self) -> int:
        """The most bytes of the curve."""
        return max(self.curve, default=self.weights)

    def _temporaries(self) -> Sequence[int]:
        return self.scratch or (0,) * len(self.live)


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """The memory of one run of a function, in the order in which its kernels run.

    Inputs are the caller's and are not counted.
    """

    kernels: tuple[str, ...] = ()
    """The name of each kernel, in the order in which they run."""
    spaces: tuple[MemorySpace, ...] = ()
    """By device and scope, that of the first device first."""
    unknown: int = 0
    """How many values have sizes that are known only when it runs; they are not counted."""
    runtimes: tuple[str, ...] = ()
    """The runtimes that hold weights and values of their own; they are not counted."""

    @property
    def peak(self) -> int:
        """The most bytes that one device and scope holds."""
        return max((space.peak for space in self.spaces), default=0)

    @property
    def largest(self) -> MemorySpace | None:
        """The device and scope with the peak; None if no memory is used."""
        return max(self.spaces, key=lambda space: space.peak, default=None)

    @property
    def at(self) -> str:
        """The first kernel at which the peak is reached; empty where no kernel runs."""
        space = self.largest
        if space is None or not self.kernels:
            return ""
        return self.kernels[space.curve.index(space.peak)]


def in_pages(nbytes: int) -> int:
    """``nbytes`` rounded up to the pages of TVM's pooled allocator."""
    return -(-nbytes // PAGE) * PAGE


_UNITS = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def nbytes_in(text: str | int) -> int:
    """``200MB``, ``1.5GiB`` or a number of bytes; raises CollageError."""
    words = str(text).strip()
    unit = next((unit for unit in _UNITS if words.endswith(unit)), "")
    try:
        nbytes = float(words.removesuffix(unit)) * _UNITS.get(unit, 1)
    except ValueError:
        nbytes = 0.0
    if not 1 <= nbytes < 2**63:
        raise CollageError(f"{words!r} is not a size: write 200MB, 1.5GiB or a number of bytes")
    return int(nbytes)


def memory_goal(limit: str | int | None, objective: Mapping[str, float] | None) -> MemoryGoal | None:
    """The goal for a limit in bytes and an objective; None if neither is given. Raises CollageError.

    ``objective`` has the weights of ``latency``, for each second, and of ``memory``, for each byte of the peak.
    """
    weights = _weights_of(objective)
    if not weights["latency"] > 0.0 or not weights["memory"] >= 0.0 or not isfinite(sum(weights.values())):
        raise CollageError(
            "an objective has a weight of latency above 0, and a weight of memory of at least 0"
        )
    price = weights["memory"] / weights["latency"]
    if limit is None and not price:
        return None
    return MemoryGoal(None if limit is None else nbytes_in(limit), price)


def _weights_of(objective: Mapping[str, float] | None) -> dict[str, float]:
    """The weights of ``latency`` and of ``memory``.

    Raises CollageError for other names, and for values that are not numbers.
    """
    if not objective:
        return {"latency": 1.0, "memory": 0.0}
    try:
        weights = {name: float(weight) for name, weight in objective.items()}
    except (AttributeError, TypeError, ValueError):
        raise CollageError(
            f'an objective is like {{"latency": 1, "memory": 1e-9}}, not {objective!r}'
        ) from None
    if unknown := sorted(set(weights) - {"latency", "memory"}):
        raise CollageError(f"an objective has no {unknown[0]!r}: its weights are latency and memory")
    return {"latency": 0.0, "memory": 0.0, **weights}
