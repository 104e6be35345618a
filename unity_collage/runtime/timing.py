"""Times functions by native loops, without Python between the runs."""

from collections.abc import Sequence
from typing import NamedTuple

from unity_collage.runtime.libraries import load_base

from ..ffi import tvm_ffi


class Runner(NamedTuple):
    """A function that is timed in turns with others, and its arguments."""

    func: tvm_ffi.Function
    args: Sequence[object]
    warm: Sequence[object] = ()
    """Tensors that all cores write before each run, as the kernel before it in a program does."""
    twin: "tuple[tvm_ffi.Function, Sequence[object]] | None" = None
    """The same function with constants of its own, and its arguments: it runs before each run that is timed."""
    rivals: int = 0
    """Runners with the same number compute the same."""


class Timed(NamedTuple):
    """The runs of one function."""

    seconds: list[float]
    """The seconds of each run that other work of the machine did not disturb; of all runs if these are fewer than
    three.
    """
    is_doubtful: bool
    """Whether other work left too few undisturbed runs."""


class CompiledForSizes(NamedTuple):
    """What libraries have compiled in this process for sizes that are known when a program runs."""

    kernels: int
    seconds: float


class Interval(NamedTuple):
    """An estimate of a percentile, and its confidence interval."""

    low: float
    estimate: float
    high: float


def compiled_for_sizes() -> CompiledForSizes:
    """What has been compiled up to now; the difference of two answers is what the calls between them compiled."""
    load_base()
    kernels, seconds = tvm_ffi.get_global_func("collage.runtime.compiled_for_sizes")()
    return CompiledForSizes(int(kernels), seconds)


def measure(
    func: tvm_ffi.Function,
    args: Sequence[object],
    *,
    warm: Sequence[object] = (),
    warmup_seconds: float = 0.01,
    min_runs: int = 5,
    max_runs: int = 10_000,
    min_seconds: float = 0.05,
    calls_per_run: int = 1,
    evict_bytes: int = 0,
) -> list[float]:
    """The seconds of each run of ``func(*args)``, until ``min_runs`` and ``min_seconds`` are reached, or ``max_runs``.

    Before each run the caches are brought into the state in which other kernels of a program leave them:
    ``evict_bytes`` of other memory are read, and all cores write the tensors of ``warm``, each a contiguous part. Only
    the call is timed. ``calls_per_run``: how many calls are timed as one, if a call is too short for the clock.
    """
    load_base()
    timed = tvm_ffi.get_global_func("collage.runtime.measure")
    limits = (warmup_seconds, min_runs, max_runs, min_seconds, calls_per_run, evict_bytes)
    return [float(seconds) for seconds in timed(func, list(args), list(warm), *limits)]


def time_in_turns(
    runners: Sequence[Runner],
    *,
    percentile: float = 50.0,
    confidence: float = 0.95,
    tolerance: float = 0.02,
    min_runs: int = 9,
    max_runs: int = 300,
    max_seconds: float = 0.1,
    max_warmup_seconds: float = 0.05,
    evict_bytes: int = 0,
    evict_each_run: bool = False,
) -> list[Timed]:
    """The runs of each runner, taken in rounds, so that drift of the machine affects all alike.

    Each runner warms up until it gets no faster, for at most ``max_warmup_seconds``; then all run in turns. After
    ``min_runs`` rounds a runner stops when the interval of its ``percentile`` (with this ``confidence``) lies above
    that of the fastest of its ``rivals``. The others stop together, when each interval is within ``tolerance`` of its
    estimate. A runner that has used ``max_seconds`` or ``max_runs`` always stops, but not before its first run.

    A run counts if every thread had a core before and after it, and no thread lost its core for a notable part of it.
    Before a run the machine is given time to become calm. Waiting and the runs that do not count take at most three
    times the budget of a runner.

    The caches are prepared as by :func:`measure`, with one eviction for each round. If the runners of a round compute
    different things, code and branch predictions of a kernel would be cold. In a loop over one kernel they are warm. So
    a ``twin`` runs first, and leaves them as the kernel itself would. With ``evict_each_run`` there is an eviction
    before each run, and a turn is three runs after one that does not count. Use it for many runners with memory of
    their own, which would otherwise evict each other's memory.
    """
    load_base()
    timed = tvm_ffi.get_global_func("collage.runtime.time_in_turns")
    parts = zip(*((runner.func, list(runner.args), list(runner.warm)) for runner in runners), strict=True)
    twins = [runner.twin or (None, ()) for runner in runners]
    others = [func for func, _ in twins], [list(args) for _, args in twins]
    rivals = [runner.rivals for runner in runners]
    limits = (percentile, confidence, tolerance, min_runs, max_runs, max_seconds, max_warmup_seconds)
    found = timed(*map(list, parts), *others, rivals, *limits, evict_bytes, evict_each_run)
    return [
        Timed([float(s) for s in seconds], bool(doubtful))
        for seconds, doubtful in zip(found[::2], found[1::2], strict=True)
    ]


def interval(samples: Sequence[float], percentile: float = 50.0, confidence: float = 0.95) -> Interval:
    """The percentile of ``samples``, with its interval between two order statistics by the binomial distribution."""
    load_base()
    found = tvm_ffi.get_global_func("collage.runtime.interval")(list(samples), percentile, confidence)
    return Interval(*(float(value) for value in found))
