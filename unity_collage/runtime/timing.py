"""Time functions without Python between the runs."""

from collections.abc import Sequence
from typing import NamedTuple

import tvm_ffi

from unity_collage.runtime.libraries import load_base


class Runner(NamedTuple):
    """A function that takes part in a race."""

    func: tvm_ffi.Function
    args: Sequence[object]
    warm: Sequence[object] = ()
    """Tensors that all cores write before each run, as the kernel before this one does."""


class Interval(NamedTuple):
    """A percentile of samples, and the interval that the true one lies in."""

    low: float
    estimate: float
    high: float


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
    """Seconds of each run of ``func(*args)``, measured until both minima are reached, or ``max_runs``.

    Before each run the caches are left as neighbouring kernels leave them: ``evict_bytes`` of other memory are
    streamed over, and the tensors of ``warm`` are written again by all cores, every core a contiguous part. Only
    the call itself is timed.
    ``calls_per_run`` calls are timed as one when a call is too short for the clock.
    """
    load_base()
    timed = tvm_ffi.get_global_func("collage.runtime.measure")
    limits = (warmup_seconds, min_runs, max_runs, min_seconds, calls_per_run, evict_bytes)
    return [float(seconds) for seconds in timed(func, list(args), list(warm), *limits)]


def race(
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
    apart: bool = False,
) -> list[list[float]]:
    """Seconds of each run of each runner, taken in rounds so that drift of the machine hits all alike.

    Each is run until it gets no faster, then all in turn. From ``min_runs`` rounds on a runner retires when the
    interval of its percentile lies behind that of the fastest; the others stop together, when each interval is
    within ``tolerance`` of its estimate. A runner that has used ``max_seconds`` or ``max_runs`` stops in any case,
    after its first run at the earliest. The caches are left as by :func:`measure`: once a round, or, where the
    runners are ``apart``, before each run, with three runs in a row behind one that does not count. Many runners that
    use other memory each would else push each other's out of the caches, however little is evicted.
    """
    load_base()
    timed = tvm_ffi.get_global_func("collage.runtime.race")
    parts = zip(*((runner.func, list(runner.args), list(runner.warm)) for runner in runners), strict=True)
    limits = (percentile, confidence, tolerance, min_runs, max_runs, max_seconds, max_warmup_seconds)
    return [[float(s) for s in seconds] for seconds in timed(*map(list, parts), *limits, evict_bytes, apart)]


def interval(samples: Sequence[float], percentile: float = 50.0, confidence: float = 0.95) -> Interval:
    """The percentile of ``samples`` and its interval between two order statistics, by the binomial distribution."""
    load_base()
    found = tvm_ffi.get_global_func("collage.runtime.interval")(list(samples), percentile, confidence)
    return Interval(*(float(value) for value in found))
