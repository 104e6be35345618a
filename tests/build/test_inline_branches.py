"""An If with branches in place: its function and its branches are planned, and memory is reused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import reference
from unity_collage.lowering.build import finish, lower
from unity_collage.program import Program
from unity_collage.testing.fixed_cost import FixedCost

WEIGHTS = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype("float32") / 8


@I.ir_module
class Network:
    @R.function
    def main(
        x: R.Tensor((1, 4, 16, 16), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")
    ) -> R.Tensor((1, 4, 16, 16), "float32"):
        with R.dataflow():
            x1 = R.nn.conv2d(x, R.const(WEIGHTS), padding=1)
            x2 = R.nn.conv2d(x1, R.const(WEIGHTS), padding=1)
            x3 = R.nn.conv2d(x2, R.const(WEIGHTS), padding=1)
            x4 = R.nn.conv2d(x3, R.const(WEIGHTS), padding=1)
            R.output(x4)
        if c:
            y1 = R.nn.conv2d(x4, R.const(WEIGHTS), padding=1)
            y = R.nn.relu(y1)
        else:
            if d:
                z1 = R.nn.conv2d(x, R.const(WEIGHTS), padding=1)
                z = R.exp(z1)
            else:
                z = x
            y = R.add(z, x4)
        with R.dataflow():
            w1 = R.nn.conv2d(y, R.const(WEIGHTS), padding=1)
            w2 = R.nn.conv2d(w1, R.const(WEIGHTS), padding=1)
            w3 = R.nn.conv2d(w2, R.const(WEIGHTS), padding=1)
            w4 = R.add(w3, x4)
            R.output(w4)
        return w4


@pytest.fixture(scope="module")
def program() -> Program:
    return uc.compile(Network, backends=["tvm"], estimator=FixedCost(default=1e-3))


@pytest.mark.parametrize("holds", list(product((True, False), repeat=2)))
def test_the_numbers_are_right_in_each_branch(program: Program, holds: tuple[bool, bool]) -> None:
    inputs = [np.random.default_rng(1).standard_normal((1, 4, 16, 16), np.float32), *map(np.array, holds)]
    (expected,) = reference.run(Network["main"], inputs, Network)
    np.testing.assert_allclose(program(*inputs).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_the_function_and_its_branches_have_plans_and_channels_last(program: Program) -> None:
    assert program.plan is not None
    assert set(program.plan) == {"main", "main_y_then", "main_y_else", "main_z_then"}
    layouts = {
        expr.attrs.data_layout for expr in _calls(uc.passes.ChannelsLast()(uc.passes.Prepare()(Network)))
    }
    assert layouts == {"NHWC"}


def test_memory_is_planned_beside_branches(program: Program) -> None:
    target = uc.host_target()
    lowered = lower(program.mod, target)
    with target:
        text = finish(lowered, target)(lowered)["main"].script()
    allocated = text.count("R.vm.alloc_storage(")
    values = text.count("R.vm.alloc_tensor(")
    assert 1 < allocated < values, "values share memory"


def _calls(mod: IRModule) -> list[relax.Call]:
    found = list[relax.Call]()

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == "relax.nn.conv2d":
            found.append(expr)

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return found
