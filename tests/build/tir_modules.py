"""Modules with TIR of their own: emitted operators, handwritten PrimFuncs, models that are lowered in part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import IRModule, relax, s_tir, te, tirx, topi
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

Case = tuple[IRModule, Sequence[np.ndarray]]
"""A module, and inputs of its ``main``."""

Emit = Callable[[relax.BlockBuilder, list[relax.Var]], relax.Expr | Sequence[relax.Expr]]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("float32")


def module(emit: Emit, *inputs: np.ndarray) -> Case:
    """A module whose ``main`` takes ``inputs`` and returns what ``emit`` emits in one dataflow block."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(value.shape, str(value.dtype))) for i, value in enumerate(inputs)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            found = emit(builder, params)
            results = [found] if isinstance(found, relax.Expr) else list(found)
            outputs = [builder.emit_output(result) for result in results]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return builder.get(), inputs


def doubled(x: te.Tensor) -> te.Tensor:
    """A smooth element-wise operator that Relax does not have."""
    return te.compute(x.shape, lambda *i: x(*i) * 2.0 + te.exp(-x(*i) * x(*i)), name="doubled")


def swished(x: np.ndarray) -> np.ndarray:
    """What the handwritten modules compute."""
    return np.abs(-x / (1 + np.exp(x)))


def softened(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) / (1.0 + te.abs(x(*i))), name="softened")


def shifted(x: te.Tensor, by: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) + by(i[-1]) * 0.5, name="shifted")


def row_energy(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, x.shape[1]), "k")
    return te.compute((x.shape[0],), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="row_energy")


