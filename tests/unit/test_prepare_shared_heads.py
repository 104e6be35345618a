"""Keys and values that several heads of queries share are not repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from prepare_checks import assert_stays, example, near_misses, prepared
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.relax import op
from tvm.target import Target

from unity_collage import reference
from unity_collage.rewrites import DEFAULT_REWRITES, Scope
from unity_collage.rewrites.shared_heads import SHARED_HEADS, _scores

Expr = relax.Expr
BATCH, SHARED, GROUP, KEYS, SIZE = 2, 2, 3, 5, 4
HEADS = SHARED * GROUP
ROWS = 7


def module(
    make: Callable[..., Expr], rows: int | tirx.Var, *masks: Sequence[int], keys: int | tirx.Var = KEYS
) -> IRModule:
    """``make`` of queries, keys, values and masks."""
    shapes = [(BATCH, HEADS, rows, SIZE), *[(BATCH, SHARED, keys, SIZE)] * 2, *masks]
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(make(*params)))
        builder.emit_func_output(result)
    return builder.get()


def repeated(x: Expr, group: int = GROUP) -> Expr:
    batch, shared, rows, size = x.ty.shape.values
    wide = op.broadcast_to(op.expand_dims(x, 2), [batch, shared, group, rows, size])
    return op.reshape(wide, [batch, int(shared) * group, rows, size])


def attention(q: Expr, k: Expr, v: Expr, *masks: Expr, scale: float | None = 0.5, spread=repeated) -> Expr:
    scores = op.matmul(q, op.permute_dims(spread(k), [0, 1, 3, 2]))
    if scale is not None:
        scores = op.multiply(scores, relax.const(scale, "float32"))
    for mask in masks:
        scores = op.add(scores, mask)
    return op.matmul(op.nn.softmax(scores, -1), spread(v))


def calls(mod: IRModule) -> str:
    return mod.script(show_meta=False)


@pytest.mark.parametrize("rules", [(SHARED_HEADS,), DEFAULT_REWRITES], ids=["alone", "with others"])
@pytest.mark.parametrize("rows", [ROWS, 1], ids=["rows", "one row"])
@pytest.mark.parametrize(
    "mask",
    [
        (),
        ([1],),
        ([1, KEYS],),
        (["rows", KEYS],),
        ([1, "rows", KEYS],),
        ([HEADS, "rows", KEYS],),
        ([BATCH, 1, "rows", KEYS],),
        ([1, HEADS, "rows", KEYS],),
        ([BATCH, HEADS, 1, 1],),
        ([BATCH, 1, 1, KEYS], ["rows", KEYS]),
    ],
    ids=str,
)
def test_repeated_keys_and_values_become_those_of_groups(rules, rows, mask):
    masks = [[rows if size == "rows" else size for size in shape] for shape in mask]
    before = module(attention, rows, *masks)
    after = prepared(before, *rules)
    assert "broadcast_to" not in calls(after)
    inputs = [example(param) for param in before["main"].params]
    (old,), (new,) = (reference.run(mod["main"], inputs, mod) for mod in (before, after))
    np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


def test_queries_of_one_row_are_the_rows_of_one_head():
    text = calls(prepared(module(attention, 1), *DEFAULT_REWRITES))
    assert f"R.Tensor(({BATCH}, {SHARED}, {GROUP}, {KEYS})" in text and "reshape(p1" not in text


def test_rows_of_several_positions_have_an_axis_for_their_group():
    text = calls(prepared(module(attention, ROWS), *DEFAULT_REWRITES))
    assert f"R.Tensor(({BATCH}, {SHARED}, {GROUP}, {ROWS}, {KEYS})" in text


@pytest.mark.parametrize("rules", [(SHARED_HEADS,), DEFAULT_REWRITES], ids=["alone", "with others"])
def test_free_numbers_of_rows_and_keys(rules):
    rows, keys = (tirx.Var(name, "int64") for name in ("rows", "keys"))
    before = module(attention, rows, [rows, keys], keys=keys)
    after = prepared(before, *rules)
    assert "broadcast_to" not in calls(after)
    assert f"R.Tensor(({BATCH}, {HEADS}, rows, {SIZE})" in calls(after)
    fixed = module(attention, ROWS, [ROWS, KEYS])
    inputs = [example(param) for param in fixed["main"].params]
    (old,), (new,) = (reference.run(mod["main"], inputs, mod) for mod in (fixed, after))
    np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rows", "stays"), [(ROWS, True), (1, False)])
def test_on_gpus_only_single_rows_change(rows, stays):
    with Target("cuda"):
        assert ("broadcast_to" in calls(prepared(module(attention, rows), *DEFAULT_REWRITES))) is stays


def test_keys_that_vary_over_their_group_stay():
    factors = relax.const(np.arange(HEADS, dtype="float32").reshape(HEADS, 1, 1))

    def varied(q: Expr, k: Expr, v: Expr) -> Expr:
        keys = op.permute_dims(op.multiply(repeated(k), factors), [0, 1, 3, 2])
        return op.matmul(op.nn.softmax(op.matmul(q, keys), -1), repeated(v))

    assert_stays(module(varied, ROWS), SHARED_HEADS)
    (miss,) = near_misses(module(varied, ROWS), SHARED_HEADS)
    assert miss.reason == "the values are repeated for several heads, and the keys are not"


def test_a_mask_that_replaces_scores_and_a_softmax_in_a_wider_type():
    def masked(q: Expr, k: Expr, v: Expr, mask: Expr) -> Expr:
        scores = op.matmul(q, op.permute_dims(repeated(k), [0, 1, 3, 2]))
        hidden = op.where(op.greater(mask, relax.const(0.0)), scores, relax.const(-1e9))
        weights = op.nn.softmax(op.astype(hidden, "float64"), -1)
        return op.matmul(op.astype(weights, "float32"), repeated(v))

    before = module(masked, ROWS, [1, 1, ROWS, KEYS])
    after = prepared(before, SHARED_HEADS)
    assert "broadcast_to" not in calls(after)
    inputs = [example(param) for param in before["main"].params]
    (old,), (new,) = (reference.run(mod["main"], inputs, mod) for mod in (before, after))
    np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


def test_scores_that_are_a_result_stay():
    def both(q: Expr, k: Expr, v: Expr) -> Expr:
        weights = op.nn.softmax(op.matmul(q, op.permute_dims(repeated(k), [0, 1, 3, 2])), -1)
        return op.add(op.matmul(weights, repeated(v)), op.sum(weights, -1, True))

    (miss,) = near_misses(module(both, ROWS), SHARED_HEADS)
    assert "is read 2 times" in miss.reason


def test_heads_in_another_order_stay():
    """h0 h1 h0 h1 ..., as no export repeats them: the heads of a group are neighbours."""

    def tiled(x: Expr) -> Expr:
        batch, shared, rows, size = x.ty.shape.values
        wide = op.broadcast_to(op.expand_dims(x, 1), [batch, GROUP, shared, rows, size])
        return op.reshape(wide, [batch, int(shared) * GROUP, rows, size])

    assert_stays(module(partial(attention, spread=tiled), ROWS), SHARED_HEADS)


def test_an_inner_softmax_over_the_heads_stays():
    def twice(q: Expr, k: Expr, v: Expr) -> Expr:
        scores = op.nn.softmax(op.matmul(q, op.permute_dims(repeated(k), [0, 1, 3, 2])), 1)
        return op.matmul(op.nn.softmax(scores, -1), repeated(v))

    (miss,) = near_misses(module(twice, ROWS), SHARED_HEADS)
    assert miss.reason == "there are 2 softmaxes between the products"


def test_weights_that_are_widened_stay():
    def widened(q: Expr, k: Expr, v: Expr, factor: Expr) -> Expr:
        weights = op.nn.softmax(op.matmul(q, op.permute_dims(repeated(k), [0, 1, 3, 2])), -1)
        return op.matmul(op.multiply(weights, factor), repeated(v))

    (miss,) = near_misses(module(widened, 1, [ROWS, KEYS]), SHARED_HEADS)
    assert miss.reason == "what is added to the scores changes their shape"


def test_what_widens_the_scores_stays():
    """A mask of more rows than queries: the result has its rows."""
    (miss,) = near_misses(module(attention, 1, [ROWS, KEYS]), SHARED_HEADS)
    assert miss.reason == "what is added to the scores changes their shape"


def test_values_that_are_read_twice_are_searched_once():
    class Counting(Scope):
        calls = 0

        def call(self, expr: relax.Expr, *ops: str) -> relax.Call | None:
            self.calls += 1
            return super().call(expr, *ops)

    scope = Counting()
    value = relax.Var("x", relax.TensorType((2, 3), "float32"))
    for number in range(12):
        following = relax.DataflowVar(f"x{number}", value.ty)
        scope.define(following, op.add(value, value))
        value = following
    assert _scores(value, scope, set()) is None
    assert scope.calls < 100
