"""Modules whose values have hints, or no place at all beside others, are planned by ``compile`` and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.devices.planning import why_planned
from unity_collage.errors import CollageError
from unity_collage.passes import PlanDevices

WEIGHTS = np.random.default_rng(0).standard_normal((16, 16), "float32") / 4
X = np.random.default_rng(1).standard_normal((4, 16), "float32")


@I.ir_module
class Hinted:
    """Nothing but a hint says where values are; a constant is computed and read on the second device."""

    @R.function(private=True)
    def product(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        with R.dataflow():
            y = R.matmul(x, R.const(WEIGHTS))
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((4, 16), "float32")):
        cls = Hinted
        with R.dataflow():
            a = R.nn.relu(x)
            h = R.hint_on_device(a, tvm.cpu(1))
            b = R.exp(h)
            p = cls.product(b)
            c = R.add(R.const(X), R.const(X))
            d = R.add(p, c)
            R.output(a, d, c)
        return (a, d, c)


@I.ir_module
class HalfPlaced:
    """One value says where it is, and the others say nothing."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0"), w: R.Tensor((16, 16), "float32")):
        with R.dataflow():
            a = R.to_vdevice(x, "llvm:1")
            b = R.matmul(a, w)
            R.output(b)
        return b


@I.ir_module
class Disagreeing:
    @R.function
    def main(x: R.Tensor((4, 16), "float32"), y: R.Tensor((4, 16), "float32")):
        with R.dataflow():
            a = R.hint_on_device(x, tvm.cpu(0))
            b = R.hint_on_device(y, tvm.cpu(1))
            c = R.add(a, b)
            R.output(c)
        return c


def images(hinted: bool) -> IRModule:
    """Convolutions, whose types TVM infers without a device, behind a hint."""
    kernel = relax.const(np.full((8, 4, 3, 3), 0.01, "float32"))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            there = builder.emit(relax.op.hint_on_device(x, tvm.cpu(1))) if hinted else x
            convolved = builder.emit(relax.op.nn.conv2d(there, kernel))
            pooled = builder.emit(relax.op.nn.max_pool2d(builder.emit(relax.op.nn.relu(convolved)), (2, 2)))
            out = builder.emit_output(relax.op.add(pooled, relax.op.full_like(pooled, relax.const(1.0))))
        builder.emit_func_output(out)
    return builder.get()


def run(program: uc.Program, *inputs: Any) -> list[np.ndarray]:
    found = program(*inputs)
    return [found.numpy()] if hasattr(found, "shape") else [part.numpy() for part in found]


def copies(program: uc.Program) -> int:
    assert program.mod is not None
    return program.mod["main"].script().count("R.to_vdevice(")


def test_a_module_that_has_only_a_hint_runs_on_two_devices(tmp_path: Path) -> None:
    program = uc.compile(Hinted, measure=False, backends=["tvm"])
    a = np.maximum(X, 0)
    expected = a, np.exp(a) @ WEIGHTS + 2 * X, 2 * X
    assert "-> '0': float32 (4, 16) on cpu:0, '1': float32 (4, 16) on cpu:1" in str(program.signature)
    program.save(tmp_path / "program.so")
    for each in (program, uc.load(tmp_path / "program.so")):
        assert each.devices == ("cpu:0", "cpu:1")
        for found, right in zip(run(each, X), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def test_a_value_without_a_place_beside_others_gets_one() -> None:
    program = uc.compile(HalfPlaced, measure=False, backends=["tvm"])
    np.testing.assert_allclose(run(program, X, WEIGHTS)[0], X @ WEIGHTS, rtol=1e-4, atol=1e-5)
    assert "'w': float32 (16, 16) on cpu:1" in str(program.signature)


def test_hints_that_disagree_are_one_error() -> None:
    with pytest.raises(CollageError, match="cannot be in two places"):
        uc.compile(Disagreeing, measure=False)


def test_kernels_whose_types_have_lost_their_device_stay_on_it() -> None:
    x = np.random.default_rng(2).standard_normal((1, 4, 8, 8), "float32")
    program = uc.compile(images(hinted=True), measure=False, backends=["tvm"])
    expected = run(uc.compile(images(hinted=False), measure=False, backends=["tvm"]), x)
    np.testing.assert_allclose(run(program, x)[0], expected[0], rtol=1e-5)
    assert copies(program) == 1 and str(program.signature).endswith("on cpu:1")


def test_a_planned_module_and_one_of_one_device_need_no_plan() -> None:
    assert why_planned(Hinted) == "`h` in main is a hint"
    assert "has no VDevice" in (why_planned(HalfPlaced) or "")
    assert why_planned(PlanDevices()(HalfPlaced)) is None
    assert why_planned(images(hinted=False)) is None


@I.ir_module
class WithWeights:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0")):
        with R.dataflow():
            a = R.to_vdevice(x, "llvm:1")
            b = R.matmul(a, R.const(WEIGHTS))
            R.output(b)
        return b


def test_the_pipeline_of_tvm_refuses_constants_of_several_devices() -> None:
    pipeline = relax.get_pipeline("collage", measure=False, backends=["tvm"])
    with pytest.raises(CollageError, match=r"which relax\.build puts on the first device"):
        relax.build(WithWeights, "llvm", relax_pipeline=pipeline)


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_the_pipeline_of_tvm_makes_programs_of_several_devices(mode: str) -> None:
    pipeline = relax.get_pipeline("collage", measure=False, backends=["tvm"])
    executable = relax.build(PlanDevices()(HalfPlaced), "llvm", relax_pipeline=pipeline, exec_mode=mode)
    machine = relax.VirtualMachine(executable, [tvm.cpu(0), tvm.cpu(1)])
    found = machine["main"](tvm.runtime.tensor(X), tvm.runtime.tensor(WEIGHTS, tvm.cpu(1)))
    first = found if hasattr(found, "numpy") else found[0]
    np.testing.assert_allclose(first.numpy(), X @ WEIGHTS, rtol=1e-4, atol=1e-5)
