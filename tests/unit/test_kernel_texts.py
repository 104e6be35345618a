"""The texts of kernels in an explanation: equal ones once, constants left out, long ones shortened."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.annotations import EXTERNAL_MODS, LABEL
from unity_collage.lowering.kernel_texts import script_of, with_scripts, with_sources
from unity_collage.plan.explanation import (
    ExplainedBinding,
    ExplainedCandidate,
    ExplainedCost,
    ExplainedKernel,
    Explanation,
    Proof,
    Verdict,
)
from unity_collage.plan.plan import Plan, PlannedKernel

WEIGHT = np.arange(64, dtype="float32").reshape(8, 8)


@I.ir_module
class Final:
    @T.prim_func(private=True)
    def loops(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            y[i, j] = x[i, j] + T.float32(1)


def product(name: str) -> relax.Function:
    """A product with a constant, whose result has this name."""
    x = relax.Var("x", R.Tensor((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("f", [x], private=True):
        result = relax.Var(name, R.Tensor((4, 8), "float32"))
        builder.emit_normalized(
            relax.VarBinding(result, builder.normalize(relax.op.matmul(x, relax.const(WEIGHT))))
        )
        builder.emit_func_output(result)
    return builder.get()["f"].with_attr(LABEL, "matmul")


def explained() -> Explanation:
    """Two products that are equal, and a kernel of TVM."""
    kinds = (("onednn", "matmul", 0), ("onednn", "matmul", 0), ("tvm", "add", 1))
    return Explanation(
        Proof(3.0, 3.0, 0.0, True, "exact"),
        tuple(ExplainedBinding(f"v{number}", "op", "") for number in range(3)),
        tuple(ExplainedKernel(number, f"f{number}") for number in range(3)),
        tuple(
            ExplainedCandidate(number, backend, "r", label, (number,), cost, Verdict.CHOSEN)
            for number, (backend, label, cost) in enumerate(kinds)
        ),
        (ExplainedCost("a", 1.0), ExplainedCost("b", 1.0)),
    )


def plan(*functions: str) -> Plan:
    kinds = (("onednn", "matmul"), ("onednn", "matmul"), ("tvm", "add"))
    return Plan(
        tuple(
            PlannedKernel(number, *kinds[number], function, (f"v{number}",), 1.0)
            for number, function in enumerate(functions)
        )
    )


def test_equal_kernels_share_the_script_of_the_first() -> None:
    found = with_scripts(explained(), {"f0": product("first"), "f1": product("second")})
    assert [kernel.script for kernel in found.kernels] == [0, 0, None]
    (text,) = found.texts
    assert "R.matmul(x, metadata[" in text and "first" in text and "second" not in text
    assert "63" not in text and "collage." not in text


def test_a_kernel_of_tvm_has_the_loops_that_run_and_a_library_has_none() -> None:
    found = with_sources(explained(), plan("f0", "f1", "loops"), Final)
    assert [kernel.source for kernel in found.kernels] == [None, None, 0]
    assert "y[i, j] = x[i, j] + T.float32(1" in found.texts[0]


def test_a_kernel_that_the_program_does_not_have_gets_no_loops_of_another() -> None:
    other = plan("f0", "f1", "loops")
    other = replace(other, kernels=(*other.kernels[:2], replace(other.kernels[2], bindings=("v1", "v2"))))
    assert with_sources(explained(), other, Final) == explained()


def test_a_kernel_in_c_has_its_source() -> None:
    source = "int f1(float* x) {\n  return 0;\n}"
    module = tvm.get_global_func("runtime.CSourceModuleCreate")(source, "c", ["f1"], [])
    found = with_sources(
        explained(), plan("f0", "f1", "loops"), IRModule({}).with_attr(EXTERNAL_MODS, [module])
    )
    assert [kernel.source for kernel in found.kernels] == [None, 0, None]
    assert found.texts == (source,)


def test_long_lines_and_long_texts_are_shortened() -> None:
    x = relax.Var("x", R.Tensor((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("f", [x], private=True):
        value: relax.Expr = x
        for _ in range(500):
            value = builder.emit(relax.op.exp(value), name_hint="long" * 150)
        builder.emit_func_output(value)
    lines = script_of(builder.get()["f"]).splitlines()
    assert lines[-1].startswith("# ") and lines[-1].endswith(" more lines are not shown")
    assert len(lines) == 401
    assert max(map(len, lines)) < 410
