"""The dataflow view: indexes, borders, validity, extraction, signatures."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage import reference
from unity_collage.annotations import LIFTED
from unity_collage.graph import DataflowGraph, Limits, OpKind, Signatures, SubGraph, extract, index_set
from unity_collage.index_set import members, to_text
from unity_collage.lowering.outline import Group, NameSupply, global_var, outline
from unity_collage.testing import graphs


def test_index_sets_print_runs_as_ranges() -> None:
    assert to_text(index_set((1, 3, 4, 5, 7, 8))) == "{1,3..5,7,8}"
    assert list(members(0b1010)) == [1, 3]


def test_a_chain_is_numbered_consecutively_whatever_the_order_of_the_bindings() -> None:
    @R.function
    def func(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(x)
            c = R.tanh(a)
            d = R.abs(b)
            e = R.add(c, d)
            R.output(e)
        return e

    graph = DataflowGraph(func)
    assert [node.var.name for node in graph.nodes] == ["a", "c", "b", "d", "e"]
    assert [node.inputs for node in graph.nodes] == [(), (0,), (), (2,), (1, 3)]
    assert graph.results == 1 << 4


@pytest.mark.parametrize("name", sorted(graphs.GRAPHS))
def test_producers_come_before_consumers(name: str) -> None:
    graph = DataflowGraph(graphs.GRAPHS[name]())
    for node in graph.nodes:
        assert all(source < node.index for source in node.inputs)


def test_kinds_are_those_of_the_legalized_kernels() -> None:
    @R.function
    def func(x: R.Tensor((1, 4, 8, 8), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")) -> R.Object:
        with R.dataflow():
            a = R.nn.conv2d(x, w)
            b = R.nn.relu(a)
            c = R.add(b, w)
            d = R.permute_dims(c)
            e = R.nn.softmax(d)
            f = R.sum(e)
            g = R.call_pure_packed("testing.opaque", f, ty_args=R.Tensor((), "float32"))
            R.output(g)
        return g

    assert DataflowGraph(func).kinds == (
        OpKind.OUT_EWISE_FUSABLE,
        OpKind.ELEMENTWISE,
        OpKind.BROADCAST,
        OpKind.INJECTIVE,
        OpKind.REDUCTION,
        OpKind.REDUCTION,
        OpKind.OPAQUE,
    )


def test_borders_of_a_tapped_sub_graph() -> None:
    graph = DataflowGraph(graphs.diamond_with_tap())  # 0 relu, 1 exp, 2 add(exp, relu)
    sub = SubGraph(graph, index_set((0, 1)))
    assert (sub.entry, sub.exit, sub.input, sub.output) == (0b001, 0b011, 0, 0b100)
    assert (sub.depth, sub.label, sub.kind) == (2, "relu+exp", OpKind.ELEMENTWISE)


@pytest.mark.parametrize(
    ("graph", "inside", "limits", "reason"),
    [
        (graphs.chain(), (0, 1), Limits(), None),
        (graphs.chain(), (0, 2), Limits(max_exits=2), "not convex: "),
        (graphs.chain(), (0, 1, 2), Limits(max_depth=2), "depth 3, at most 2 allowed"),
        (graphs.diamond(), (1, 2), Limits(), "2 exits {1,2}, at most 1 allowed"),
        (graphs.diamond(), (1, 2), Limits(max_exits=2), None),
        (graphs.diamond_with_tap(), (0, 1), Limits(max_exits=2), "tap: "),
        (graphs.diamond_with_tap(), (0, 1), Limits(max_exits=2, allow_taps=True), None),
        (graphs.diamond_with_tap(), (0, 2), Limits(max_exits=2, allow_taps=True), "not convex: "),
    ],
)
def test_validity_names_the_condition(
    graph: relax.Function, inside: tuple[int, ...], limits: Limits, reason: str | None
) -> None:
    why = SubGraph(DataflowGraph(graph), index_set(inside)).why_not_valid(limits)
    assert (why is None) if reason is None else (why is not None and reason in why)


def test_an_operand_that_is_read_twice_is_one_parameter() -> None:
    @R.function
    def func(x: R.Tensor((3, 3), "float32")) -> R.Tensor((3, 3), "float32"):
        with R.dataflow():
            a = R.matmul(x, x)
            R.output(a)
        return a

    assert len(extract(SubGraph(DataflowGraph(func), 1)).params) == 1


def test_extraction_lifts_large_constants_and_keeps_scalars() -> None:
    weights = relax.const(np.ones((16, 4), "float32"))

    @R.function
    def func(x: R.Tensor((2, 16), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            a = R.matmul(x, weights)
            b = R.maximum(a, R.const(0.5, "float32"))
            R.output(b)
        return b

    lifted = extract(SubGraph(DataflowGraph(func), 0b11), lift_constants=True)
    assert [param.name for param in lifted.params] == ["x", "c0"]
    assert int(lifted.attrs[LIFTED]) == 1


def test_several_exits_are_a_tuple_in_index_order() -> None:
    func = extract(SubGraph(DataflowGraph(graphs.tuple_result()), 0b11))
    x = np.linspace(-1, 1, 64, dtype="float32").reshape(graphs.SHAPE)
    relu, exp = reference.run(func, [x])
    np.testing.assert_allclose(exp, np.exp(relu), rtol=1e-6)


def _two_equal_convolutions(weight: float) -> relax.Function:
    kernels = [relax.const(np.full((4, 4, 1, 1), weight + i, "float32")) for i in range(2)]
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(R.nn.conv2d(x, kernels[0]))
            second = builder.emit_output(R.nn.conv2d(first, kernels[1]))
        builder.emit_func_output(second)
    return builder.get()["main"]


def test_equal_layers_with_other_weights_have_one_signature() -> None:
    graph = DataflowGraph(_two_equal_convolutions(1.0))
    signatures = Signatures(graph)
    assert signatures.digest(SubGraph(graph, 0b01)) == signatures.digest(SubGraph(graph, 0b10))
    assert signatures.digest(SubGraph(graph, 0b01)) != signatures.digest(SubGraph(graph, 0b11))


def test_one_constant_read_twice_is_not_two_constants() -> None:
    """They are lifted to one parameter or to two, so they must not share a function."""

    def signature(first: relax.Expr, second: relax.Expr) -> str:
        x = relax.Var("x", relax.TensorType((4,), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                scaled = builder.emit(R.multiply(x, first))
                result = builder.emit_output(R.add(scaled, second))
            builder.emit_func_output(result)
        graph = DataflowGraph(builder.get()["main"])
        return Signatures(graph).digest(SubGraph(graph, 0b11))

    a, b, c = (relax.const(np.full(4, value, "float32")) for value in (1, 2, 3))
    assert signature(a, b) == signature(b, c)
    assert signature(a, a) == signature(b, b) != signature(a, b)


def test_a_scalar_constant_is_part_of_the_signature() -> None:
    def scaled(factor: float) -> str:
        x = relax.Var("x", relax.TensorType((4,), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                result = builder.emit_output(R.multiply(x, relax.const(factor, "float32")))
            builder.emit_func_output(result)
        graph = DataflowGraph(builder.get()["main"])
        return Signatures(graph).digest(SubGraph(graph, 1))

    assert scaled(2.0) == scaled(2.0) != scaled(3.0)


def test_outlining_keeps_the_numbers_and_orders_the_calls() -> None:
    """{relu, tanh} and {exp} of a diamond: the group is called before add, after nothing."""
    func = graphs.diamond()
    graph = DataflowGraph(func)
    inside = index_set((0, 1, 2))
    sub = SubGraph(graph, inside)
    callee = extract(sub)
    gvar = global_var("fused", callee)
    result = outline(graph, [Group(sub, gvar, (func.params[0],))])
    mod = relax.transform.Normalize()(IRModule({"main": result, gvar: callee}))
    assert relax.analysis.check_well_formed(mod)
    assert [b.value.op.name_hint for b in mod["main"].body.blocks[0].bindings if _calls_global(b)] == [
        "fused"
    ]


def _calls_global(binding: relax.Binding) -> bool:
    return isinstance(binding.value, relax.Call) and isinstance(binding.value.op, relax.GlobalVar)


def test_names_avoid_functions_and_external_symbols() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                a = R.call_dps_packed("kernel", x, out_ty=R.Tensor((2,), "float32"))
                R.output(a)
            return a

    names = NameSupply(Module)
    assert names.fresh("main") == "main_1"
    assert names.fresh("kernel") == "kernel_1"
    assert names.fresh("conv2d+relu") == "conv2d_relu"


def test_bindings_of_if_branches_count_as_reads() -> None:
    @R.function
    def func(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2,), "float32"):
        a = R.nn.relu(x)
        if c:
            b = R.exp(a)
        else:
            b = R.tanh(a)
        return b

    graph = DataflowGraph(func)
    assert [node.op for node in graph.nodes] == ["relax.nn.relu", "if"]
    assert graph.nodes[1].inputs == (0,)
