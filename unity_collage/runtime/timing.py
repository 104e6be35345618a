"""Time a function without Python between the runs."""

from collections.abc import Sequence

import tvm_ffi

from unity_collage.runtime.libraries import load_base


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
