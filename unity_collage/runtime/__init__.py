"""The native runtime: the libraries that run offloaded functions, the one thread pool, and timing.

It imports only ``tvm_ffi`` and the standard library, so a process that runs an exported model needs nothing of the
compiler. The import loads no native library: ``load("onednn")`` does that. What few programs need is imported on first
use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unity_collage.runtime.libraries import (
    cmake_folder,
    describe,
    library_version,
    load,
    load_code_generator,
    load_tvm_runtime,
    why_unavailable,
)
from unity_collage.runtime.threads import (
    adopt_openmp,
    float_mode,
    flush_denormals,
    num_threads,
    openmp_runtimes,
    restore_float_mode,
    set_num_threads,
    why_pools_conflict,
    why_torch_competes,
)

if TYPE_CHECKING:
    from unity_collage.runtime.custom_ops import register_custom_ops
    from unity_collage.runtime.timing import Runner, compiled_for_sizes, interval, measure, time_in_turns

_LATER = {
    "Runner": "timing",
    "compiled_for_sizes": "timing",
    "interval": "timing",
    "measure": "timing",
    "register_custom_ops": "custom_ops",
    "time_in_turns": "timing",
}

__all__ = [
    "Runner",
    "adopt_openmp",
    "cmake_folder",
    "compiled_for_sizes",
    "describe",
    "float_mode",
    "flush_denormals",
    "interval",
    "library_version",
    "load",
    "load_code_generator",
    "load_tvm_runtime",
    "measure",
    "num_threads",
    "openmp_runtimes",
    "register_custom_ops",
    "restore_float_mode",
    "set_num_threads",
    "time_in_turns",
    "why_pools_conflict",
    "why_torch_competes",
    "why_unavailable",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
