"""Functions of Relax as ONNX models compute the same: ONNX Runtime runs them, numpy's reference says what is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from relax_calls import function
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage import reference
from unity_collage.measure.inputs import random_inputs
from unity_collage.testing.conformance import CASES
from unity_collage.testing.conformance.cases import case, weights
from unity_collage.to_onnx import NotExported, exported

TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2}


def _quantised_and_back(x: relax.Expr, scale: Any, zero: Any, axis: int) -> relax.Expr:
    scale, zero = relax.const(np.asarray(scale, "float32")), relax.const(np.asarray(zero, "int8"))
    return R.dequantize(R.quantize(x, scale, zero, axis, "int8"), scale, zero, axis)


MORE = (
    case("conv nhwc", lambda x, w: R.nn.conv2d(x, w, (1, 1), 1, (1, 1), 1, "NHWC", "OHWI"), (1, 5, 5, 3), (4, 3, 3, 3)),
    case("pooled channels last", lambda x: R.nn.max_pool2d(x, (2, 2), strides=(2, 2), layout="NHWC"), (1, 6, 6, 3)),
    case("split unevenly", lambda x: R.split(x, 3, axis=1), (2, 7)),
    case("stack", lambda x, y: R.stack([x, y], axis=-1), (2, 3), (2, 3)),
    case("slice with steps", lambda x: R.strided_slice(x, axes=[1], begin=[1], end=[7], strides=[2]), (2, 8)),
    case("variance", lambda x: R.variance(x, axis=[1], keepdims=True), (3, 8)),
    case("lower triangle", lambda x: R.tril(x, -1), (4, 4)),
    case("running sum", lambda x: R.cumsum(x, axis=1), (2, 5)),
    case("gelu by tanh", R.nn.gelu_tanh, (2, 5)),
    case("group norm", lambda x: R.nn.group_norm(x, weights(4), weights(4), 2, 1, [2, 3]), (2, 4, 3, 3)),
    case("rms norm", lambda x: R.nn.rms_norm(x, weights(6), axes=[-1]), (3, 6)),
    case("reciprocal root", lambda x: R.rsqrt(R.add(R.square(x), R.const(1.0))), (3, 6)),
    case("resize", lambda x: R.image.resize2d(x, (8, 10), method="linear"), (1, 2, 4, 5)),
    case("quantised and back", lambda x: _quantised_and_back(x, 0.05, 3, 0), (3, 6)),
    case("quantised along an axis", lambda x: _quantised_and_back(x, [0.05, 0.1, 0.2], [3, 0, -7], 0), (3, 6)),
    case("pixel shuffle", lambda x: R.nn.pixel_shuffle(x, 2), (1, 8, 3, 3)),
)  # fmt: skip


def _cases() -> list:
    return [each for each in (*CASES, *MORE) if each.kind in (None, "llvm")]


@pytest.mark.parametrize("subject", _cases(), ids=lambda subject: subject.name)
def test_it_computes_what_the_function_does(subject) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    func = subject.make()
    try:
        model = exported(func)
    except NotExported as error:
        if subject in MORE:
            raise
        pytest.skip(str(error))
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = random_inputs(func)
    found = session.run(
        None, {each.name: value for each, value in zip(session.get_inputs(), inputs, strict=True)}
    )
    for result, right in zip(found, reference.run(func, inputs), strict=True):
        assert (result.shape, result.dtype) == (right.shape, right.dtype)
        limit = TOLERANCE.get(right.dtype.name, 1e-3)
        np.testing.assert_allclose(
            result.astype(np.float64), right.astype(np.float64), rtol=limit, atol=limit / 5
        )


def test_most_cases_are_exported() -> None:
    """A case that is skipped above proves nothing."""
    refused = []
    for subject in _cases():
        try:
            exported(subject.make())
        except NotExported as error:
            refused.append(str(error))
    assert len(refused) < len(_cases()) / 10, refused


def test_functions_that_are_called_are_written_in_place() -> None:
    @I.ir_module
    class Module:
        @R.function(private=True)
        def twice(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                y = R.add(x, x)
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            cls = Module
            with R.dataflow():
                a: R.Tensor((2, 3), "float32") = cls.twice(x)
                b: R.Tensor((2, 3), "float32") = cls.twice(a)
                R.output(b)
            return b

    model = exported(Module["main"], Module, ["in"], ["out"])
    assert [node.op_type for node in model.graph.node] == ["Add", "Add", "Identity"]
    assert ([model.graph.input[0].name], [model.graph.output[0].name]) == (["in"], ["out"])


def test_what_has_no_counterpart_is_named_with_the_reason() -> None:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        with R.dataflow():
            y = R.flip(x, axis=0)
            R.output(y)
        return y

    with pytest.raises(NotExported, match="flip has no counterpart in ONNX here"):
        exported(main)

    @R.function
    def free(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y

    with pytest.raises(NotExported, match="known only when the program runs"):
        exported(free)


@pytest.mark.parametrize(("dtype", "threshold"), [("float32", 15.0), ("float64", 30.0)])
def test_a_softplus_that_is_not_smooth_is_not_exported(dtype: str, threshold: float) -> None:
    def softplus(below: float) -> relax.Function:
        return function(lambda x: relax.op.nn.softplus(x, threshold=threshold - below), (4,), dtype=dtype)

    assert exported(softplus(0.0)).graph.node[0].op_type == "Softplus"
    with pytest.raises(NotExported, match=f"a threshold below {threshold:g}"):
        exported(softplus(1.0))


def test_a_result_that_is_an_input_is_a_node_of_its_own() -> None:
    x = relax.Var("x", relax.TensorType([2], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            same = builder.emit_output(x)
        builder.emit_func_output(relax.Tuple([same, x]))
    model = exported(builder.get()["main"], IRModule())
    assert [node.op_type for node in model.graph.node] == ["Identity", "Identity"]
