"""Values of unknown shape get symbolic dimensions, and what cannot have a kernel is refused with the reason."""

from __future__ import annotations

import pytest
import tvm
from prepare_checks import assert_stays, prepared
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.errors import CollageError
from unity_collage.lowering.unknown_shapes import refuse_unknown_shapes
from unity_collage.rewrites import identity, views


def test_a_parameter_of_known_rank_is_cast():
    @R.function
    def before(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor(ndim=2, dtype="float32"):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor(ndim=2, dtype="float32"):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            cast = R.match_cast(x, R.Tensor((n, m), "float32"))
            y = R.nn.relu(cast)
            R.output(y)
        return y

    tvm.ir.assert_structural_equal(prepared(before), prepared(after))


def test_a_result_of_unknown_size_is_cast_and_what_follows_has_its_size():
    @R.function
    def before(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            y = R.unique(
                x, sorted=True, return_index=False, return_inverse=False, return_counts=False, axis=0
            )
            z = R.exp(y)
            R.output(z)
        return z

    main = prepared(before)["main"]
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    casts = [binding for binding in bindings if isinstance(binding, relax.MatchCast)]
    (power,) = [binding for binding in bindings if str(binding.value).startswith("R.exp")]
    (size,) = power.value.ty.shape.values
    assert size.same_as(casts[0].ty.shape.values[0])


def test_a_value_that_the_model_casts_keeps_its_only_cast():
    @R.function
    def before(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
        n = T.int64()
        u = R.unique(x, sorted=True, return_index=False, return_inverse=False, return_counts=False, axis=0)
        v = R.match_cast(u, R.Tensor((T.max(n, 0),), "float32"))
        return R.add(v, R.abs(v))

    main = prepared(before)["main"]
    assert not relax.analysis.free_symbolic_vars(main)
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    assert sum(isinstance(binding, relax.MatchCast) for binding in bindings) == 1


def test_branches_read_the_dimensions_too():
    @R.function
    def before(x: R.Tensor(ndim=1, dtype="float32"), c: R.Tensor((), "bool")):
        if c:
            y = R.exp(x)
        else:
            y = R.nn.relu(x)
        return y

    main = prepared(before)["main"]
    (branch,) = [
        binding.value
        for block in main.body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.If)
    ]
    assert isinstance(branch.ty.shape, relax.ShapeExpr)


def test_known_and_symbolic_shapes_and_unknown_ranks_stay():
    @R.function
    def symbolic(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y

    @R.function
    def without_rank(x: R.Tensor(dtype="float32")) -> R.Tensor(dtype="float32"):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y

    assert_stays(symbolic)
    assert_stays(without_rank)


def test_a_call_inside_of_a_match_cast_reads_what_became_of_its_operands():
    @R.function
    def before(x: R.Tensor((2, 2), "int64")):
        n = T.int64()
        with R.dataflow():
            a = R.add(x, R.const(0, "int64"))
            b = R.reshape(a, R.shape([4]))
            c = R.match_cast(R.reshape(b, R.shape([2, 2])), R.Tensor((n, 2), "int64"))
            R.output(c)
        return c

    main = prepared(before, identity.DROP_NEUTRAL, views.MERGE_RESHAPES)["main"]
    assert not list(relax.analysis.free_vars(main))


@I.ir_module
class Unequal:
    @R.function
    def main(a: R.Tensor(("n",), "float32"), b: R.Tensor(("m",), "float32")) -> R.Tensor(
        ndim=1, dtype="float32"
    ):
        with R.dataflow():
            z = R.add(a, b)
            R.output(z)
        return z


@I.ir_module
class WithoutRank:
    @R.function
    def main(a: R.Tensor(dtype="float32"), c: R.Tensor((), "bool")) -> R.Tensor(dtype="float32"):
        if c:
            z = R.exp(a)
        else:
            z = a
        return z


@pytest.mark.parametrize(
    ("mod", "reason"),
    [
        (
            Unequal,
            r"relax.add \(z of main\) has no kernel: the shape of its result does not follow .*\(n\) and \(m\)",
        ),
        (
            WithoutRank,
            r"relax.exp .* has no kernel: the shape of a is not known; give it one with match_cast",
        ),
    ],
)
def test_an_operator_without_a_kernel_is_refused(mod: tvm.IRModule, reason: str):
    with pytest.raises(CollageError, match=reason):
        refuse_unknown_shapes(mod)


def test_data_dependent_operators_and_calls_of_kernels_are_not_refused():
    @I.ir_module
    class Fine:
        @R.function
        def main(x: R.Tensor((3,), "float32"), s: R.Tensor((1,), "int64")) -> R.Tensor(
            ndim=1, dtype="float32"
        ):
            a = R.unique(
                x, sorted=True, return_index=False, return_inverse=False, return_counts=False, axis=0
            )
            b = R.dynamic_strided_slice(x, s, s, s)
            return R.call_pure_packed("f", a, b, ty_args=R.Tensor(ndim=1, dtype="float32"))

    refuse_unknown_shapes(Fine)
