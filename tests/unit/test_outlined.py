"""Outlined functions: what a code generator gets, with one part, several, and operators in none."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FusionPattern
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.annotations import LIFTED
from unity_collage.graph import DataflowGraph, Signatures
from unity_collage.lowering.apply import applied
from unity_collage.lowering.outline import NameSupply
from unity_collage.lowering.outlined import external_function, kernel_digest, kernel_function
from unity_collage.plan.candidate import Candidate
from unity_collage.testing import graphs


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            c = R.tanh(b)
            d = R.abs(c)
            R.output(d)
        return d


@I.ir_module
class WithLooseOperator:
    @R.function
    def kernel(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        R.func_attr({"Codegen": "toy"})

        @R.function
        def composite0(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            R.func_attr({"Composite": "toy.relu_exp"})
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.exp(a)
                R.output(b)
            return b

        b: R.Tensor((4, 16), "float32") = composite0(x)
        c: R.Tensor((4, 16), "float32") = R.tanh(b)

        @R.function
        def composite1(c: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            R.func_attr({"Composite": "toy.abs"})
            with R.dataflow():
                d = R.abs(c)
                R.output(d)
            return d

        d: R.Tensor((4, 16), "float32") = composite1(c)
        return d


def outlined(func: relax.Function, candidate: Candidate) -> relax.Function:
    inner = kernel_function(DataflowGraph(func), candidate)
    return external_function(inner, candidate.backend, candidate.label, "kernel")


def kernel(indexes: tuple[int, ...], *parts: tuple[str, tuple[int, ...]], **more) -> Candidate:
    return Candidate(0, "toy", "typed", "label", indexes, composites=parts, **more)


def single(name: str, *ops: str) -> FusionPattern:
    pattern = wildcard()
    for op in ops:
        pattern = is_op(op)(pattern)
    return FusionPattern(name, pattern)


def test_parts_are_composite_functions_and_the_rest_is_called_directly() -> None:
    candidate = kernel((0, 1, 2, 3), ("toy.relu_exp", (0, 1)), ("toy.abs", (3,)))
    tvm.ir.assert_structural_equal(outlined(Chain["main"], candidate), WithLooseOperator["kernel"])


def test_several_parts_look_as_merge_composite_functions_leaves_them() -> None:
    patterns = [
        single("toy.relu_exp", "relax.nn.relu", "relax.exp"),
        single("toy.abs_tanh", "relax.tanh", "relax.abs"),
    ]
    fused = relax.transform.FuseOpsByPattern(patterns)(Chain)
    merged = relax.transform.MergeCompositeFunctions()(fused)
    (stock,) = [f for f in merged.functions.values() if "Codegen" in (f.attrs or {})]
    ours = outlined(Chain["main"], kernel((0, 1, 2, 3), ("toy.relu_exp", (0, 1)), ("toy.abs_tanh", (2, 3))))
    tvm.ir.assert_structural_equal(ours.without_attr("global_symbol"), stock.without_attr("global_symbol"))


def test_parts_are_called_in_an_order_in_which_they_can_run() -> None:
    """Listed in the other order, the parts of a diamond still run producer first."""
    func = graphs.diamond()
    index = {node.op: node.index for node in DataflowGraph(func).nodes}
    relu, exp, tanh, add = (index[f"relax.{op}"] for op in ("nn.relu", "exp", "tanh", "add"))
    candidate = kernel((0, 1, 2, 3), ("toy.join", (add,)), ("toy.split", tuple(sorted((relu, exp)))))
    got = outlined(func, candidate)
    named = [binding.var.name for block in got.body.blocks for binding in block.bindings]
    assert named.index("composite1") < named.index("composite0")
    assert relax.analysis.check_well_formed(IRModule({"kernel": got}))
    assert tanh in candidate.indexes and not any("tanh" in str(f.attrs) for f in local_functions(got))


def test_a_part_with_two_exits_returns_both() -> None:
    """relu of exp(relu(x)) + relu(x) is read by the part's own exp and by the loose add."""
    func = graphs.diamond_with_tap()
    got = outlined(func, kernel((0, 1, 2), ("toy.relu_exp", (0, 1))))
    (composite,) = local_functions(got)
    assert isinstance(composite.ret_ty, relax.TupleType) and len(composite.ret_ty.fields) == 2
    assert relax.analysis.check_well_formed(IRModule({"kernel": got}))


def test_one_part_over_all_is_named_by_the_backend_and_the_label() -> None:
    (composite,) = local_functions(outlined(Chain["main"], kernel((0, 1))))
    assert composite.attrs["Composite"] == "toy.label"


def test_parts_are_part_of_the_question() -> None:
    graph = DataflowGraph(Chain["main"])
    signatures = Signatures(graph)
    whole, parts = kernel((0, 1)), kernel((0, 1), ("toy.relu", (0,)), ("toy.exp", (1,)))
    other = kernel((0, 1), ("toy.relu", (0,)), ("toy.exp_fast", (1,)))
    digests = {kernel_digest(signatures, graph, candidate) for candidate in (whole, parts, other)}
    assert len(digests) == 3
    sub = whole.sub_graph(graph)
    assert kernel_digest(signatures, graph, replace(whole, label=sub.label)) == signatures.digest(sub)


@pytest.mark.parametrize("lift_constants", [False, True])
def test_parts_are_found_again_after_constants_are_bound(lift_constants: bool) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    weight = relax.const([1.0, 2.0, 3.0, 4.0], "float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            scaled = builder.emit(R.multiply(x, weight))
            result = builder.emit_output(R.nn.relu(scaled))
        builder.emit_func_output(result)
    candidate = kernel((0, 1), ("toy.scale", (0,)), ("toy.relu", (1,)))
    inner = kernel_function(DataflowGraph(builder.get()["main"]), candidate, lift_constants=lift_constants)
    if lift_constants:
        inner = inner.without_attr(LIFTED).bind_params({inner.params[1]: weight})
    got = external_function(inner, "toy", "label", "kernel")
    assert [f.attrs["Composite"] for f in local_functions(got)] == ["toy.scale", "toy.relu"]
    assert len(got.params) == 1


def local_functions(func: relax.Function) -> list[relax.Function]:
    values = [binding.value for block in func.body.blocks for binding in block.bindings]
    return [value for value in values if isinstance(value, relax.Function)]


def test_a_kernel_has_its_own_name_when_it_is_measured_alone() -> None:
    """A code generator may go by the name of the composite: the worker knows only the function."""
    inner = kernel_function(DataflowGraph(graphs.chain()), kernel((0, 1)), lift_constants=True)
    costed = external_function(inner.without_attr(LIFTED), "toy", "candidate", "candidate")
    assert [f.attrs["Composite"] for f in local_functions(costed)] == ["toy.label"]


@pytest.mark.parametrize(("slope", "kernels"), [(0.1234561, 1), (0.1234562, 2)])
def test_operators_that_differ_in_the_seventh_digit_are_two_kernels(slope: float, kernels: int) -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(R.nn.leakyrelu(builder.emit(R.nn.leakyrelu(x, 0.1234561)), slope))
        builder.emit_func_output(y)
    graph = DataflowGraph(builder.get()["main"])
    chosen = [Candidate(i, "tvm", "cone", "leakyrelu", (i,)) for i in range(2)]
    assert len(applied(graph, chosen, NameSupply(builder.get()))[2]) == kernels
