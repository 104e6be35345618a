"""A compiled model is not kept alive: its weights may be most of the machine's memory."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc

SIDE = 3000


def model(seed: int) -> IRModule:
    """A product with a matrix of 36 MB."""
    x = relax.Var("x", relax.TensorType((4, SIDE), "float32"))
    weights = np.random.default_rng(seed).standard_normal((SIDE, SIDE), "float32")
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(R.matmul(x, relax.const(weights)))
        builder.emit_func_output(result)
    return builder.get()


def compiled(seed: int, database: str) -> None:
    program = uc.compile(model(seed), backends=["tvm", "onednn"], database=database, recompile=True)
    assert np.asarray(program(np.zeros((4, SIDE), "float32"))).shape == (4, SIDE)


def grown(database: str) -> float:
    """How many copies of the weights are left of two programs that are gone."""
    compiled(0, database)  # what all compiles share is loaded
    gc.collect()
    before = psutil.Process().memory_info().rss
    for seed in range(1, 3):
        compiled(seed, database)
    gc.collect()
    return (psutil.Process().memory_info().rss - before) / (4 * SIDE**2)


def test_programs_that_are_gone_hold_no_weights(tmp_path: Path) -> None:
    code = f"import test_released_weights; print(test_released_weights.grown({str(tmp_path / 'costs.sqlite')!r}))"
    # In a process of its own, since the instruments of the tests hold modules.
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    ).stdout
    assert float(said) < 0.5