def both_halves(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    low = te.compute(x.shape, lambda *i: te.min(x(*i), tirx.const(0.0, "float32")), name="low")
    high = te.compute(x.shape, lambda *i: te.max(x(*i), tirx.const(0.0, "float32")), name="high")
    return low, high


def between_operators() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        a = bb.emit_te(doubled, bb.emit(relax.op.exp(x[0])), primfunc_name_hint="doubled")
        return bb.emit(relax.op.tanh(a))

    return module(emit, floats(8, 16))


def behind_a_product() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        a = bb.emit(relax.op.matmul(x[0], relax.const(floats(16, 24))))
        b = bb.emit_te(shifted, a, relax.const(floats(24)), primfunc_name_hint="shifted")
        return bb.emit(relax.op.nn.relu(bb.emit_te(softened, b, primfunc_name_hint="softened")))

    return module(emit, floats(8, 16))


def a_product_of_te() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        a = bb.emit_te(topi.matmul, x[0], x[1], primfunc_name_hint="mine")
        return bb.emit(relax.op.tanh(bb.emit(relax.op.add(a, relax.const(floats(24))))))

    return module(emit, floats(8, 16), floats(16, 24, seed=1))


def only_emitted() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        value: Any = x[0]
        for te_func in (doubled, softened, doubled, softened):
            value = bb.emit_te(te_func, value, primfunc_name_hint=te_func.__name__)
        return value

    return module(emit, floats(8, 16))


def a_long_chain() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        value: Any = x[0]
        for _ in range(5):
            value = bb.emit_te(softened, value, primfunc_name_hint="softened")
            value = bb.emit(relax.op.add(value, relax.const(np.float32(0.25))))
            value = bb.emit(relax.op.sin(value))
        return value

    return module(emit, floats(8, 16))


def a_diamond() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        a = bb.emit_te(doubled, x[0], primfunc_name_hint="doubled")
        left = bb.emit(relax.op.sigmoid(a))
        right = bb.emit_te(softened, a, primfunc_name_hint="softened")
        return bb.emit(relax.op.multiply(left, right))

    return module(emit, floats(8, 16))


def a_reduction_of_te() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        a = bb.emit(relax.op.nn.relu(x[0]))
        energy = bb.emit_te(row_energy, a, primfunc_name_hint="row_energy")
        return bb.emit(relax.op.sqrt(bb.emit(relax.op.add(energy, relax.const(np.float32(1))))))

    return module(emit, floats(8, 16))


def two_results() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        both = bb.emit_te(both_halves, x[0], primfunc_name_hint="both_halves")
        low, high = bb.emit(relax.TupleGetItem(both, 0)), bb.emit(relax.TupleGetItem(both, 1))
        return bb.emit(relax.op.subtract(bb.emit(relax.op.exp(low)), high))

    return module(emit, floats(8, 16))


def two_results_read_apart() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> Sequence[relax.Expr]:
        both = bb.emit_te(both_halves, bb.emit(relax.op.tanh(x[0])), primfunc_name_hint="both_halves")
        low, high = bb.emit(relax.TupleGetItem(both, 0)), bb.emit(relax.TupleGetItem(both, 1))
        return [bb.emit(relax.op.exp(low)), bb.emit(relax.op.sin(high))]

    return module(emit, floats(8, 16))


def a_split() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        both = bb.emit(relax.op.split(bb.emit_te(doubled, x[0], primfunc_name_hint="doubled"), 2, axis=1))
        value, gate = bb.emit(relax.TupleGetItem(both, 0)), bb.emit(relax.TupleGetItem(both, 1))
        return bb.emit(relax.op.multiply(value, bb.emit(relax.op.sigmoid(gate))))

    return module(emit, floats(8, 16))


def a_concatenation_of_te() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        a, b = bb.emit(relax.op.exp(x[0])), bb.emit_te(doubled, x[1], primfunc_name_hint="doubled")
        joined = bb.emit_te(lambda *ts: topi.concatenate(ts, 1), a, b, primfunc_name_hint="joined")
        return bb.emit(relax.op.nn.relu(joined))

    return module(emit, floats(8, 16), floats(8, 8))


def a_gather_of_te() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        rows = bb.emit_te(
            lambda table, at: te.compute((5, 16), lambda i, j: table[at[i], j], name="rows"),
            x[0],
            x[1],
            primfunc_name_hint="rows",
        )
        return bb.emit(relax.op.tanh(rows))

    return module(emit, floats(8, 16), np.array([7, 0, 3, 3, 1]))


@I.ir_module
class _Handwritten:
    @T.prim_func(private=True, s_tir=True)
    def swish(x: T.Buffer((8, 16), "float32"), y: T.Buffer((8, 16), "float32")):
        for i, j in T.grid(8, 16):
            with T.sblock("swish"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.sigmoid(x[vi, vj])

    @R.function
    def main(x: R.Tensor((8, 16), "float32")) -> R.Tensor((8, 16), "float32"):
        cls = _Handwritten
        with R.dataflow():
            a = R.negative(x)
            b = R.call_tir(cls.swish, (a,), out_ty=R.Tensor((8, 16), "float32"))
            c = R.abs(b)
            R.output(c)
        return c


def handwritten() -> Case:
    return _Handwritten, [floats(8, 16)]


def handwritten_with_a_pattern() -> Case:
    """The given kind, opaque, keeps a PrimFunc apart although its loops could be fused."""
    mod = IRModule(_Handwritten.functions)
    swish = mod.get_global_var("swish")
    return IRModule({**mod.functions, swish: mod[swish].with_attr("op_pattern", 8)}), [floats(8, 16)]


def _network() -> Case:
    def emit(bb: relax.BlockBuilder, x: list[relax.Var]) -> relax.Expr:
        a = bb.emit(relax.op.nn.conv2d(x[0], relax.const(floats(4, 3, 3, 3) * 0.3), padding=(1, 1)))
        a = bb.emit(relax.op.add(a, relax.const(floats(1, 4, 1, 1))))
        a = bb.emit(relax.op.nn.relu(a))
        b = bb.emit(relax.op.mean(a, [2, 3]))
        c = bb.emit(relax.op.nn.softmax(bb.emit(relax.op.matmul(b, relax.const(floats(4, 5))))))
        return bb.emit(relax.op.multiply(c, relax.const(np.float32(3))))

    return module(emit, floats(2, 3, 6, 6))


def half_lowered() -> Case:
    mod, inputs = _network()
    skipped = ["relax.nn.conv2d", "relax.nn.relu", "relax.matmul"]
    return relax.transform.LegalizeOps(skip_ops=skipped)(mod), inputs


def lowered() -> Case:
    mod, inputs = _network()
    return relax.transform.LegalizeOps()(mod), inputs


def _grouped(mod: IRModule) -> IRModule:
    steps = (
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
    )
    return tvm.transform.Sequential(steps)(mod)


def _with_operators_behind(mod: IRModule) -> IRModule:
    """``mod`` with ``tanh(negative(result))`` as the result."""
    func, builder = mod["main"], relax.BlockBuilder(mod)
    (block,) = func.body.blocks
    with builder.function("outer", func.params):
        with builder.dataflow():
            for binding in block.bindings:
                builder.emit_normalized(binding)
            value = builder.emit(relax.op.negative(func.body.body))
            value = builder.emit_output(builder.emit(relax.op.tanh(value)))
        builder.emit_func_output(value)
    done = builder.get()
    functions = {
        gvar: other for gvar, other in done.functions_items() if gvar.name_hint not in ("main", "outer")
    }
    return IRModule({**functions, relax.GlobalVar("main"): done["outer"].with_attr("global_symbol", "main")})


def grouped_before() -> Case:
    """``Primitive`` functions of TVM's fusion, with loose operators behind them."""
    mod, inputs = _network()
    return _with_operators_behind(_grouped(mod)), inputs


def fused_before() -> Case:
    """PrimFuncs that TVM has fused, with loose operators behind them."""
    mod, inputs = _network()
    return _with_operators_behind(relax.transform.FuseTIR()(_grouped(mod))), inputs


def scheduled_before() -> Case:
    """A PrimFunc with tuned loops."""
    sch = s_tir.Schedule(_Handwritten["swish"])
    i, j = sch.get_loops("swish")
    sch.vectorize(j)
    sch.parallel(i)
    tuned = sch.mod["main"].with_attrs({"tirx.is_scheduled": True})
    swish = _Handwritten.get_global_var("swish")
    return IRModule({**_Handwritten.functions, swish: tuned}), [floats(8, 16)]


@I.ir_module
class _PlainLoops:
    @T.prim_func(private=True)
    def swish(x: T.Buffer((8, 16), "float32"), y: T.Buffer((8, 16), "float32")):
        for i in range(8):
            for j in range(16):
                y[i, j] = x[i, j] * T.sigmoid(x[i, j])

    @R.function
    def main(x: R.Tensor((8, 16), "float32")) -> R.Tensor((8, 16), "float32"):
        cls = _PlainLoops
        with R.dataflow():
            a = R.negative(x)
            b = R.call_tir(cls.swish, (a,), out_ty=R.Tensor((8, 16), "float32"))
            c = R.abs(b)
            R.output(c)
        return c


def plain_loops() -> Case:
    return _PlainLoops, [floats(8, 16)]


@I.ir_module
class _InPlace:
    @T.prim_func(private=True, s_tir=True)
    def grow(x: T.Buffer((8, 16), "float32")):
        for i, j in T.grid(8, 16):
            with T.sblock("grow"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = x[vi, vj] * T.float32(3)

    @R.function
    def main(x: R.Tensor((8, 16), "float32")) -> R.Tensor((8, 16), "float32"):
        cls = _InPlace
        with R.dataflow():
            a = R.exp(x)
            b = R.negative(a)
            c = R.call_tir_inplace(cls.grow, (a,), inplace_indices=[0], out_ty=R.Tensor((8, 16), "float32"))
            d = R.tanh(b)
            e = R.add(c, d)
            R.output(e)
        return e


def in_place() -> Case:
    return _InPlace, [floats(8, 16)]


@I.ir_module
class _Symbolic:
    @T.prim_func(private=True, s_tir=True)
    def swish(a: T.handle, b: T.handle):
        n = T.int64()
        x = T.match_buffer(a, (n, T.int64(16)), "float32")
        y = T.match_buffer(b, (n, T.int64(16)), "float32")
        for i, j in T.grid(n, T.int64(16)):
            with T.sblock("swish"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.sigmoid(x[vi, vj])

    @R.function
    def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 16), "float32"):
        n = T.int64()
        cls = _Symbolic
        with R.dataflow():
            a = R.negative(x)
            b = R.call_tir(cls.swish, (a,), out_ty=R.Tensor((n, 16), "float32"))
            c = R.abs(b)
            R.output(c)
        return c


@I.ir_module
class _WithANumber:
    @T.prim_func(private=True, s_tir=True)
    def raised(
        x: T.Buffer((T.int64(8), T.int64(16)), "float32"),
        by: T.int64,
        y: T.Buffer((T.int64(8), T.int64(16)), "float32"),
    ):
        for i, j in T.grid(T.int64(8), T.int64(16)):
            with T.sblock("raised"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] + T.Cast("float32", by)

    @R.function
    def main(x: R.Tensor((8, 16), "float32")) -> R.Tensor((8, 16), "float32"):
        cls = _WithANumber
        with R.dataflow():
            a = R.exp(x)
            b = R.call_tir(cls.raised, (a, R.prim_value(T.int64(3))), out_ty=R.Tensor((8, 16), "float32"))
            c = R.tanh(b)
            R.output(c)
        return c


def with_a_number() -> Case:
    return _WithANumber, [floats(8, 16)]


def symbolic() -> Case:
    return _Symbolic, [floats(7, 16)]


@I.ir_module
class _OfLibraries:
    @R.function
    def main(x: R.Tensor((8, 16), "float32")) -> R.Tensor((8, 16), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.negative(a)
            c = R.call_dps_packed("tests.tir_modules.halved", (b,), out_ty=R.Tensor((8, 16), "float32"))
            d = R.tanh(c)
            e = R.sin(d)
            R.output(e)
        return e


@tvm.register_global_func("tests.tir_modules.halved", override=True)
def _halved(x: tvm.runtime.Tensor, y: tvm.runtime.Tensor) -> None:
    y.copyfrom(x.numpy() / 2)


def with_a_packed_call() -> Case:
    return _OfLibraries, [floats(8, 16)]


@I.ir_module
class _MixedIndexes:
    @T.prim_func(private=True, s_tir=True)
    def picked(x: T.Buffer((8, 16), "float32"), at: T.Buffer((8,), "int32"), y: T.Buffer((8, 4), "float32")):
        t = T.sblock_alloc_buffer((8, 4), "float32")
        for i, j, k in T.grid(8, 4, 4):
            with T.sblock("sum"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    t[vi, vj] = T.float32(0)
                t[vi, vj] = t[vi, vj] + x[at[vi], vj * 4 + vk]
        for i, j in T.grid(8, 4):
            with T.sblock("chosen"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = T.if_then_else(
                    vi % 2 == 0 and vj < 3, t[vi, vj], T.Cast("float32", vj * 10 + at[vi])
                )

    @R.function
    def main(x: R.Tensor((8, 16), "float32"), at: R.Tensor((8,), "int32")) -> R.Tensor((8, 4), "float32"):
        cls = _MixedIndexes
        with R.dataflow():
            a = R.negative(x)
            b = R.call_tir(cls.picked, (a, at), out_ty=R.Tensor((8, 4), "float32"))
            c = R.abs(b)
            R.output(c)
        return c


def mixed_indexes() -> Case:
    """32-bit loops and sizes, also in the values."""
    return _MixedIndexes, [floats(8, 16), np.array([3, 1, 0, 7, 6, 2, 2, 1], "int32")]


def _picked(x: np.ndarray, at: np.ndarray) -> np.ndarray:
    sums = -x[at].reshape(8, 4, 4).sum(2)
    rows, columns = np.indices((8, 4))
    return np.abs(np.where((rows % 2 == 0) & (columns < 3), sums, columns * 10 + at[:, None]))


RIGHT: dict[str, Callable[..., np.ndarray]] = {
    "handwritten": swished,
    "scheduled_before": swished,
    "plain_loops": swished,
    "in_place": lambda x: 3 * np.exp(x) + np.tanh(-np.exp(x)),
    "mixed_indexes": _picked,
}
"""The results of modules that TVM's fusion cannot compile, since they mix 32-bit sizes with those of Relax."""

CASES: dict[str, Callable[[], Case]] = {
    case.__name__: case
    for case in (
        between_operators,
        behind_a_product,
        a_product_of_te,
        only_emitted,
        a_long_chain,
        a_diamond,
        a_reduction_of_te,
        two_results,
        two_results_read_apart,
        a_split,
        a_concatenation_of_te,
        a_gather_of_te,
        handwritten,
        handwritten_with_a_pattern,
        half_lowered,
        lowered,
        grouped_before,
        fused_before,
        scheduled_before,
        plain_loops,
        in_place,
        symbolic,
        with_a_number,
        with_a_packed_call,
        mixed_indexes,
    )
}
