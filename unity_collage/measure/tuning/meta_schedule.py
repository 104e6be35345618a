"""MetaSchedule's builder and runner, set up as our kernels are built and run: with our fast math, on the one pool.

TVM imports xgboost when it tunes, which loads an OpenMP runtime of its own. So tune in a process where no kernel is
timed (:mod:`.process`).
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
from tvm.target import Target

from ... import runtime
from ...backends.registry import known
from ...schedule.fast_math import rewritten

_NEEDED = ("xgboost", "psutil", "cloudpickle")
_REMOVED = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)
_BUILD_SECONDS, _RUN_SECONDS = 120.0, 60.0


def why_unavailable() -> str | None:
    """Why MetaSchedule cannot tune here, or None; imports nothing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    return f"{' and '.join(missing)} missing: pip install 'unity_collage[tune]'" if missing else None


def local_builder(threads: int) -> Any:
    """A builder of ``threads`` kernels at a time, each in a process of its own."""
    from tvm.s_tir.meta_schedule.builder import LocalBuilder

    return LocalBuilder(max_workers=threads, timeout_sec=_BUILD_SECONDS, f_build=built)


def local_runner(threads: int) -> Any:
    """A runner that times one kernel after the other in a process whose pool has ``threads`` threads."""
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner

    return LocalRunner(
        timeout_sec=_RUN_SECONDS,
        evaluator_config=EvaluatorConfig(number=1, repeat=5, min_repeat_ms=5),
        f_alloc_argument=arguments,
        initializer=partial(_prepare, threads),
    )


def _prepare(threads: int) -> None:
    """Set up the process that runs kernels: some of them call our own libraries by name."""
    runtime.set_num_threads(threads)
    for name in {name for backend in known().values() for name in backend.libraries}:
        if runtime.why_unavailable(name) is None:
            runtime.load(name)


def built(mod: IRModule, target: Target, _params: Any) -> Any:
    """The module that is timed: the scheduled kernel as the final program will have it."""
    functions = {
        gvar: rewritten(func) for gvar, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)
    }
    unpacked = IRModule(functions, attrs=mod.attrs)
    return tvm.compile(_REMOVED(unpacked), target=target).mod


def arguments(device: Any, types: list[list[Any]], repeat: int) -> list[list[Any]]:
    """``repeat`` lists of tensors of these ``types`` (kind, dtype, shape).

    TVM's own function would fill them on another thread pool. Integers are 0 or 1, since they may be indexes.
    """
    rng = np.random.default_rng(0)

    def tensor(dtype: str, shape: list[int]) -> Any:
        values = rng.random(shape) if "float" in dtype else rng.integers(0, 2, shape)
        return tvm.runtime.tensor(values.astype(dtype), device)

    return [[tensor(str(dtype), list(shape)) for _, dtype, shape in types] for _ in range(repeat)]
