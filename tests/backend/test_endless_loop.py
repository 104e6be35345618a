"""A loop that does not end on the inputs that are drawn does not keep the compile from ending."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import unity_collage as uc
from unity_collage.feedback import refine


def test_a_loop_without_an_end_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "LOOP_SECONDS", 2.0)

    def value(name: str, kind: int) -> object:
        return helper.make_tensor_value_info(name, kind, [])

    steps = [
        helper.make_node("IsNaN", ["limit"], ["ends"]),
        helper.make_node("Not", ["ends"], ["goes_on"]),
        helper.make_node("Neg", ["x"], ["negative"]),
    ]
    inputs = [
        value("step", TensorProto.INT64),
        value("before", TensorProto.BOOL),
        value("x", TensorProto.FLOAT),
    ]
    results = [value("goes_on", TensorProto.BOOL), value("negative", TensorProto.FLOAT)]
    body = helper.make_graph(steps, "body", inputs, results)
    loop = helper.make_node("Loop", ["", "", "start"], ["y"], body=body)
    ends = [value("limit", TensorProto.FLOAT), value("start", TensorProto.FLOAT)]
    graph = helper.make_graph([loop], "endless", ends, [value("y", TensorProto.FLOAT)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = uc.compile(model, backends=["tvm"], budget_seconds=2)
    assert program(np.float32("nan"), np.float32(2.0)).numpy() == -2.0
    assert any("does not end on drawn inputs" in remark for remark in program.plan["main"].remarks)
