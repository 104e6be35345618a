"""The one thread pool, shared by the vendor libraries and the kernels that TVM generates."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from unity_collage.runtime.libraries import claim_parallel_loops, load_base

from ..ffi import tvm_ffi

_UNUSED = ("mnn.libs",)
"""The folders of OpenMP runtimes that nothing calls: MNN's package links one, and has threads of its own."""
_FLUSHING = {"x86_64": 0x8040, "aarch64": 1 << 24}
"""The bits of the floating-point mode with which denormal operands and results are zero, by machine.

They are FTZ and DAZ of MXCSR on x86, and FZ of FPCR on Arm.
"""


def num_threads() -> int:
    """The number of threads that kernels use.

    By default it is ``TVM_NUM_THREADS``, else ``OMP_NUM_THREADS``, else :func:`threads_for_cores`.
    """
    load_base()
    return int(tvm_ffi.get_global_func("collage.runtime.num_threads")())


def set_num_threads(count: int) -> None:
    """Let kernels use ``count`` threads from their next call on.

    Raises ValueError where ``count`` is not from 1 to 1024.
    """
    claim_parallel_loops()
    tvm_ffi.get_global_func("collage.runtime.set_num_threads")(count)


def park_threads() -> None:
    """Let the threads of the pool sleep at once, not after a millisecond: a pool of another library needs the cores."""
    load_base()
    tvm_ffi.get_global_func("collage.runtime.park_workers")()


def threads_for_cores(root: str | Path = "") -> int:
    """A thread for each core that this process may use, but at most as many as its :func:`cpu_quota` allows.

    Hardware threads that share a core count as one. ``root``: the folder to read the machine's files below.
    """
    load_base()
    return int(tvm_ffi.get_global_func("collage.runtime.threads_for_cores")(str(root)))


def cpu_quota(root: str | Path = "") -> float | None:
    """How many processors control groups allow this process, as a fraction, or None if they set no limit.

    It is the least limit of its group and of the enclosing groups that can be seen from a container.
    """
    load_base()
    found = tvm_ffi.get_global_func("collage.runtime.cpu_quota")(str(root))
    return None if found is None else float(found)


def adopt_openmp(library: str | Path) -> None:
    """Let the OpenMP regions of a loaded library, compiled by GCC, run on the pool. Call it before the library runs.

    Raises ValueError when no library was loaded from that path. Raises RuntimeError with the name of the function when
    the library needs a part of OpenMP that the pool lacks (dynamic schedules, tasks).
    """
    claim_parallel_loops()
    tvm_ffi.get_global_func("collage.runtime.adopt_openmp")(str(library))


def float_mode() -> int:
    """The floating-point mode of the calling thread: its rounding, and whether denormals count as zero."""
    load_base()
    return int(tvm_ffi.get_global_func("collage.runtime.float_mode")())


def restore_float_mode(mode: int) -> bool:
    """Give the calling thread and the others of the pool this :func:`float_mode`; whether any of them had another."""
    load_base()
    return bool(tvm_ffi.get_global_func("collage.runtime.restore_float_mode")(mode))


def flush_denormals(flush: bool = True) -> bool:
    """Let denormal numbers count as zero in programs that this thread calls, or no longer; whether it can.

    Denormal numbers are below 1.2e-38 in float32. Arithmetic with them takes up to a hundred times as long on many
    processors. They arise where values decay: gates that are shut, silence in audio. The mode is that of the calling
    thread and of the threads of the pool: each thread that calls programs sets it for itself, as with
    ``torch.set_flush_denormal``. False on processors without such a mode.
    """
    bits = _FLUSHING.get(os.uname().machine, 0)
    mode = float_mode()
    restore_float_mode(mode | bits if flush else mode & ~bits)
    return bits != 0


def openmp_runtimes() -> list[str]:
    """The paths of the OpenMP runtimes that are mapped into this process; there should be one."""
    load_base()
    return [str(path) for path in tvm_ffi.get_global_func("collage.runtime.openmp_runtimes")()]


def why_pools_conflict() -> str | None:
    """Why thread pools compete for the cores in this process, or None when there is one pool."""
    return why_runtimes_conflict(openmp_runtimes()) or _why_tvm_keeps_its_pool()


def why_torch_competes() -> str | None:
    """Why programs that run in turns with PyTorch's operators in this process are slow, or None.

    PyTorch's pool starts with its first parallel operator; a process that only imports it loses nothing.
    """
    torch = sys.modules.get("torch")
    if torch is None or num_threads() == 1 or torch.get_num_threads() == 1:
        return None
    return (
        f"PyTorch has a pool of {torch.get_num_threads()} threads of its own in this process, which spin against ours "
        "for a while after each of its operators: programs that run in turns with them take several times as long; "
        "call torch.set_num_threads(1), or run them in a process of their own"
    )


def why_runtimes_conflict(paths: Sequence[str]) -> str | None:
    """Why these OpenMP runtimes conflict in one process, or None when they are at most one file."""
    resolved = {Path(path).resolve() for path in paths}
    distinct = sorted(str(path) for path in resolved if path.parent.name not in _UNUSED)
    if len(distinct) < 2:
        return None
    return (
        f"{len(distinct)} OpenMP runtimes are in this process ({', '.join(distinct)}): the threads of one that runs "
        "regions spin against the pool's and kernels become many times slower; let the library that brings it run on "
        "the pool (unity_collage.runtime.adopt_openmp), or in a process of its own"
    )


def _why_tvm_keeps_its_pool() -> str | None:
    if tvm_ffi.get_global_func("collage.runtime.owns_parallel_loops")():
        return None
    return (
        "TVM was imported after the runtime was loaded and would use a pool of its own: "
        "call unity_collage.runtime.load again before a library of TVM is loaded"
    )
