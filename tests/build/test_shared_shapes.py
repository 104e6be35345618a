"""A program with free sizes makes each shape once in a call."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.lowering.build import build, finish, lower
from unity_collage.target import host_target

MAKE = "vm.builtin.make_shape"


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor(
        ("n", 4), "float32"
    ):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.matmul(a, w)
            c = R.matmul(b, w)
            R.output(c)
        return c


@I.ir_module
class Branches:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32"), flag: R.Tensor((), "bool")
    ) -> R.Tensor(("n", 4), "float32"):
        if flag:
            a = R.matmul(x, w)
            b = R.matmul(a, w)
        else:
            b = R.nn.relu(x)
        return R.matmul(b, w)


def shapes_made(mod: IRModule) -> int:
    lowered = lower(mod, host_target())
    with host_target():
        return finish(lowered, host_target())(lowered)["main"].script().count(f'"{MAKE}", shape_heap, 2')


def test_tensors_of_one_shape_share_it() -> None:
    assert shapes_made(Chain) == 1, "of rank 2; those of storages have one number"
    vm = relax.VirtualMachine(build(Chain, host_target()), tvm.cpu())
    w = np.random.default_rng(0).standard_normal((4, 4), dtype=np.float32)
    for n in (1, 5, 0, 64):
        x = np.random.default_rng(n).standard_normal((n, 4), dtype=np.float32)
        found = vm["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
        np.testing.assert_allclose(found, x @ w @ w @ w, rtol=1e-4, atol=1e-5)


def test_a_branch_keeps_the_shapes_that_it_makes_to_itself() -> None:
    vm = relax.VirtualMachine(build(Branches, host_target()), tvm.cpu())
    w = np.random.default_rng(0).standard_normal((4, 4), dtype=np.float32)
    for n, flag in ((3, True), (3, False), (7, False), (7, True)):
        x = np.random.default_rng(n).standard_normal((n, 4), dtype=np.float32)
        found = vm["main"](*map(tvm.runtime.tensor, (x, w, np.array(flag)))).numpy()
        expected = (x @ w @ w if flag else np.maximum(x, 0)) @ w
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
