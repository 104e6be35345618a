"""Kernels with PrimFuncs get a measured cost, also where numpy has no reference for their loops."""

from __future__ import annotations

import numpy as np
from compiled import arrays, compiled
from tvm import IRModule, relax, te
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import unity_collage as uc
from unity_collage.annotations import CANDIDATES, COSTS, DECLINED
from unity_collage.cost.method import Method
from unity_collage.measure.measured import MeasuredCost
from unity_collage.passes import AnnotateCandidates, EstimateCosts

QUICK = Method(min_runs=3, max_runs=3, max_warmup_seconds=0.0, max_seconds=60.0)


def emitted() -> IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 16), "float32"))
    at = relax.Var("at", relax.TensorType((5,), "int64"))
    with builder.function("main", [x, at]):
        with builder.dataflow():
            a = builder.emit(relax.op.nn.relu(x))
            rows = builder.emit_te(
                lambda t, i: te.compute((5, 16), lambda r, c: t[i[r], c] * 2.0),
                a,
                at,
                primfunc_name_hint="rows",
            )
            result = builder.emit_output(builder.emit(relax.op.tanh(rows)))
        builder.emit_func_output(result)
    return builder.get()


@I.ir_module
class Handwritten:
    @T.prim_func(private=True, s_tir=True)
    def leaky(x: T.Buffer((8, 16), "float32"), y: T.Buffer((8, 16), "float32")):
        for i, j in T.grid(8, 16):
            with T.sblock("leaky"):
                vi, vj = T.axis.remap("SS", [i, j])
                if x[vi, vj] > T.float32(0):
                    y[vi, vj] = x[vi, vj]
                else:
                    y[vi, vj] = x[vi, vj] * T.float32(0.1)

    @R.function
    def main(x: R.Tensor((8, 16), "float32")) -> R.Tensor((8, 16), "float32"):
        cls = Handwritten
        with R.dataflow():
            a = R.negative(x)
            b = R.call_tir(cls.leaky, (a,), out_ty=R.Tensor((8, 16), "float32"))
            c = R.abs(b)
            R.output(c)
        return c


def test_every_candidate_with_a_primfunc_has_a_measured_cost(tmp_path) -> None:
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    with uc.host_target(), MeasuredCost(database, method=QUICK) as model:
        for mod, name in ((emitted(), "rows"), (Handwritten, "leaky")):
            func = EstimateCosts(model)(AnnotateCandidates(("onednn", "tvm"))(mod))["main"]
            costs = COSTS.read(func)
            labels = [candidate.label for candidate in CANDIDATES.read(func)]
            assert any(name in label for label in labels)
            assert {
                label: costs.of(i).reason for i, label in enumerate(labels) if not costs.of(i).seconds
            } == {}
    assert not database.quarantine_entries()


def test_the_plan_explains_what_a_primfunc_is_in() -> None:
    program = compiled(Handwritten, ["tvm"])
    x = np.random.default_rng(0).standard_normal((8, 16), dtype="float32")
    right = np.abs(np.where(-x > 0, -x, -x * np.float32(0.1)))
    np.testing.assert_allclose(arrays(program(x)), right, rtol=1e-6)
    assert [kernel.label for kernel in program.plan["main"].kernels] == ["negative+leaky+abs"]


def test_no_library_is_offered_a_primfunc() -> None:
    with uc.host_target():
        func = AnnotateCandidates(("onednn", "tvm"))(Handwritten)["main"]
    assert all(c.backend == "tvm" for c in CANDIDATES.read(func) if 1 in c.indexes)
    assert not [d for d in DECLINED.read(func) if d.backend == "tvm"]
