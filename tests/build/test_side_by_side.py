"""Stages as kernels: the program computes the same, whatever runs beside what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import from_source
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.lowering.branches import Calls, Stage, staged
from unity_collage.lowering.build import build
from unity_collage.passes import FuseRemaining, ScheduleBranches
from unity_collage.testing.fixed_cost import FixedCost

SHAPE = (1, 12, 12, 32)
NUMBERS = np.random.default_rng(0)


def branches(dtype: str = "float32") -> IRModule:
    """Three branches of a pool, a product and an addition, and what joins them; one middle is a result, too."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, dtype))
    results: list[relax.Expr] = []
    with builder.function("main", [x]):
        with builder.dataflow():
            ends: list[relax.Expr] = []
            for size in (3, 5, 7):
                pooled = builder.emit(
                    R.nn.avg_pool2d(x, (size, size), (1, 1), (size // 2, size // 2), layout="NHWC")
                )
                weights = relax.const(NUMBERS.standard_normal((32, 32)), dtype)
                product = builder.emit(R.matmul(pooled, weights))
                if size == 5:
                    product = builder.emit_output(product)
                    results.append(product)
                ends.append(builder.emit(R.nn.avg_pool2d(product, (3, 3), (1, 1), (1, 1), layout="NHWC")))
            results.append(builder.emit_output(R.concat(ends, 3)))
        builder.emit_func_output(relax.Tuple(results))
    return builder.get()


def final(mod: IRModule) -> IRModule:
    with uc.host_target():
        return FuseRemaining()(mod)


def calls_of(mod: IRModule) -> Calls:
    calls = Calls.of(mod)
    assert isinstance(calls, Calls)
    return calls


def stages_in(calls: Calls) -> list[Stage]:
    """Each chain of kernels a lane of one stage, what joins them behind it."""
    lanes: list[list[int]] = []
    rest: list[Stage] = []
    for number, sources in enumerate(calls.sources):
        lane = next((lane for lane in lanes if sources & set(lane)), None)
        if number not in calls.movable or len([1 for lane in lanes if sources & set(lane)]) > 1:
            rest.append(((number,),))
        elif lane is not None:
            lane.append(number)
        else:
            lanes.append([number])
    return [tuple(map(tuple, lanes)), *rest]


def run(executable: relax.VMExecutable, value: np.ndarray) -> list[np.ndarray]:
    machine = relax.VirtualMachine(executable, tvm.cpu())
    found: Any = machine["main"](tvm.runtime.tensor(value))
    return [tensor.numpy() for tensor in found]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_numbers_are_those_of_the_kernels_one_by_one(dtype: str, threads: int) -> None:
    mod = final(branches(dtype))
    calls = calls_of(mod)
    stages = stages_in(calls)
    assert len(stages[0]) == 3 and all(len(lane) >= 2 for lane in stages[0])
    value = NUMBERS.standard_normal(SHAPE).astype(np.dtype(dtype))
    before = uc.num_threads()
    uc.set_num_threads(threads)
    try:
        expected = run(build(mod, uc.host_target()), value)
        found = run(build(staged(mod, calls, stages), uc.host_target()), value)
    finally:
        uc.set_num_threads(before)

    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_plain_relax_build_takes_it_and_so_does_the_parser() -> None:
    mod = final(branches())
    calls = calls_of(mod)
    program = staged(mod, calls, stages_in(calls))
    parsed = from_source(program.script(show_meta=True))
    tvm.ir.assert_structural_equal(parsed, program)
    value = NUMBERS.standard_normal(SHAPE).astype("float32")
    target = uc.host_target()

    expected, *others = (run(relax.build(each, target), value) for each in (mod, program, parsed))

    for found in others:
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_branching_are_kernels_that_have_others_beside_them() -> None:
    calls = calls_of(final(branches()))
    joins = {number for lane in stages_in(calls)[1:] for number in lane[0]}

    assert calls.branching() == calls.movable - joins


def test_a_chain_has_no_branches() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for _ in range(3):
                value = builder.emit(R.nn.avg_pool2d(value, (3, 3), (1, 1), (1, 1), layout="NHWC"))
            result = builder.emit_output(R.nn.softmax(value))
        builder.emit_func_output(result)
    calls = calls_of(final(builder.get()))

    assert len(calls.movable) > 1
    assert not calls.branching()


def test_a_stage_of_one_input_is_no_reshape() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            pooled = [
                builder.emit(R.nn.avg_pool2d(x, (k, k), (1, 1), (k // 2, k // 2), layout="NHWC"))
                for k in (3, 5)
            ]
            result = builder.emit_output(R.concat(pooled, 3))
        builder.emit_func_output(relax.Tuple([result]))
    mod = final(builder.get())
    calls = calls_of(mod)
    value = NUMBERS.standard_normal(SHAPE).astype("float32")

    (expected,), (found,) = (
        run(build(each, uc.host_target()), value) for each in (mod, staged(mod, calls, stages_in(calls)))
    )

    np.testing.assert_array_equal(found, expected)


def test_what_only_the_stage_reads_lies_in_its_scratch() -> None:
    mod = final(branches())
    calls = calls_of(mod)
    stages = stages_in(calls)
    program = staged(mod, calls, stages)
    call = next(
        binding.value
        for binding in program["main"].body.blocks[0].bindings
        if isinstance(binding.value, relax.Call) and binding.value.args[0].name_hint == "stage_0"
    )
    *results, scratch = call.ty_args[0].fields

    inside = sum(len(lane) for lane in stages[0])
    assert str(scratch.dtype) == "uint8"
    assert len(results) == 4  # three ends and the product that is a result
    assert inside > len(results)


def test_a_second_run_leaves_stages_alone() -> None:
    mod = final(branches())
    calls = calls_of(mod)
    program = staged(mod, calls, stages_in(calls))

    again = calls_of(program)

    assert not any("stage_0" in str(again.bindings[number].value.args[0]) for number in again.movable)


def test_a_program_that_is_more_than_kernels_keeps_its_order() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        value = builder.emit(relax.Call(relax.ExternFunc("some.function"), [x], ty_args=[x.ty]))
        builder.emit_func_output(value)

    assert Calls.of(builder.get()) == "its kernels may have effects"


def test_an_operator_that_nobody_has_made_a_kernel_of_is_named() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit_output(R.nn.relu(x))
        builder.emit_func_output(value)

    assert Calls.of(builder.get()) == "gv is neither a kernel nor a view"


def test_a_cost_model_that_runs_nothing_leaves_the_program_alone() -> None:
    mod = final(branches())
    with uc.host_target():
        assert ScheduleBranches(FixedCost())(mod).same_as(mod)
