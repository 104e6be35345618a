"""Cones with several results inside, and chains that are longer than a cone."""

from __future__ import annotations

from rule_checks import found, reasons
from tvm import relax

from unity_collage.graph import DataflowGraph
from unity_collage.rules import FusionCone, WholeCones


def gated(*, apart: bool = False) -> relax.Function:
    """value * sigmoid(gate) of a split tensor; ``apart``: the gate is a result too."""
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            both = builder.emit(relax.op.split(x, 2, axis=1))
            value, gate = builder.emit(relax.TupleGetItem(both, 0)), builder.emit(relax.TupleGetItem(both, 1))
            product = builder.emit(relax.op.multiply(value, builder.emit(relax.op.sigmoid(gate))))
            results = [builder.emit_output(result) for result in ((product, gate) if apart else (product,))]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return builder.get()["main"]


def chain(length: int) -> relax.Function:
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for number in range(length):
                value = builder.emit(relax.op.sin(value) if number % 2 else relax.op.tanh(value))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    return builder.get()["main"]


def test_an_operator_joins_with_all_its_results() -> None:
    ops = [node.op.removeprefix("relax.") for node in DataflowGraph(gated()).nodes]
    assert ops == ["split", "getitem", "sigmoid", "getitem", "multiply", "var"]
    assert found(FusionCone(), gated()) == ["{0..4}", "{0}", "{2,4}", "{2}", "{4}"]
    assert reasons(FusionCone(), gated()) == []


def test_results_that_are_read_elsewhere_stay_apart() -> None:
    graph = DataflowGraph(gated(apart=True))
    split = next(node.index for node in graph.nodes if node.op == "relax.split")
    joined = [
        each for each in FusionCone().apply(graph) if hasattr(each, "inside") and each.inside >> split & 1
    ]
    assert [each.inside for each in joined] == [1 << split]


def test_a_chain_longer_than_a_cone_is_one_more_proposal() -> None:
    assert found(WholeCones(), chain(8)) == []
    assert found(WholeCones(), chain(20)) == ["{0..19}"]
    assert found(WholeCones(max_size=10), chain(25)) == ["{15..24}", "{5..14}"]


def test_a_chain_of_a_cone_is_no_second_proposal() -> None:
    assert "{0..7}" in found(FusionCone(), chain(8))
