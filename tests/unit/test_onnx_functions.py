"""Operators that TVM's importer lacks, by the functions that define them: the numbers of onnx's own evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from unity_collage import reference
from unity_collage.errors import ModelError
from unity_collage.frontend.models import import_model
from unity_collage.frontend.onnx_functions import with_functions_inlined

SHAPE = [2, 3, 4, 4]


def model(
    op: str, opset: int, domain: str = "", functions: list[onnx.FunctionProto] | None = None, **options: Any
) -> onnx.ModelProto:
    """One node of one input and one output."""
    node = helper.make_node(op, ["x"], ["y"], name="node", domain=domain, **options)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy")
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    graph = helper.make_graph([node], "one", [x], [y])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions or [])


def assert_numbers_are_those_of_onnx(made: onnx.ModelProto) -> None:
    x = np.random.default_rng(0).normal(size=SHAPE).astype("float32")
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    mod = import_model(made)[0]
    np.testing.assert_allclose(reference.run(mod["main"], [x], mod)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "opset", "options"),
    [("Celu", 12, {"alpha": 2.0}), ("Swish", 24, {"alpha": 0.5})],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_functions_of_the_standard(op: str, opset: int, options: dict[str, Any]):
    assert_numbers_are_those_of_onnx(model(op, opset, **options))


def test_functions_of_the_model():
    body = [
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["b"]),
    ]
    function = helper.make_function("own", "Gate", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    assert_numbers_are_those_of_onnx(model("Gate", 17, "own", [function]))


def test_a_model_of_known_operators_is_not_copied():
    plain = model("Relu", 17)
    assert with_functions_inlined(plain) is plain


def test_an_operator_that_nobody_defines_is_named():
    with pytest.raises(ModelError, match="Unheard") as error:
        import_model(model("Unheard", 17, "own"))
    assert "\n" not in str(error.value)
