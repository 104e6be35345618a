"""Constants without elements in saved programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

import unity_collage as uc


@pytest.mark.parametrize("shape", [(2, 0, 5), (0, 3), (1, 0)])
def test_a_loaded_program_has_results_without_elements(shape: tuple[int, ...], tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.exp(x))
        builder.emit_func_output(result)
    program = uc.compile(builder.get(), backends=["tvm"], measure=False)
    given = np.zeros(shape, "float32")
    assert np.asarray(program(given)).shape == shape
    program.save(tmp_path / "program.so")
    assert np.asarray(uc.load(tmp_path / "program.so")(given)).shape == shape
