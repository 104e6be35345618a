"""Times kernels on the CUDA device by its own events, without Python between the runs."""

from collections.abc import Sequence

from unity_collage.runtime import cuda
from unity_collage.runtime.timing import Runner, Timed

from ..ffi import tvm_ffi


def time_in_turns(
    runners: Sequence[Runner],
    *,
    percentile: float = 50.0,
    confidence: float = 0.95,
    tolerance: float = 0.02,
    min_runs: int = 9,
    max_runs: int = 300,
    max_seconds: float = 0.1,
    evict_bytes: int = 0,
) -> list[Timed]:
    """The runs of each runner, a few at a time in rounds, so that drift of the device's clock affects all alike.

    Before each run ``evict_bytes`` of other memory are written, and then the tensors of ``warm``. The time of a run
    is that between two events of the stream around it, less the same for a kernel that does nothing; the device waits
    until the run is enqueued. A runner stops as in :func:`unity_collage.runtime.time_in_turns`; ``max_seconds``
    counts the preparation too. A runner is doubtful if its runs differ much.
    """
    cuda.load()
    timed = tvm_ffi.get_global_func("collage.cuda.time_in_turns")
    parts = zip(*((runner.func, list(runner.args), list(runner.warm)) for runner in runners), strict=True)
    limits = (percentile, confidence, tolerance, min_runs, max_runs, max_seconds)
    found = timed(*map(list, parts), *limits, evict_bytes)
    return [
        Timed([float(s) for s in seconds], bool(doubtful))
        for seconds, doubtful in zip(found[::2], found[1::2], strict=True)
    ]


def launch_seconds() -> float:
    """The launch overhead, in seconds, that one more kernel adds to a CUDA graph."""
    cuda.load()
    return float(tvm_ffi.get_global_func("collage.cuda.launch_seconds")())
