"""The costs of copies between devices, measured with the function that a program calls for ``R.to_vdevice``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import tvm

from ..lowering.shared_memory import TO_CPU

SIZES = tuple(1 << exponent for exponent in range(12, 25, 4))
"""Bytes of the values that are copied: 4 KB to 16 MB."""

_RUNS = 15

_TO_DEVICE = "vm.builtin.to_device"
"""TVM's own function, which always copies."""


def pairs_of(places: Sequence[str]) -> list[tuple[str, str]]:
    """All pairs of places, those of a place with itself included."""
    return [(source, destination) for source in places for destination in places]


def measured_copies(source: str, destination: str, shared: bool = False) -> list[tuple[int, float]]:
    """Seconds of a copy from one device of the machine to another, by bytes, ascending.

    ``shared``: both are CPUs with one memory, so a value only gets a second name.
    """
    return [(nbytes, _seconds(source, destination, shared, nbytes)) for nbytes in SIZES]


def _seconds(source: str, destination: str, shared: bool, nbytes: int) -> float:
    """The median of several copies; each waits for both devices."""
    origin, there = (tvm.runtime.device(place) for place in (source, destination))  # pyright: ignore[reportCallIssue]
    copy: Any = tvm.get_global_func(TO_CPU if shared else _TO_DEVICE)
    to = (there.index,) if shared else (there.dlpack_device_type(), there.index)
    value = tvm.runtime.empty((nbytes,), "uint8", origin)
    times: list[float] = []
    for _ in range(_RUNS):
        origin.sync()
        begin = time.perf_counter()
        copy(value, *to)
        there.sync()
        times.append(time.perf_counter() - begin)
    return median(times)
