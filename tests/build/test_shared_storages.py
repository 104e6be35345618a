"""Values with sizes that are known at run time share memory, if they are not alive together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.ir import IRModule

from unity_collage.graph.calls import op_name
from unity_collage.lowering import build as lowering
from unity_collage.lowering.shared_storages import ShareStorages
from unity_collage.passes.fuse_remaining import FuseRemaining
from unity_collage.runtime.virtual_machine import Machines
from unity_collage.target import host_target

Body = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]


def module_of(body: Body) -> IRModule:
    """A function of a matrix with free sizes ``n`` and ``m``."""
    builder = relax.BlockBuilder()
    n, m = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType((n, m), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(builder, x))
        builder.emit_func_output(out)
    return builder.get()


def sums(builder: relax.BlockBuilder, value: relax.Expr, axis: int = 0) -> relax.Var:
    """A kernel of its own: TVM fuses nothing with a cumulative sum."""
    return builder.emit(relax.op.cumsum(value, axis=axis))


def wider(builder: relax.BlockBuilder, value: relax.Expr) -> relax.Var:
    return builder.emit(relax.op.concat([value, value], axis=1))


def chain(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Each value is read by the next kernel only; some are twice as long as others."""
    value = sums(builder, sums(builder, wider(builder, sums(builder, x))), 1)
    return sums(builder, wider(builder, value))


def long_lived(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """The last kernel reads the first value, by another name."""
    first = sums(builder, x)
    flat = builder.emit(relax.op.flatten(first))
    value = sums(builder, sums(builder, sums(builder, first, 1)), 1)
    return builder.emit(relax.op.cumsum(relax.op.concat([flat, relax.op.flatten(value)], axis=0), axis=0))


def two_results(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    first = sums(builder, x)
    last = sums(builder, sums(builder, sums(builder, first), 1))
    return relax.Tuple([first, last])


def crosswise(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Values of n and of m numbers: which is larger depends on the sizes."""
    rows = sums(builder, relax.op.sum(sums(builder, x), axis=1))
    columns = sums(builder, relax.op.sum(x * relax.op.expand_dims(rows, 1), axis=0))
    again = sums(builder, relax.op.sum(x * columns, axis=1))
    return sums(builder, relax.op.sum(x * relax.op.expand_dims(again, 1), axis=0))


def main_of(mod: IRModule) -> Any:
    target = host_target()
    with target:
        return Machines(lowering.build(FuseRemaining()(mod), target)).main()


def results(main: Any, x: np.ndarray) -> list[np.ndarray]:
    found: Any = main(tvm.runtime.tensor(x))
    return [found.numpy()] if isinstance(found, tvm.runtime.Tensor) else [each.numpy() for each in found]


def check(body: Body, *shapes: tuple[int, int]) -> None:
    """The program for all sizes computes what the program for each size does."""
    mod = module_of(body)
    main = main_of(mod)
    for n, m in shapes:
        x = np.random.default_rng(n).random((n, m), dtype=np.float32)
        fixed = main_of(relax.transform.BindSymbolicVars({"n": n, "m": m})(mod))
        for got, right in zip(results(main, x), results(fixed, x), strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-4)


@pytest.mark.parametrize("body", [chain, long_lived, two_results, crosswise])
def test_the_numbers_are_those_of_fixed_sizes(body: Body) -> None:
    check(body, (3, 50), (50, 3), (1, 1), (7, 7))


@pytest.mark.parametrize(("body", "count"), [(chain, 3), (long_lived, 4), (two_results, 4), (crosswise, 5)])
def test_values_that_are_not_alive_together_are_in_one_storage(body: Body, count: int) -> None:
    assert len(storages(module_of(body))) == count


def storages(mod: IRModule) -> list[relax.Expr]:
    """The storages that ``main`` allocates."""
    found: list[relax.Expr] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and op_name(expr) == "relax.memory.alloc_storage":
            found.append(expr)

    target = host_target()
    with target:
        lowered = lowering.lower(FuseRemaining()(mod), target)
        steps = lowering.finish(lowered, target).passes
        names = [step.info.name for step in steps]
        shared = tvm.transform.Sequential(steps[: names.index(ShareStorages().info.name) + 1])(lowered)
    relax.analysis.post_order_visit(shared["main"].body, visit)
    return found


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2)), min_size=3, max_size=9))
def test_random_networks_compute_what_those_of_fixed_sizes_do(steps: list[tuple[int, int, int]]) -> None:
    """Kernels that read any earlier values, one of them through a view."""

    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        values: list[relax.Expr] = [x]
        for left, right, kind in steps:
            one, other = values[left % len(values)], values[right % len(values)]
            if kind == 0:
                values.append(sums(builder, one + other))
            elif kind == 1:
                flat = builder.emit(relax.op.flatten(one))
                values.append(sums(builder, relax.op.reshape(flat, x.ty.shape) - other, 1))
            else:
                total = sums(builder, relax.op.sum(one, axis=1))
                values.append(sums(builder, relax.op.expand_dims(total, 1) + other))
        return relax.Tuple([values[-1], values[len(values) // 2]])

    check(body, (5, 3))
