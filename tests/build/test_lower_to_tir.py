"""Backends that lower to TIR: their PrimFuncs are measured, and are the kernels of the program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tir_modules import floats, module
from tvm import IRModule, relax, te, tirx

import unity_collage as uc
from unity_collage.annotations import CANDIDATES, DECLINED, PLAN
from unity_collage.backends.base import Backend
from unity_collage.errors import NoPlan
from unity_collage.graph import DataflowGraph
from unity_collage.lowering.outlined import kernel_function
from unity_collage.measure.inputs import random_inputs
from unity_collage.measure.judge import trials
from unity_collage.measure.kernels import NoKernel, build_kernel, output_tensors
from unity_collage.passes import (
    AnnotateCandidates,
    EstimateCosts,
    FuseRemaining,
    OffloadBYOC,
    SearchPartition,
)
from unity_collage.rules import OpCallByKind
from unity_collage.testing.conformance import CHECKS, CheckState, examine
from unity_collage.testing.fake_backend import only_backends
from unity_collage.testing.fixed_cost import FixedCost
from unity_collage.testing.tir_backend import IN_TIR, SOFTMAX, UNIT_ROWS

X = floats(8, 16)


def attention_like() -> IRModule:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        a = bb.emit(relax.op.exp(x[0]))
        energy = bb.emit(relax.op.sum(bb.emit(relax.op.multiply(a, a)), [1], keepdims=True))
        return bb.emit(relax.op.nn.softmax(bb.emit(relax.op.divide(a, bb.emit(relax.op.sqrt(energy))))))

    return module(emit, X)[0]


def right(x: np.ndarray) -> np.ndarray:
    a = np.exp(x.astype("float64"))
    e = np.exp(a / np.sqrt((a * a).sum(1, keepdims=True)))
    return e / e.sum(1, keepdims=True)


@pytest.fixture
def in_tir() -> Iterator[None]:
    with only_backends(IN_TIR):
        yield


def partitioned(mod: IRModule, **costs: float) -> IRModule:
    with uc.host_target():
        passes = [AnnotateCandidates(), EstimateCosts(FixedCost(costs)), SearchPartition(), OffloadBYOC()]
        return tvm.transform.Sequential(passes)(mod)


@pytest.mark.usefixtures("in_tir")
def test_its_primfuncs_are_the_kernels_of_the_program() -> None:
    mod = partitioned(attention_like(), in_tir=1e-6, tvm=3e-6)
    kernels = PLAN.read(mod["main"]).kernels
    assert [(kernel.backend, kernel.label) for kernel in kernels] == [
        ("tvm", "exp"),
        ("in_tir", UNIT_ROWS),
        ("in_tir", SOFTMAX),
    ]
    with uc.host_target() as target:
        done = FuseRemaining()(mod)
        machine = relax.VirtualMachine(relax.build(done, target), tvm.cpu())
    np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(X)).numpy(), right(X), rtol=1e-5)


@pytest.mark.usefixtures("in_tir")
def test_its_own_loops_stay_and_others_are_scheduled() -> None:
    mod = partitioned(attention_like(), in_tir=1e-6, tvm=3e-6)
    with uc.host_target():
        done = FuseRemaining()(mod)
    named = {gvar.name_hint: func for gvar, func in done.functions_items()}
    softmax, unit_rows = (named[kernel.function] for kernel in PLAN.read(mod["main"]).kernels[:0:-1])
    assert "T.parallel(T.int64(8))" in softmax.script() and "T.vectorized" not in softmax.script()
    assert "T.vectorized" in unit_rows.script()


@pytest.mark.usefixtures("in_tir")
@pytest.mark.parametrize("label", [SOFTMAX, UNIT_ROWS])
def test_what_is_measured_is_its_primfunc(label: str) -> None:
    with uc.host_target() as target:
        mod = AnnotateCandidates()(attention_like())
        graph = DataflowGraph(mod["main"], mod)
        candidate = next(c for c in CANDIDATES.read(mod["main"]) if c.label == label)
        func = kernel_function(graph, candidate, lift_constants=True)
        arrays = random_inputs(func)
        kernel, constants = build_kernel(func, arrays, IN_TIR, target)
        outputs = output_tensors(func)
        kernel(*map(tvm.runtime.tensor, arrays), *constants, *outputs)
    np.testing.assert_allclose(outputs[0].numpy(), trials(func)[0].expected[0], rtol=1e-5)


def _lowering(answer: object) -> Backend:
    return replace(IN_TIR, lower_to_tir=lambda func: answer)


def _copy(*shape: int) -> tirx.PrimFunc:
    x = te.placeholder(shape, "float32", "x")
    return te.create_prim_func([x, te.compute(shape, lambda *i: x(*i))], index_dtype_override="int64")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("it is Tuesday", "it is Tuesday"),
        (_copy(8, 4), r"x is float32 \(8, 4\), not float32 \(8, 16\)"),
        (tirx.PrimFunc([], tirx.Evaluate(0)), "it has 0 parameters, not 2"),
    ],
)
def test_a_refusal_to_lower_is_the_reason(answer: object, reason: str) -> None:
    backend = _lowering(answer)
    with only_backends(backend), uc.host_target() as target:
        mod = AnnotateCandidates()(attention_like())
        candidate = next(c for c in CANDIDATES.read(mod["main"]) if c.label == SOFTMAX)
        func = kernel_function(DataflowGraph(mod["main"], mod), candidate, lift_constants=True)
        with pytest.raises(NoKernel, match=reason):
            build_kernel(func, random_inputs(func), backend, target)
        with pytest.raises(NoPlan, match=reason):
            partitioned(attention_like(), in_tir=1e-6, tvm=3e-6)


def test_only_code_generators_do_not_get_primfuncs() -> None:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        return bb.emit_te(
            lambda t: te.compute(t.shape, lambda *i: t(*i) * 2.0), x[0], primfunc_name_hint="twice"
        )

    mod, _ = module(emit, X)
    takes_all = replace(IN_TIR, rule=lambda target: OpCallByKind())
    library = replace(takes_all, lower_to_tir=None, codegen=lambda functions, options, names: [])
    for backend, reason in (
        (takes_all, None),
        (library, "twice is a PrimFunc, which the code generator does not get"),
    ):
        with only_backends(backend), uc.host_target():
            func = AnnotateCandidates()(mod)["main"]
        found = [c.label for c in CANDIDATES.read(func) if c.backend == "in_tir"]
        assert found == (["twice"] if reason is None else [])
        assert [d.reason for d in DECLINED.read(func) if d.backend == "in_tir"] == (
            [] if reason is None else [reason]
        )


def test_it_keeps_the_promises_of_a_backend() -> None:
    """In a worker process: its kernels are made, checked and exported like those of others."""
    report = examine("unity_collage.testing.tir_backend:IN_TIR")
    assert [verdict.check for verdict in report.failed] == []
    skipped = {check for check in CHECKS if report[check].state is CheckState.SKIPPED}
    assert skipped == {"outputs", "constants", "together", "errors"}
