"""Values that become steps further on: no kernel and no rewrite may change their last bits."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, DECLINED
from unity_collage.graph.steps import before_steps
from unity_collage.passes import AnnotateCandidates, Prepare

HOST = Target("llvm")


@I.ir_module
class Buckets:
    """int(log(n / 8) * 3 * 5), and the logarithm for others."""

    @R.function
    def main(n: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "int64"), R.Tensor((4,), "float32")):
        with R.dataflow():
            eighth = R.multiply(n, R.const(0.125, "float32"))
            curve = R.log(eighth)
            three = R.multiply(curve, R.const(3.0, "float32"))
            five = R.multiply(three, R.const(5.0, "float32"))
            bucket = R.astype(five, "int64")
            shown = R.exp(curve)
            R.output(bucket, shown)
        return (bucket, shown)


@I.ir_module
class Smooth:
    """The same without a step."""

    @R.function
    def main(n: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            curve = R.log(n)
            three = R.multiply(curve, R.const(3.0, "float32"))
            five = R.multiply(three, R.const(5.0, "float32"))
            R.output(five)
        return five


@I.ir_module
class Summed:
    """The last bits of a sum depend on its order, so what goes into it is not held to them."""

    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "bool"):
        with R.dataflow():
            curve = R.sigmoid(x)
            product = R.matmul(curve, w)
            shifted = R.add(product, w)
            is_high = R.greater(shifted, R.const(0.5, "float32"))
            R.output(is_high)
        return is_high


def names(mod: IRModule) -> set[str]:
    bindings = [binding for block in mod["main"].body.blocks for binding in block.bindings]
    return {var.name for var in before_steps(bindings)}


@pytest.mark.parametrize(
    ("mod", "expected"),
    [
        (Buckets, {"n", "eighth", "curve", "three", "five"}),
        (Smooth, set()),
        (Summed, {"product", "shifted", "w"}),
    ],
    ids=["buckets", "smooth", "summed"],
)
def test_what_becomes_a_step(mod: IRModule, expected: set[str]) -> None:
    assert names(mod) == expected


def factors(mod: IRModule) -> list[float]:
    with HOST:
        prepared = Prepare()(mod)
    values = [binding.value for block in prepared["main"].body.blocks for binding in block.bindings]
    return [
        float(value.args[1].value.numpy())
        for value in values
        if isinstance(value, relax.Call) and value.op.name == "relax.multiply"
    ]


def test_factors_in_a_row_stay_two_before_a_step() -> None:
    assert factors(Buckets) == [0.125, 3.0, 5.0]
    assert factors(Smooth) == [15.0]


def test_onednn_takes_the_logarithm_only_where_no_step_follows() -> None:
    with HOST:
        annotated = AnnotateCandidates(("onednn", "tvm"))(Buckets)["main"]
        smooth = AnnotateCandidates(("onednn", "tvm"))(Smooth)["main"]

    def taken(func: relax.Function) -> set[str]:
        return {each.label for each in CANDIDATES.read(func) if each.backend == "onednn"}

    assert taken(annotated) == {"multiply"}
    assert "log" in taken(smooth)
    reasons = {each.index: each.reason for each in DECLINED.read(annotated) if each.backend == "onednn"}
    assert (
        reasons[1] == "oneDNN's log is off in the last bits, and later operators round or compare the result"
    )
