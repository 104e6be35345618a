"""Branches of an If as private functions."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from prepare_checks import plain
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage import reference
from unity_collage.passes.prepare import Prepare
from unity_collage.rewrites.branches import with_branches_outlined


def outlined(mod: IRModule) -> IRModule:
    return with_branches_outlined(
        mod, {gvar: func for gvar, func in mod.functions_items() if isinstance(func, relax.Function)}
    )


@I.ir_module
class Nested:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")) -> R.Tensor(
        (2, 3), "float32"
    ):
        with R.dataflow():
            a = R.nn.relu(x)
            R.output(a)
        if c:
            b = R.exp(a)
            y = R.add(b, x)
        else:
            if d:
                e = R.tanh(x)
                z = R.negative(e)
            else:
                z = a
            y = R.multiply(z, a)
        return y


@I.ir_module
class NestedOutlined:
    @R.function(private=True)
    def main_z_then(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        e = R.tanh(x)
        return R.negative(e)

    @R.function(private=True)
    def main_y_then(a: R.Tensor((2, 3), "float32"), x: R.Tensor((2, 3), "float32")) -> R.Tensor(
        (2, 3), "float32"
    ):
        b = R.exp(a)
        return R.add(b, x)

    @R.function(private=True)
    def main_y_else(
        d: R.Tensor((), "bool"), x: R.Tensor((2, 3), "float32"), a: R.Tensor((2, 3), "float32")
    ) -> R.Tensor((2, 3), "float32"):
        cls = NestedOutlined
        if d:
            with R.dataflow():
                z_then = cls.main_z_then(x)
                R.output(z_then)
            z = z_then
        else:
            z = a
        return R.multiply(z, a)

    @R.function
    def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")) -> R.Tensor(
        (2, 3), "float32"
    ):
        cls = NestedOutlined
        with R.dataflow():
            a = R.nn.relu(x)
            R.output(a)
        if c:
            with R.dataflow():
                y_then = cls.main_y_then(a, x)
                R.output(y_then)
            y = y_then
        else:
            with R.dataflow():
                y_else = cls.main_y_else(d, x, a)
                R.output(y_else)
            y = y_else
        return y


def test_each_branch_that_computes_is_a_function_of_what_it_reads() -> None:
    made = outlined(Nested)
    assert relax.analysis.well_formed(made) is None
    tvm.ir.assert_structural_equal(made, NestedOutlined)


def test_a_second_time_changes_nothing() -> None:
    tvm.ir.assert_structural_equal(outlined(NestedOutlined), NestedOutlined)


@pytest.mark.parametrize("holds", [(True, True), (False, True), (False, False)])
def test_the_numbers_are_the_same(holds: tuple[bool, bool]) -> None:
    inputs = [np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3), *map(np.array, holds)]
    made = outlined(Nested)
    for mod in (made, plain(Prepare()(Nested))):
        (found,) = reference.run(mod["main"], inputs, mod)
        np.testing.assert_allclose(found, reference.run(Nested["main"], inputs, Nested)[0], rtol=1e-6)


@I.ir_module
class Sizes:
    @R.function
    def main(s: R.Shape(["n"]), x: R.Tensor(("2 * n",), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
        ("2 * n",), "float32"
    ):
        n = T.int64()
        if c:
            a = R.reshape(x, R.shape([n, 2]))
            y = R.reshape(R.exp(a), R.shape([2 * n]))
        else:
            y = x
        return y


def test_sizes_that_no_operand_tells_are_operands() -> None:
    made = outlined(Sizes)
    assert relax.analysis.well_formed(made) is None
    assert [type(param.ty) for param in made["main_y_then"].params] == [relax.ShapeType, relax.TensorType]
    assert (
        made["main_y_then"].params[0].ty.values[0].name == "n_inside"
    )  # TVM's parser takes equal names for equal
    x = np.arange(6, dtype=np.float32)
    (found,) = reference.run(made["main"], [(3,), x, np.array(True)], made)
    np.testing.assert_allclose(found, np.exp(x), rtol=1e-6)


def test_a_branch_with_effects_stays() -> None:
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2,), "float32"):
        if c:
            _ = R.print(x, format="{}")
            y = R.exp(x)
        else:
            y = x
        return y

    mod = IRModule({"main": main})
    tvm.ir.assert_structural_equal(outlined(mod), mod)
