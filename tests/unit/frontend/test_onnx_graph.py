"""Graphs, functions and domains of ONNX models, and what is computed while they are imported."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from unity_collage.errors import ModelError
from unity_collage.frontend.models import import_model

RELU = helper.make_node("Relu", ["x"], ["y"])


def model(
    nodes: list[onnx.NodeProto],
    shape: list[object] = [2, 3],  # noqa: B006 - never changed
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    **more: object,
) -> onnx.ModelProto:
    """A graph from the float tensor x to y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **more)


def steps(made: onnx.ModelProto) -> list[str]:
    """The operators of ``main``, in their order."""
    bindings = [b for block in import_model(made).mod["main"].body.blocks for b in block.bindings]
    return [b.value.op.name.removeprefix("relax.") for b in bindings if isinstance(b.value, relax.Call)]


def refusal(made: onnx.ModelProto) -> str:
    with pytest.raises(ModelError) as raised:
        import_model(made)
    return str(raised.value)


def test_nodes_may_stand_in_any_order() -> None:
    nodes = [
        helper.make_node("Exp", ["b"], ["y"]),
        helper.make_node("Abs", ["y"], ["unused"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Relu", ["x"], ["a"]),
    ]
    assert steps(model(nodes)) == ["nn.relu", "negative", "exp"]
    branches = [
        helper.make_graph(
            [helper.make_node("Tanh", ["late"], ["r"])], "t", [], [helper.make_empty_tensor_value_info("r")]
        ),
        helper.make_graph(
            [helper.make_node("Neg", ["late"], ["r"])], "e", [], [helper.make_empty_tensor_value_info("r")]
        ),
    ]
    decided = helper.make_node("If", ["yes"], ["y"], then_branch=branches[0], else_branch=branches[1])
    late = helper.make_node("Sqrt", ["x"], ["late"])
    assert steps(model([decided, late], weights={"yes": np.array(True)})) == ["sqrt", "tanh"]


def test_a_branch_may_have_a_name_of_its_own_that_a_later_node_has() -> None:
    inner = [helper.make_node("Relu", ["x"], ["same"]), helper.make_node("Tanh", ["same"], ["r"])]
    branch = helper.make_graph(inner[::-1], "b", [], [helper.make_empty_tensor_value_info("r")])
    decided = helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=branch)
    nodes = [decided, helper.make_node("Sqrt", ["z"], ["same"]), helper.make_node("Exp", ["same"], ["y"])]
    assert steps(model(nodes, weights={"yes": np.array(True)})) == ["nn.relu", "tanh", "sqrt", "exp"]


def test_a_cycle_is_refused() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Add", ["b", "x"], ["a"])]
    assert "no node before computes" in refusal(model([*nodes, helper.make_node("Exp", ["b"], ["y"])]))


def test_arithmetic_of_known_shapes_leaves_nothing() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["rows"]),
        helper.make_node("Mul", ["rows", "two"], ["double"]),
        helper.make_node("Concat", ["double", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    weights = {"zero": np.array([0]), "two": np.array([2]), "rest": np.array([-1])}
    assert steps(model(nodes, [2, 6], weights)) == ["reshape"]


def test_arithmetic_of_free_sizes_is_symbolic() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Split", ["s"], ["n", "m"], axis=0),
        helper.make_node("Concat", ["m", "n"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    made = import_model(model(nodes, ["n", 6])).mod["main"]
    assert str(made.ret_ty) == 'R.Tensor((6, n), dtype="float32")'


def test_nodes_that_no_result_needs_are_left_out() -> None:
    assert steps(model([RELU, helper.make_node("Unheard", ["x"], ["z"])])) == ["nn.relu"]


def test_an_operator_of_another_domain_is_not_the_standards() -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"], domain="my.ops")])
    made.opset_import.append(helper.make_opsetid("my.ops", 1))
    assert refusal(made) == "my.ops.Relu 'y': there is no converter for operators of my.ops"


def test_a_domain_without_a_version_is_refused() -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"], domain="my.ops")])
    assert "the model does not say which version of the operators of my.ops it uses" in refusal(made)


def function(name: str, nodes: list[onnx.NodeProto], attributes: tuple[str, ...] = ()) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, opsets, list(attributes))


def calling(name: str, functions: list[onnx.FunctionProto], **attributes: object) -> onnx.ModelProto:
    made = model([helper.make_node(name, ["x"], ["y"], domain="own", **attributes)], functions=functions)
    made.opset_import.append(helper.make_opsetid("own", 1))
    return made


def test_functions_are_inlined_with_their_attributes() -> None:
    concat = helper.make_node("Concat", ["a", "a"], ["b"])
    concat.attribute.append(
        onnx.AttributeProto(name="axis", ref_attr_name="way", type=onnx.AttributeProto.INT)
    )
    twice = function("Twice", [concat], ("way",))
    main = import_model(calling("Twice", [twice], way=1)).mod["main"]
    assert str(main.ret_ty) == 'R.Tensor((2, 6), dtype="float32")'


def test_a_function_of_the_model_comes_before_the_standards() -> None:
    made = model([RELU])
    made.functions.append(
        helper.make_function(
            "", "Relu", ["a"], ["b"], [helper.make_node("Tanh", ["a"], ["b"])], made.opset_import
        )
    )
    assert steps(made) == ["tanh"]


def test_a_function_that_calls_itself_is_refused() -> None:
    own = function("F", [helper.make_node("F", ["a"], ["b"], domain="own")])
    assert refusal(calling("F", [own])) == "the function 'F' calls itself"


def test_functions_that_stand_for_too_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unity_collage.frontend.onnx.graph.MOST_NODES", 1000)

    def twice(number: int) -> onnx.FunctionProto:
        called = f"F{number - 1}" if number else "Relu"
        domain = "own" if number else ""
        nodes = [
            helper.make_node(called, ["a"], ["m"], domain=domain),
            helper.make_node(called, ["m"], ["b"], domain=domain),
        ]
        return function(f"F{number}", nodes)

    assert "more than 1000 nodes" in refusal(calling("F60", [twice(n) for n in range(61)]))


@pytest.mark.parametrize(
    ("opset", "reason"),
    [(99, "the model uses operator set 99; the installed onnx"), (5, "those from 6 on are supported")],
)
def test_operator_sets_that_are_not_known_are_refused(opset: int, reason: str) -> None:
    assert reason in refusal(model([RELU], opset=opset))


def test_a_value_that_nothing_computes_is_refused() -> None:
    assert refusal(model([helper.make_node("Relu", ["q"], ["y"])])) == "no node before computes the value 'q'"


def test_the_error_of_a_type_names_the_node() -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"], name="wrong")
    assert refusal(model([node], weights={"w": np.zeros(5, "float32")})).startswith("Add 'wrong'")
