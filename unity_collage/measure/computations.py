"""The kernels of a request grouped by what they compute, and which of them are timed together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax

from ..annotations import LIFTED
from ..graph.shapes import nbytes_of
from ..runtime.timing import Runner
from .built_kernel import BuiltKernel, can_have_twin
from .guard import output_bytes
from .judge import Trial

_SHARE = 2
"""The kernels of a batch touch at most as many bytes as the caches are evicted by, divided by this."""


@dataclass
class Computation:
    """Kernels that compute the same. They share inputs and references, and are timed in turns."""

    digest: str
    asked: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """The request's data for each kernel, by key."""
    funcs: dict[str, relax.Function] = field(default_factory=dict[str, relax.Function])
    trials: list[Trial] = field(default_factory=list[Trial])
    nan: Trial | None = None
    """A trial with NaN, if kernels have to keep it."""
    built: dict[str, BuiltKernel] = field(default_factory=dict[str, BuiltKernel])
    """The kernels that are right."""

    @property
    def func(self) -> relax.Function:
        """The function of one of the kernels: all of them compute the same."""
        return next(iter(self.funcs.values()))

    @property
    def touched_bytes(self) -> int:
        """How many bytes the kernels read and write, with those of their twins."""
        func = self.func
        first = len(func.params) - int(func.attrs[LIFTED])
        constants = sum(map(nbytes_of, func.params[first:]))
        return sum(map(nbytes_of, func.params[:first])) + output_bytes(func) + 2 * constants * len(self.funcs)

    @property
    def is_alone(self) -> bool:
        """Whether the kernels cannot be timed together with others."""
        return not all(can_have_twin(func, self.asked[key]) for key, func in self.funcs.items())


def computations(candidates: Mapping[str, Mapping[str, Any]]) -> list[Computation]:
    """The kernels of a request, grouped by what they compute."""
    found: dict[str, Computation] = {}
    for key, asked in candidates.items():
        one = found.setdefault(asked["digest"], Computation(asked["digest"]))
        one.asked[key] = asked
        one.funcs[key] = tvm.ir.load_json(asked["function"])
    return list(found.values())


def batches(found: Sequence[Computation], evict_bytes: int) -> Iterator[list[Computation]]:
    """What is timed together.

    One eviction of the caches serves all kernels of a batch. The kernels between two runs of one kernel evict as well,
    so they must touch less than ``evict_bytes``.
    """
    batch: list[Computation] = []
    for one in found:
        if one.is_alone or one.touched_bytes > evict_bytes // _SHARE:
            yield [one]
            continue
        if sum(other.touched_bytes for other in [*batch, one]) > evict_bytes // _SHARE:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def evicted_beside(batch: Sequence[Computation], evict_bytes: int) -> int:
    """How many bytes to read before a round: with those of the other kernels they add up to ``evict_bytes``."""
    others = sum(one.touched_bytes for one in batch) * (len(batch) - 1) // len(batch)
    return max(0, evict_bytes - others)


def as_rivals(number: int, runners: Mapping[str, Runner]) -> dict[str, Runner]:
    """The runners of one computation, for timing with those of others."""
    return {key: runner._replace(rivals=number) for key, runner in runners.items()}
