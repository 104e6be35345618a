"""Inputs of ONNX models that are bound before the import."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, checker, helper

from unity_collage.calling.binding import with_constant_inputs
from unity_collage.cli.main import main
from unity_collage.errors import CollageError
from unity_collage.frontend.models import import_model


def model_with_rate() -> onnx.ModelProto:
    """Two branches by the value of ``rate``, of which one cannot be imported, and a state that has the batch too."""

    def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3])]
        )

    nodes = [
        helper.make_node("Constant", [], ["wanted"], value_int=16000),
        helper.make_node("Equal", ["rate", "wanted"], ["is_wide"]),
        helper.make_node(
            "If",
            ["is_wide"],
            ["y"],
            then_branch=branch("wide", helper.make_node("Add", ["x", "state"], ["wide"])),
            else_branch=branch("narrow", helper.make_node("Nothing", ["x"], ["narrow"], domain="nobody")),
        ),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3]),
        helper.make_tensor_value_info("state", TensorProto.FLOAT, ["batch", 1]),
        helper.make_tensor_value_info("rate", TensorProto.INT64, []),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nobody", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets)


def test_a_branch_that_is_not_taken_is_not_imported() -> None:
    model = model_with_rate()
    before = model.SerializeToString()
    bound, left = with_constant_inputs(model, {"rate": 16000})
    found = import_model(bound)
    assert not left and found.inputs == ("x", "state")
    assert "R.add(x, state)" in found.mod["main"].script() and "if" not in found.mod["main"].script()
    assert model.SerializeToString() == before


def test_sizes_of_what_is_bound_hold_for_the_other_inputs() -> None:
    bound, _ = with_constant_inputs(model_with_rate(), {"rate": 16000, "state": [[0.5], [0.25]]})
    assert list(map(int, import_model(bound).mod["main"].params[0].ty.shape)) == [2, 3]
    assert [tensor.data_type for tensor in bound.model.graph.initializer] == [
        TensorProto.INT64,
        TensorProto.FLOAT,
    ]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"rte": 1}, "no parameter 'rte' to bind; did you mean rate? It has 'x', 'state', 'rate'"),
        ({"rate": 0.5}, "rate"),
        ({"rate": [1, 2]}, "rate"),
        ({"state": np.zeros((2, 2), "float32")}, "state"),
    ],
)
def test_what_cannot_be_bound_is_named(params: dict[str, object], text: str) -> None:
    with pytest.raises(CollageError, match=re.escape(text)):
        with_constant_inputs(model_with_rate(), params)


def test_the_command_writes_a_model_for_everybody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, state, out = tmp_path / "model.onnx", tmp_path / "state.npy", tmp_path / "bound.onnx"
    onnx.save(model_with_rate(), path)
    np.save(state, np.ones((2, 1), "float32"))
    assert main(["bind", str(path), "rate=16000", f"state={state}", "-o", str(out)]) == 0
    checker.check_model(onnx.load(out))
    assert [value.name for value in onnx.load(out).graph.input] == ["x"]
    with pytest.raises(SystemExit, match="2"):
        main(["bind", str(path), "rate", "-o", str(out)])
    assert main(["bind", str(path), "rate=1", "rate=2", "-o", str(out)]) == 2
    assert main(["bind", str(path), "state=[1,2]", "-o", str(out)]) == 1
    assert "'state'" in capsys.readouterr().err.splitlines()[-1]
