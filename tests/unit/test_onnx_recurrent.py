"""LSTM, GRU and RNN of ONNX models: the numbers of ONNX Runtime, and one line where one is not supported."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from unity_collage import reference
from unity_collage.errors import ModelError
from unity_collage.frontend.models import import_model
from unity_collage.frontend.onnx_recurrent import with_recurrent_operators
from unity_collage.passes import Prepare

STEPS, BATCH, INPUTS, HIDDEN = 5, 2, 3, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def model(
    op: str,
    *,
    bias: bool = True,
    initial: bool = False,
    steps: int | str = STEPS,
    extra: Any = (),
    **options: Any,
) -> onnx.ModelProto:
    """One node with weights drawn; ``extra`` inputs come behind B."""
    random = np.random.default_rng(7)
    directions = 2 if options.get("direction") == "bidirectional" else 1
    rows = GATES[op] * HIDDEN
    arrays = {
        "w": random.normal(size=(directions, rows, INPUTS)),
        "r": random.normal(size=(directions, rows, HIDDEN)),
        "b": random.normal(size=(directions, 2 * rows)),
        "h0": random.normal(size=(directions, BATCH, HIDDEN)),
        "c0": random.normal(size=(directions, BATCH, HIDDEN)),
        "p": random.normal(size=(directions, 3 * HIDDEN)),
    }
    names = ["x", "w", "r", "b" if bias else ""]
    if initial:
        names += ["", "h0", *(["c0"] if op == "LSTM" else [])]
    names += extra
    outputs = ["y", "y_h", "y_c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, names, outputs, name="cell", hidden_size=HIDDEN, **options)
    weights = [
        numpy_helper.from_array(value.astype("float32"), name)
        for name, value in arrays.items()
        if name in names
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, BATCH, INPUTS])
    shapes = [[STEPS, directions, BATCH, HIDDEN], *[[directions, BATCH, HIDDEN]] * 2]
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape if steps == STEPS else None)
        for name, shape in zip(outputs, shapes, strict=False)
    ]
    graph = helper.make_graph([node], "cell", [x], results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


CELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "lstm from a state": ("LSTM", {"initial": True}),
    "lstm in both directions": ("LSTM", {"direction": "bidirectional", "initial": True}),
    "lstm backwards": ("LSTM", {"direction": "reverse"}),
    "lstm without a bias": ("LSTM", {"bias": False}),
    "lstm of other functions": ("LSTM", {"activations": ["Sigmoid", "Relu", "Softsign"]}),
    "gru": ("GRU", {}),
    "gru that resets behind its product": ("GRU", {"linear_before_reset": 1}),
    "gru in both directions": ("GRU", {"direction": "bidirectional", "linear_before_reset": 1}),
    "rnn": ("RNN", {}),
    "rnn of relu in both directions": (
        "RNN",
        {"direction": "bidirectional", "activations": ["Relu", "Tanh"], "initial": True},
    ),
}


@pytest.mark.parametrize(("op", "options"), CELLS.values(), ids=CELLS)
def test_numbers_are_those_of_onnx_runtime(op: str, options: dict[str, Any]):
    cell = model(op, **options)
    x = np.random.default_rng(1).normal(size=(STEPS, BATCH, INPUTS)).astype("float32")
    expected = onnxruntime.InferenceSession(cell.SerializeToString()).run(None, {"x": x})
    mod = Prepare()(import_model(cell)[0])
    found = reference.run(mod["main"], [x], mod)
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_the_initial_state_has_the_type_of_the_weights():
    cell = model("LSTM", bias=False)
    for tensor in cell.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float16"), tensor.name))
    for value in (*cell.graph.input, *cell.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    main = import_model(cell)[0]["main"]
    assert {str(field.dtype) for field in main.ret_ty.fields} == {"float16"}


def test_inputs_of_all_steps_meet_their_weights_in_one_product():
    nodes = with_recurrent_operators(model("LSTM")).graph.node
    products = [node for node in nodes if node.op_type == "MatMul"]
    assert ["x" in node.input for node in products] == [True]


def test_models_without_cells_are_not_copied():
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "none",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    plain = helper.make_model(graph)
    assert with_recurrent_operators(plain) is plain


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"steps": "n"}, "give the model's inputs fixed shapes"),
        ({"extra": ["", "", "", "p"]}, "it has peepholes"),
        ({"clip": 3.0}, "it is clipped"),
        ({"input_forget": 1}, "its gates are coupled"),
        ({"layout": 1}, "its batch comes first"),
        ({"activations": ["HardSigmoid", "Tanh", "Tanh"]}, "its activations are HardSigmoid"),
    ],
    ids=["length", "peepholes", "clip", "coupled", "layout", "activations"],
)
def test_what_is_not_supported_is_said_in_one_line(options: dict[str, Any], reason: str):
    with pytest.raises(ModelError, match=f"^LSTM cell is not supported: .*{reason}.*") as error:
        with_recurrent_operators(model("LSTM", **options))
    assert "\n" not in str(error.value)
