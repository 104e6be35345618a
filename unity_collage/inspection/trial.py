"""``trial``: whether a small model can be compiled, saved, and run in a process of its own."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import CollageError, first_line
from ..scratch import Scratch

if TYPE_CHECKING:
    from tvm.ir import IRModule


@dataclass(frozen=True, slots=True)
class TrialCompile:
    """How it went."""

    seconds: float
    problem: str | None
    """What failed; None if all was well."""


def trial() -> TrialCompile:
    """Compile a product and an activation for this machine, with kernels chosen by rule, and run them."""
    begin = time.monotonic()
    try:
        problem = _problem()
    except (CollageError, OSError) as error:
        problem = f"a small model cannot be compiled and run: {first_line(error)}"
    except Exception as error:  # a foreign compiler or kernel
        problem = f"a small model cannot be compiled and run: {type(error).__name__}: {first_line(error)}"
    return TrialCompile(time.monotonic() - begin, problem)


def _problem() -> str | None:
    """Why the results are not right, or None."""
    from .. import runtime
    from ..compiler import compile
    from ..profile.peers.runtime_process import RuntimeProcess
    from ..profile.peers.runtimes import OURS

    draw = np.random.default_rng(0)
    x, weights = (draw.standard_normal(shape).astype("float32") for shape in ((4, 16), (16, 8)))
    with Scratch("doctor") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pools that conflict are a finding of their own
        program = compile(_model(weights), measure=False, database=Path(folder) / "costs.sqlite")
        path = Path(folder) / "trial.so"
        program.save(path)
        with RuntimeProcess(OURS, path, {"x": x}, runtime.num_threads()) as process:
            (found,) = process.outputs()
    error = float(np.abs(found - np.maximum(x @ weights, 0)).max())
    return (
        None
        if error < 1e-4
        else f"a small model computes wrong numbers, off by {error:.1e}: please report it"
    )


def _model(weights: np.ndarray) -> IRModule:
    import tvm
    from tvm import relax

    x = relax.Var("x", relax.TensorType((4, weights.shape[0]), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(tvm.runtime.tensor(weights))))
            result = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(result)
    return builder.get()
