"""A name of a node that cannot be answered for is refused before anything is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from unity_collage.cli import main as cli
from unity_collage.errors import CollageError
from unity_collage.frontend.models import import_model
from unity_collage.frontend.onnx.names import meanings, own_names
from unity_collage.inspection.nodes import check_node
from unity_collage.measure.kernel_costs import KernelCosts
from unity_collage.pipeline import Pipeline
from unity_collage.target import host_target


def model() -> onnx.ModelProto:
    """``y = exp(relu(relu(x @ w)) @ v)``: two products and two activations."""

    def value(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    weights = [
        numpy_helper.from_array(np.ones(shape, "float32"), n) for n, shape in (("w", (4, 3)), ("v", (3, 3)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["first_out"], name="first"),
        helper.make_node("Tanh", ["first_out"], ["act_out"], name="act"),
        helper.make_node("MatMul", ["act_out", "v"], ["second_out"], name="second"),
        helper.make_node("Exp", ["second_out"], ["y"], name="last"),
    ]
    graph = helper.make_graph(nodes, "small", [value("x", 2, 4)], [value("y", 2, 3)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def prepared() -> tvm.ir.IRModule:
    with host_target():
        return tvm.transform.Sequential(Pipeline().until_candidates())(import_model(model()).mod)


NODES = {
    "secnd": "no binding, kernel or operator is called 'secnd'; did you mean second",
    "zzzz": "no binding, kernel or operator is called 'zzzz'",
    "matmul": "'matmul' is 2 bindings, name one of them: first_out, second_out",
    "relax.matmul": "'relax.matmul' is 2 bindings, name one of them: first_out, second_out",
}


@pytest.mark.parametrize("node", NODES)
def test_a_name_of_none_or_of_several_is_refused(prepared: tvm.ir.IRModule, node: str) -> None:
    found = model()
    with pytest.raises(CollageError) as refused:
        check_node(prepared, node, list(meanings(found, node)), own_names(found))
    assert str(refused.value).startswith(NODES[node])


@pytest.mark.parametrize(
    "node", ["first", "first_out", "main:first_out", "exp", "tanh", "last", "fused_exp_tvm", "matmul+exp"]
)
def test_a_name_that_may_have_an_answer_is_not(prepared: tvm.ir.IRModule, node: str) -> None:
    check_node(prepared, node, list(meanings(model(), node)))


@pytest.mark.parametrize("node", ["secnd", "matmul"])
def test_explain_refuses_it_before_anything_is_measured(
    node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(KernelCosts, "costs", None)
    onnx.save(model(), tmp_path / "m.onnx")
    words = [
        "explain",
        str(tmp_path / "m.onnx"),
        "--database",
        str(tmp_path / "c.sqlite"),
        "--node",
        node,
        "-q",
    ]
    assert cli.main(words) == 1
    assert capsys.readouterr().err.startswith(f"unity-collage: {NODES[node]}")
