"""One program called from several threads at once: equal inputs give equal results, bit for bit."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from compiled import DrawnCost, compiled, random
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op

import unity_collage as uc
from unity_collage.lowering.build import finish, lower
from unity_collage.program import Program
from unity_collage.target import host_target

CALLERS, CALLS = 4, 60


def chain(size: int, products: int) -> IRModule:
    """Products and sums of one square matrix, one after the other."""
    x = relax.Var("x", relax.TensorType([size, size], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(products):
                value = builder.emit(op.nn.relu(op.add(op.matmul(value, x), x)))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()


@cache
def built(mode: str) -> Program:
    """A program of TVM alone, whose functions are compiled, or bytecode."""
    target = host_target()
    lowered = lower(chain(32, 8), target)
    return Program(relax.build(lowered, target, relax_pipeline=finish(lowered, target), exec_mode=mode))


def wrong_results(program: Program, inputs: list[np.ndarray]) -> int:
    """How many calls from several threads give another result than a call alone."""
    right = [program(x).numpy() for x in inputs]

    def calls(caller: int) -> int:
        return sum(not np.array_equal(program(inputs[caller]).numpy(), right[caller]) for _ in range(CALLS))

    with ThreadPoolExecutor(len(inputs)) as pool:
        return sum(pool.map(calls, range(len(inputs))))


@pytest.mark.parametrize("mode", ["compiled", "bytecode"])
def test_each_caller_gets_its_own_result(mode: str) -> None:
    assert wrong_results(built(mode), [0.1 * random(32, 32, seed=seed) for seed in range(CALLERS)]) == 0


@pytest.mark.parametrize("threads", [2, 3])
def test_kernels_of_all_backends_serve_many_callers(threads: int) -> None:
    before = uc.num_threads()
    uc.set_num_threads(threads)
    try:
        program = compiled(chain(96, 6), cost=DrawnCost("many callers"))
        assert wrong_results(program, [0.05 * random(96, 96, seed=seed) for seed in range(CALLERS)]) == 0
    finally:
        uc.set_num_threads(before)


def test_prepared_calls_of_several_threads_do_not_mix_their_inputs() -> None:
    for program in (built("compiled"), built("bytecode")):
        inputs = [0.1 * random(32, 32, seed=seed) for seed in range(CALLERS)]
        runs = [program.prepared(x) for x in inputs]
        with ThreadPoolExecutor(CALLERS) as pool:
            found = list(pool.map(lambda run: [run().numpy() for _ in range(CALLS)], runs))
        for x, results in zip(inputs, found, strict=True):
            assert all(np.array_equal(result, program(x).numpy()) for result in results)


def test_other_threads_run_during_a_call() -> None:
    program, x = compiled(chain(500, 4), ["openblas"]), 1e-3 * random(500, 500)
    program(x)
    counted, ended = [0], threading.Event()

    def count() -> None:
        while not ended.is_set():
            counted[0] += 1

    counter = threading.Thread(target=count)
    counter.start()
    try:
        before = counted[0]
        for _ in range(20):
            program(x)
        assert counted[0] > before
    finally:
        ended.set()
        counter.join()
