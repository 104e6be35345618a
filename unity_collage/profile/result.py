"""The profile of a program: how long each of its kernels takes where it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..machine.peaks import Machine
from ..plan.plan import KernelWork


@dataclass(frozen=True, slots=True)
class ProfiledCall:
    """One call of a kernel in a run."""

    function: str
    """The function that calls it: ``main``, or one that ``main`` calls."""
    layers: tuple[str, ...]
    """The bindings of the source model that it computes."""
    shapes: tuple[str, ...]
    """The types of the tensors that it reads and writes, such as ``float32[1, 64]``; the results come last."""
    seconds: float
    """The median of the runs, from the end of the kernel before, without the cost of reading the clock."""
    low: float
    """The 5th percentile."""
    high: float
    """The 95th percentile."""
    cost: float | None
    """What the plan predicts: the cost of the kernel, and of its launch; None where it has no cost."""


@dataclass(frozen=True, slots=True)
class ProfiledKernel:
    """A kernel and all its calls in a run. All figures are those of one run."""

    name: str
    backend: str
    """The backend; ``runtime`` for functions of the runtime that are not kernels of a backend."""
    label: str
    """Its operators; empty for kernels that are not in the plan."""
    calls: tuple[ProfiledCall, ...]
    work: KernelWork | None
    """The work of one call; None where it is not known."""
    least_seconds: float | None = None
    """The seconds that the limits of the machine allow for all calls (:func:`least_seconds`), where they are known."""

    @property
    def seconds(self) -> float:
        """The seconds of all calls."""
        return sum(call.seconds for call in self.calls)

    @property
    def cost(self) -> float | None:
        """What the plan predicts for all calls."""
        known = [call.cost for call in self.calls if call.cost is not None]
        return sum(known) if len(known) == len(self.calls) else None

    @property
    def ratio(self) -> float | None:
        """The seconds over the cost."""
        return self.seconds / self.cost if self.cost else None

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of all calls, each once."""
        return tuple(dict.fromkeys(layer for call in self.calls for layer in call.layers))

    @property
    def flops_per_second(self) -> float | None:
        """Operations of convolutions and products by the direct algorithm; None without any."""
        if self.work is None or not self.work.flops or not self.seconds:
            return None
        return self.work.flops * len(self.calls) / self.seconds

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes of inputs, weights and results, each once."""
        if self.work is None or not self.seconds:
            return None
        return self.work.nbytes * len(self.calls) / self.seconds

    @property
    def part_of_limit(self) -> float | None:
        """The part of the machine's limit that it reaches; Winograd's algorithm may reach more than 1."""
        return None if self.least_seconds is None or not self.seconds else self.least_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class Event:
    """A kernel in one run, as it was measured."""

    run: int
    kernel: ProfiledKernel
    call: ProfiledCall
    start: float
    """Seconds since the first of these runs began."""
    seconds: float
    track: int = 0
    """0: the main thread, or all threads together; kernels that run side by side have tracks from 1 on."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The kernels of a program, timed in the running program, beside the time of the program itself."""

    kernels: tuple[ProfiledKernel, ...]
    """The slowest first."""
    seconds: float
    """The median of a run of the program itself, without timing points."""
    overhead: float
    """The seconds that timing points add to a run, in the faster quarter of the runs, which other work of the machine
    disturbs least. Noise may make it negative.
    """
    run_kernel_seconds: float
    """The median of the sums of all kernels in a run.

    On a busy machine the sum of the kernels' medians is smaller, since few kernels of a run are disturbed.
    """
    reading_seconds: float
    """What one timing point costs; this is subtracted from the time of each kernel."""
    readings: int
    """How many timing points a run passes."""
    runs: int
    """How many runs were timed kernel by kernel."""
    threads: int
    events: tuple[Event, ...] = ()
    """The kernels of the last few runs one by one, as they were measured, for a trace."""
    side_by_side: tuple[ProfiledKernel, ...] = ()
    """The kernels of branches that run side by side, each on one core: the time of their stages is in ``kernels``."""
    remarks: tuple[str, ...] = ()
    """Why the kernels of a function have no cost, though its plan has."""

    @property
    def kernel_seconds(self) -> float:
        """The seconds of all kernels together."""
        return sum(kernel.seconds for kernel in self.kernels)

    def share(self, kernel: ProfiledKernel) -> float:
        """The time of a kernel as a part of the time of all kernels."""
        return kernel.seconds / self.kernel_seconds if self.kernel_seconds else 0.0


def with_limits(kernel: ProfiledKernel, machine: Machine | None) -> ProfiledKernel:
    """``kernel`` with the seconds that the peaks of the machine allow, if both are known."""
    if machine is None or kernel.work is None:
        return kernel
    seconds = least_seconds(kernel.work, machine)
    return kernel if seconds is None else replace(kernel, least_seconds=seconds * len(kernel.calls))


def least_seconds(work: KernelWork, machine: Machine) -> float | None:
    """The roofline of one call: its direct arithmetic, or reading its bytes from the nearest caches that hold them.

    The peaks were measured with all threads, and have no margins as those of lower bounds do. None for contractions
    of other types than float32: their peak is not measured.
    """
    if work.dtype not in ("", "float32"):
        return None
    share = work.nbytes / machine.threads
    rate = next((rate for size, rate in machine.reads if size >= share), machine.reads[-1][1])
    return max(work.flops / (machine.flops * machine.threads), work.nbytes / (rate * machine.threads))
