"""``call_tir`` in the dataflow graph: kinds, names, signatures, and the order of calls that change memory."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import IRModule, te, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.graph import DataflowGraph, OpKind, Signatures, SubGraph, extract
from unity_collage.graph.extract import PRIM_FUNCS, prim_funcs_of
from unity_collage.graph.prim_funcs import prim_digest, why_not_loops
from unity_collage.reference import run


@I.ir_module
class Model:
    @T.prim_func(private=True, s_tir=True)
    def halved(
        x: T.Buffer((T.int64(4), T.int64(8)), "float32"), y: T.Buffer((T.int64(4), T.int64(8)), "float32")
    ):
        for i, j in T.grid(T.int64(4), T.int64(8)):
            with T.sblock("halved"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.float32(0.5)

    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        cls = Model
        with R.dataflow():
            a = R.exp(x)
            b = R.call_tir(cls.halved, (a,), out_ty=R.Tensor((4, 8), "float32"))
            c = R.tanh(b)
            R.output(c)
        return c


def scaled(factor: float, name: str) -> tirx.PrimFunc:
    x = te.placeholder((4, 8), "float32", "x")
    y = te.compute(x.shape, lambda i, j: x[i, j] * factor, name="y")
    return te.create_prim_func([x, y], index_dtype_override="int64").with_attr("global_symbol", name)


def with_prim(prim: tirx.PrimFunc) -> IRModule:
    return IRModule({**Model.functions, Model.get_global_var("halved"): prim})


def test_a_call_has_the_kind_of_its_primfunc() -> None:
    assert DataflowGraph(Model["main"], Model).kinds == (OpKind.ELEMENTWISE,) * 3
    assert DataflowGraph(Model["main"]).kinds[1] is OpKind.OPAQUE


def test_a_given_kind_wins() -> None:
    given = with_prim(Model["halved"].with_attr("op_pattern", int(OpKind.INJECTIVE)))
    assert DataflowGraph(given["main"], given).kinds[1] is OpKind.INJECTIVE


def test_the_label_is_the_name_of_the_primfunc() -> None:
    assert SubGraph(DataflowGraph(Model["main"], Model), 0b111).label == "exp+halved+tanh"


def test_the_signature_has_the_loops_and_not_the_name() -> None:
    texts = [
        Signatures(DataflowGraph(mod["main"], mod)).text(SubGraph(DataflowGraph(mod["main"], mod), 0b111))
        for mod in map(with_prim, (scaled(2.0, "one"), scaled(2.0, "two"), scaled(3.0, "one")))
    ]
    assert texts[0] == texts[1] != texts[2]
    assert prim_digest(scaled(2.0, "one")) in texts[0]


def test_there_is_no_signature_without_the_primfunc() -> None:
    graph = DataflowGraph(Model["main"])
    with pytest.raises(ValueError, match="halved has no signature"):
        Signatures(graph).text(SubGraph(graph, 0b010))


def test_what_stands_alone_carries_its_primfuncs() -> None:
    alone = extract(SubGraph(DataflowGraph(Model["main"], Model), 0b111), alone=True)
    assert [gvar.name_hint for gvar in prim_funcs_of(alone).get_global_vars()] == ["tir0"]
    x = np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8)
    (got,) = run(alone, [x], prim_funcs_of(alone))
    np.testing.assert_allclose(got, np.tanh(np.exp(x) / 2), rtol=1e-6)
    assert PRIM_FUNCS not in (
        extract(SubGraph(DataflowGraph(Model["main"], Model), 0b001), alone=True).attrs or {}
    )


@I.ir_module
class Kernels:
    @T.prim_func(private=True, s_tir=True)
    def strided(a: T.handle, y: T.Buffer((T.int64(4),), "float32")):
        x = T.match_buffer(a, (T.int64(4),), "float32", strides=(T.int64(2),))
        for i in range(T.int64(4)):
            with T.sblock("strided"):
                vi = T.axis.remap("S", [i])
                y[vi] = x[vi]

    @T.prim_func(private=True, s_tir=True)
    def printing(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
        for i in range(T.int64(4)):
            with T.sblock("printing"):
                vi = T.axis.remap("S", [i])
                y[vi] = T.call_extern("float32", "printed", x[vi])


@pytest.mark.parametrize(
    ("name", "reason"),
    [("strided", "not plain memory in row-major order"), ("printing", "which may have effects")],
)
def test_loops_that_cannot_be_fused_have_a_reason(name: str, reason: str) -> None:
    assert reason in (why_not_loops(Kernels[name]) or "")


@I.ir_module
class InPlace:
    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("grown"):
                vi = T.axis.remap("S", [i])
                x[vi] = x[vi] * T.float32(3)

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        cls = InPlace
        with R.dataflow():
            a = R.exp(x)
            v = R.reshape(a, (2, 4))
            b = R.negative(v)
            c = R.call_tir_inplace(cls.grown, (a,), inplace_indices=[0], out_ty=R.Tensor((8,), "float32"))
            d = R.reshape(b, (8,))
            e = R.add(c, d)
            R.output(e)
        return e


def test_readers_of_memory_come_before_its_change() -> None:
    graph = DataflowGraph(InPlace["main"], InPlace)
    node = {node.var.name: node for node in graph.nodes}
    assert {graph.nodes[i].var.name for i in node["c"].inputs} == {"a", "v", "b"}
    assert node["b"].index < node["c"].index
    assert (node["b"].changed_by, node["v"].changed_by, node["d"].changed_by) == ("c", "c", "")


def test_memory_is_changed_under_all_its_names() -> None:
    graph = DataflowGraph(InPlace["main"], InPlace)
    changed = {node.var.name: graph.changed_memory.has(node.var) for node in graph.nodes}
    assert changed == {"a": True, "v": True, "b": False, "c": True, "d": False, "e": False}
