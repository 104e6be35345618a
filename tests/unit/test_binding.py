"""Weights that are parameters of ``main`` become constants."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.calling.binding import with_params
from unity_collage.errors import CollageError
from unity_collage.frontend.models import import_model

WEIGHTS = np.arange(12, dtype="float32").reshape(4, 3)
BIAS = np.ones(3, "float32")


@I.ir_module
class Layer:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        mask: R.Tensor(("n", 3), "float32"),
        w: R.Tensor((4, 3), "float32"),
        b: R.Tensor(("m",), "float32"),
    ) -> R.Tensor(dtype="float32", ndim=2):
        R.func_attr({"num_input": 2})
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.add(y, b)
            out = R.multiply(z, mask)
            R.output(out)
        return out


def bound(params: Any, mod: IRModule = Layer) -> Any:
    return with_params(import_model(mod), params)


def test_calls_of_a_bound_main_take_what_is_left() -> None:
    mod = bound({"w": WEIGHTS, "b": BIAS}).mod
    assert len(mod.get_global_var("main").ty.params) == 2
    assert len(Layer.get_global_var("main").ty.params) == 4


def test_bound_parameters_are_constants_and_no_inputs_any_more() -> None:
    found = bound({"w": WEIGHTS, "b": BIAS})
    assert found.inputs == ("x", "mask") and [p.name for p in found.mod["main"].params] == ["x", "mask"]
    assert int(found.mod["main"].attrs["num_input"]) == 2
    assert "metadata" in found.mod["main"].script()


def test_a_sequence_is_for_the_parameters_behind_the_inputs() -> None:
    tvm.ir.assert_structural_equal(bound([WEIGHTS, BIAS]).mod, bound({"b": BIAS, "w": WEIGHTS}).mod)


def test_an_input_may_be_bound_too_and_some_weights_may_stay() -> None:
    found = bound({"mask": np.ones((2, 3), "float32"), "b": BIAS})
    assert found.inputs == ("x", "w") and int(found.mod["main"].attrs["num_input"]) == 1


def test_nothing_changes_without_weights() -> None:
    source = import_model(Layer)
    assert with_params(source, {}) is source and with_params(source, ()) is source


def test_a_change_of_the_array_afterwards_does_not_change_the_program() -> None:
    @I.ir_module
    class Large:  # the memory of smaller arrays is never shared
        @R.function
        def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            with R.dataflow():
                y = R.add(x, w)
                R.output(y)
            return y

    weights = np.zeros((64, 64), "float32")
    found = bound({"w": weights}, Large)
    weights[:] = 7
    tvm.ir.assert_structural_equal(found.mod, bound({"w": np.zeros((64, 64), "float32")}, Large).mod)


def test_tensors_of_tvm_and_narrow_types_are_taken() -> None:
    tvm.ir.assert_structural_equal(bound({"w": tvm.runtime.tensor(WEIGHTS)}).mod, bound({"w": WEIGHTS}).mod)

    @I.ir_module
    class Narrow:
        @R.function
        def main(x: R.Tensor((4,), "bfloat16"), w: R.Tensor((4,), "bfloat16")) -> R.Tensor((4,), "bfloat16"):
            with R.dataflow():
                y = R.add(x, w)
                R.output(y)
            return y

    assert bound({"w": np.ones(4, ml_dtypes.bfloat16)}, Narrow).inputs == ("x",)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"v": WEIGHTS}, "the model has no parameter 'v' to bind; it has 'x', 'mask', 'w', 'b'"),
        ({"w": WEIGHTS.T.copy()}, r"input 'w' takes float32 \(4, 3\); float32 \(3, 4\) was given"),
        ({"w": WEIGHTS.astype("float64")}, "float64 .* was given, and programs convert no types"),
        ([WEIGHTS], "main has 2 parameters behind its inputs, and 1 were given"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(params: Any, reason: str) -> None:
    with pytest.raises(CollageError, match=reason) as caught:
        bound(params)
    assert len(str(caught.value).splitlines()) == 1


def test_a_sequence_needs_the_number_of_inputs() -> None:
    bare = IRModule({"main": Layer["main"].without_attr("num_input")})
    with pytest.raises(CollageError, match="main has no attribute num_input: give its weights by name"):
        bound([WEIGHTS, BIAS], bare)
