"""What TVM alone compiles right compiles right here: odd modules, and random programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from stock_modules import CASES, Value
from tvm import IRModule, relax
from tvm.relax.backend.cpu_generic import pipeline

import unity_collage as uc
from unity_collage.lowering.build import build
from unity_collage.pipeline import collage
from unity_collage.testing.fixed_cost import FixedCost


def tensors(value: Value) -> Any:
    return tuple(map(tensors, value)) if isinstance(value, tuple) else tvm.runtime.tensor(value)


def arrays(result: Any) -> list[np.ndarray]:
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [array for part in result for array in arrays(part)]


def outputs(executable: relax.VMExecutable, inputs: list[Value]) -> list[np.ndarray]:
    return arrays(relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tensors, inputs)))


def ours(mod: IRModule) -> relax.VMExecutable:
    """Without the contract's instrument: TVMScript does not parse back a ``match_cast`` of a call in a branch."""
    target = uc.host_target()
    with target, tvm.transform.PassContext():
        return build(collage(["tvm"], FixedCost())(mod), target)


def tvm_alone(mod: IRModule) -> relax.VMExecutable:
    """TVM's pipeline for CPUs without its plan of memory, which lets programs with branches crash."""
    target = tvm.target.Target("llvm")
    steps = [
        *pipeline.library_dispatch_passes(target),
        *pipeline.legalize_passes(target),
        *pipeline.dataflow_lower_passes(target),
        *pipeline.finalize_passes(target),
    ]
    kept = [step for step in steps if step.info.name != "StaticPlanBlockMemory"]
    return relax.build(mod, target, relax_pipeline=tvm.transform.Sequential(kept))


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_those_of_tvm_alone(name: str) -> None:
    mod, inputs = CASES[name]()
    right = outputs(tvm_alone(mod), inputs)
    got = outputs(ours(mod), inputs)
    assert [(array.shape, array.dtype) for array in got] == [(array.shape, array.dtype) for array in right]
    for mine, theirs in zip(got, right, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
