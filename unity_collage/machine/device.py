"""The CUDA device: what it is, the least seconds that it needs, and whether its clock was held back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from ..runtime import cuda

_PROCESSORS, _KILOHERTZ, _L2_BYTES = 16, 13, 38
"""Numbers of attributes in ``cudaDeviceAttr``."""

_MULTIPLY_ADDS = {(8, 0): 64, (8, 6): 128, (8, 9): 128, (9, 0): 128, (10, 0): 256, (12, 0): 128}
"""By compute capability: multiply-adds of float32 that a multiprocessor does in a clock, or a sixteenth of those of
dense 16-bit matrices if that is more. From the tables in NVIDIA's programming guide and its architecture papers."""

_MOST_A_CLOCK = 512
"""For devices that are not in the table: more than any device in it."""

_BYTES_A_CLOCK = 128
"""No multiprocessor reads more from the second-level cache in a clock than its first level passes on."""

_MARGIN = 1.1
"""The highest possible clock over the reported one."""


@dataclass(frozen=True, slots=True)
class Device:
    """The first CUDA device."""

    name: str
    capability: tuple[int, int]
    processors: int
    """The number of multiprocessors."""
    hertz: float
    """The highest clock that the driver reports."""
    l2_bytes: int

    def __str__(self) -> str:
        return f"{self.name}, {self.processors} multiprocessors, L2 {self.l2_bytes >> 20} MiB"

    def compute_seconds(self, flops: float) -> float:
        """Least seconds for ``flops`` operations of float32, two for a multiply-add; 16 operations of 16 bits count
        as one.
        """
        rate = _MULTIPLY_ADDS.get(self.capability, _MOST_A_CLOCK)
        return flops / (2 * rate * self.processors * self.hertz * _MARGIN)

    def memory_seconds(self, nbytes: int) -> float:
        """Least seconds to move ``nbytes`` through the second-level cache."""
        return nbytes / (_BYTES_A_CLOCK * self.processors * self.hertz * _MARGIN)


@cache
def device() -> Device:
    """The first CUDA device; raises RuntimeError with the reason where there is none."""
    cuda.load()
    processors, kilohertz, l2_bytes = map(cuda.attribute, (_PROCESSORS, _KILOHERTZ, _L2_BYTES))
    major, minor = map(int, cuda.capability().split("."))
    return Device(cuda.name(), (major, minor), processors, kilohertz * 1e3, l2_bytes)


@cache
def driver_version() -> str:
    """The version of the driver, such as ``580.95.05``; empty if NVML does not say."""
    text = ctypes.create_string_buffer(96)
    asked = _management("nvmlSystemGetDriverVersion")
    return text.value.decode() if asked is not None and asked(text, len(text)) == 0 else ""


class ClockWatch:
    """Reports whether heat or power has throttled the device's clock since the watch was made."""

    _SLOWED = 0x8 | 0x20 | 0x40 | 0x80
    """Hardware slowdown, software and hardware thermal slowdown, power brake (``nvmlClocksEventReason``)."""

    def __init__(self) -> None:
        self._before = self._reasons()

    def was_slowed(self) -> bool:
        return bool((self._before | self._reasons()) & self._SLOWED)

    def _reasons(self) -> int:
        asked, found = _management("nvmlDeviceGetCurrentClocksEventReasons"), ctypes.c_ulonglong(0)
        handle = _handle()
        if asked is None or handle is None or asked(handle, ctypes.byref(found)) != 0:
            return 0
        return found.value


@cache
def _library() -> ctypes.CDLL | None:
    with suppress(OSError):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() == 0:
            return library
    return None


def _management(name: str) -> Callable[..., int] | None:
    """A function of NVML, the driver's library that watches devices; None where it is not there."""
    return getattr(_library(), name, None)


@cache
def _handle() -> ctypes.c_void_p | None:
    """NVML's handle of the device; it counts all devices, CUDA those that are visible."""
    asked, found = _management("nvmlDeviceGetHandleByIndex_v2"), ctypes.c_void_p()
    return found if asked is not None and asked(0, ctypes.byref(found)) == 0 else None
