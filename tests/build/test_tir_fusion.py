"""TIR takes part: PrimFuncs fuse as TVM fuses them, or more, and compute the same; what is final stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
import tvm_ffi
from tir_modules import CASES, RIGHT, Case, floats, module
from tvm import IRModule, ir, relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import unity_collage as uc
from unity_collage.annotations import CANDIDATES, COSTS, DECLINED, PLAN
from unity_collage.passes import AnnotateCandidates, EstimateCosts, FuseRemaining, SearchPartition
from unity_collage.testing.fixed_cost import FixedCost

_KERNELS = ("relax.call_tir", "relax.call_tir_inplace", "relax.call_dps_packed")


def partitioned(mod: IRModule) -> IRModule:
    with uc.host_target():
        passes = [AnnotateCandidates(("tvm",)), EstimateCosts(FixedCost()), SearchPartition()]
        return tvm.transform.Sequential(passes)(mod)


def ours(mod: IRModule) -> IRModule:
    with uc.host_target():
        return FuseRemaining()(partitioned(mod))


def stock(mod: IRModule) -> IRModule:
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
    return tvm.transform.Sequential(passes)(mod)


def kernels(mod: IRModule) -> int:
    """How many calls of kernels ``mod`` has."""
    found: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op) and expr.op.name in _KERNELS:
            found.append(expr.op.name)

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return len(found)


def run(mod: IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    with uc.host_target() as target:
        machine = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())
    result = machine["main"](*map(tvm.runtime.tensor, inputs))
    results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [tensor.numpy() for tensor in results]


def unfused(mod: IRModule) -> IRModule:
    return relax.transform.LegalizeOps()(mod)


def same_loops(first: ir.BaseFunc, second: ir.BaseFunc) -> bool:
    """Whether two PrimFuncs are equal but for their attributes."""
    assert isinstance(first, tirx.PrimFunc) and isinstance(second, tirx.PrimFunc)
    bare = [tirx.PrimFunc(prim.params, prim.body, prim.ret_type) for prim in (first, second)]
    return tvm_ffi.structural_equal(*bare)


@pytest.mark.parametrize("name", [name for name in CASES if name not in RIGHT])
def test_no_more_kernels_than_tvm_and_the_same_numbers(name: str) -> None:
    mod, inputs = CASES[name]()
    mine, theirs = ours(mod), stock(mod)
    assert kernels(mine) <= kernels(theirs)
    for got, right in zip(run(mine, inputs), run(theirs, inputs), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", RIGHT)
def test_what_tvm_does_not_fuse_computes_the_right_numbers(name: str) -> None:
    mod, inputs = CASES[name]()
    with pytest.raises(tvm.error.InternalError, match="Inconsistent buffers"):
        stock(mod)
    np.testing.assert_allclose(run(ours(mod), inputs)[0], RIGHT[name](*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["handwritten", "mixed_indexes"])
def test_a_primfunc_with_32_bit_indexes_fuses_too(name: str) -> None:
    mod, _ = CASES[name]()
    assert kernels(ours(mod)) < kernels(unfused(mod)) == 3


@pytest.mark.parametrize(
    ("name", "binding", "reason"),
    [
        ("scheduled_before", "b", "the PrimFunc swish: it is scheduled already"),
        ("plain_loops", "b", "the PrimFunc swish: its body is not a root block"),
        ("handwritten_with_a_pattern", "b", "the PrimFunc swish is opaque to TVM's fusion"),
        ("in_place", "b", "c changes an operand in place afterwards"),
        ("in_place", "c", "relax.call_tir_inplace has no legalization"),
        ("with_a_packed_call", "c", "relax.call_dps_packed has no legalization"),
        ("grouped_before", "lv", "it calls the function fused_conv2d_add_relu, which is not opened"),
        ("symbolic", "b", "there is no sample of the size n"),
    ],
)
def test_what_stays_as_it_is_has_a_reason(name: str, binding: str, reason: str) -> None:
    plan = PLAN.read(partitioned(CASES[name]()[0])["main"])
    found = [group.reason for group in plan.declined if binding in group.bindings]
    assert any(reason in text for text in found), found


def test_loops_that_are_final_stay_as_they_are() -> None:
    mod, _ = CASES["scheduled_before"]()
    assert same_loops(ours(mod)["swish"], mod["swish"])
    with uc.host_target():
        assert same_loops(FuseRemaining()(mod)["swish"], mod["swish"])


def test_a_group_around_final_loops_keeps_them() -> None:
    """Somebody has put a scheduled PrimFunc in a ``Primitive`` function."""

    @I.ir_module
    class Grouped:
        @T.prim_func(private=True, s_tir=True)
        def swish(x: T.Buffer((T.int64(8),), "float32"), y: T.Buffer((T.int64(8),), "float32")):
            T.func_attr({"tirx.is_scheduled": True})
            for i in T.vectorized(T.int64(8)):
                with T.sblock("swish"):
                    vi = T.axis.remap("S", [i])
                    y[vi] = x[vi] * T.sigmoid(x[vi])

        @R.function(private=True)
        def mine(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Primitive": 1})
            cls = Grouped
            with R.dataflow():
                a = R.call_tir(cls.swish, (x,), out_ty=R.Tensor((8,), "float32"))
                R.output(a)
            return a

        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            cls = Grouped
            with R.dataflow():
                a: R.Tensor((8,), "float32") = cls.mine(x)
                R.output(a)
            return a

    with uc.host_target():
        kernel = FuseRemaining()(Grouped)["mine"]
    assert same_loops(kernel, Grouped["swish"])
    assert kernel.attrs["tirx.is_scheduled"]


def test_what_reads_memory_stays_before_the_call_that_changes_it() -> None:
    """Stock FuseOps computes ``b`` where it is read: behind the call that has changed ``a``."""
    mod, inputs = CASES["in_place"]()
    with uc.host_target():
        got = run(FuseRemaining()(mod), inputs)[0]
    np.testing.assert_allclose(got, RIGHT["in_place"](*inputs), rtol=1e-4, atol=1e-5)


def test_an_opaque_primfunc_is_a_kernel_with_a_cost() -> None:
    mod, _ = CASES["handwritten_with_a_pattern"]()
    assert [kernel.label for kernel in PLAN.read(partitioned(mod)["main"]).kernels] == [
        "negative",
        "swish",
        "abs",
    ]


def _cumulative() -> Case:
    """Handwritten loops whose iterations depend on each other, although their iterators are said to be parallel."""

    @I.ir_module
    class Scan:
        @T.prim_func(private=True, s_tir=True)
        def scan(
            x: T.Buffer((T.int64(4), T.int64(64)), "float32"),
            y: T.Buffer((T.int64(4), T.int64(64)), "float32"),
        ):
            for i, j in T.grid(T.int64(4), T.int64(64)):
                with T.sblock("scan"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = x[vi, vj] + T.if_then_else(
                        vj == T.int64(0), T.float32(0), y[vi, T.max(vj - T.int64(1), T.int64(0))]
                    )

        @R.function
        def main(x: R.Tensor((4, 64), "float32")) -> R.Tensor((4, 64), "float32"):
            cls = Scan
            with R.dataflow():
                a = R.negative(x)
                b = R.call_tir(cls.scan, (a,), out_ty=R.Tensor((4, 64), "float32"))
                c = R.abs(b)
                R.output(c)
            return c

    return Scan, [floats(4, 64)]


def test_loops_that_depend_on_each_other_stay_in_order() -> None:
    mod, inputs = _cumulative()
    np.testing.assert_allclose(
        run(ours(mod), inputs)[0], np.abs(np.cumsum(-inputs[0], axis=1)), rtol=1e-4, atol=1e-5
    )


def test_equal_primfuncs_share_a_kernel_and_others_do_not() -> None:
    """The key of a kernel has the loops of its PrimFuncs, not their names."""

    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        value = x[0]
        for number, factor in enumerate((2.0, 3.0, 2.0)):
            scaled = tvm.te.create_prim_func(_scaled(factor), index_dtype_override="int64")
            gvar = bb.add_func(scaled.without_attr("global_symbol"), f"name{number}")
            value = bb.emit(relax.call_tir(gvar, relax.Tuple([value]), out_ty=x[0].ty))
            value = bb.emit(relax.op.sum(value, [1], keepdims=True))
            value = bb.emit(relax.op.broadcast_to(value, [8, 16]))
        return value

    mod, _ = module(emit, floats(8, 16))
    with uc.host_target():
        annotated = AnnotateCandidates(("tvm",))(mod)
        costed = EstimateCosts(FixedCost())(annotated)
    costs = COSTS.read(costed["main"])
    keys = [
        costs.keys[candidate.id]
        for candidate in CANDIDATES.read(costed["main"])
        if candidate.label.startswith("name") and len(candidate.indexes) == 1
    ]
    assert len(keys) == 3 and keys[0] == keys[2] != keys[1]
    assert not DECLINED.read(annotated["main"])


def _scaled(factor: float) -> list[tvm.te.Tensor]:
    x = tvm.te.placeholder((8, 16), "float32", "x")
    return [x, tvm.te.compute(x.shape, lambda i, j: x[i, j] * factor, name="scaled")]
