"""Small graphs that reach every part of what makes kernels of TVM, for the digests of ``test_versions.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax, topi
from tvm.ir import IRModule
from tvm.relax import op
from tvm.tirx import Var

from unity_collage.operators import gru, lstm, rnn
from unity_collage.testing import graphs

Shape = tuple[int | Var, ...]
Build = Callable[..., relax.Expr]

NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def module(build: Build, *shapes: Shape, weights: Sequence[Shape] = (), dtype: str = "float32") -> IRModule:
    """``main`` calls one kernel, computed by ``build`` of inputs of ``shapes`` and of constant ``weights``."""
    builder = relax.BlockBuilder()
    types = [relax.TensorType(shape, dtype) for shape in (*shapes, *weights)]
    params = [relax.Var(f"p{i}", ty) for i, ty in enumerate(types)]
    with builder.function("kernel", params, attrs={"Primitive": 1}, private=True):
        with builder.dataflow():
            result = builder.emit_output(build(*params))
        kernel = builder.emit_func_output(result)
    inputs = [relax.Var(f"x{i}", ty) for i, ty in enumerate(types[: len(shapes)])]
    constants = [relax.const(np.ones(shape, dtype)) for shape in weights]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(kernel, [*inputs, *constants]))
        builder.emit_func_output(result)
    return builder.get()


def loose(build: Build, *shapes: Shape, dtypes: Sequence[str] = ()) -> IRModule:
    """``main`` computes ``build`` itself: TVM decides what becomes one kernel."""
    builder = relax.BlockBuilder()
    named = dtypes or ["float32"] * len(shapes)
    inputs = [
        relax.Var(f"x{i}", relax.TensorType(shape, dtype))
        for i, (shape, dtype) in enumerate(zip(shapes, named, strict=True))
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(build(*inputs)))
        builder.emit_func_output(result)
    return builder.get()


def of_graph(name: str) -> IRModule:
    """One of the named graphs, as it is."""
    return IRModule({"main": graphs.GRAPHS[name]()})


def _layer(x: relax.Expr, w: relax.Expr, b: relax.Expr) -> relax.Expr:
    return op.nn.relu(op.add(op.matmul(x, w), b))


def _convolution(x: relax.Expr, w: relax.Expr, b: relax.Expr) -> relax.Expr:
    return op.nn.relu(op.add(op.nn.conv2d(x, w, padding=(1, 1), **NHWC), b))


def _functions(x: relax.Expr) -> relax.Expr:
    """All that have formulas of ours."""
    for function in (
        op.exp,
        op.tanh,
        op.sigmoid,
        op.erf,
        op.log,
        op.atan,
        op.asin,
        op.acos,
        op.sinh,
        op.cosh,
    ):
        x = op.add(function(x), x)
    x = op.nn.silu(op.power(x, relax.const(0.75)))
    return op.add(x, op.astype(op.isnan(x), "float32"))


def _rows() -> Var:
    return Var("n", "int64")


SCHEDULED: dict[str, Callable[[], IRModule]] = {
    "chain": lambda: of_graph("chain"),
    "split and concat": lambda: of_graph("split_projections_concat"),
    "gelu of a product": lambda: of_graph("gelu_extract"),
    "attention": lambda: of_graph("attention"),
    "inception": lambda: of_graph("inception_block"),
    "large sum": lambda: module(lambda x, y: op.nn.relu(op.add(x, y)), (1, 56, 56, 64), (64,)),
    "one long axis": lambda: module(op.exp, (100_000,)),
    "any rows": lambda: module(op.exp, (_rows(), 33)),
    "rows of any images": lambda: module(op.matmul, (_rows(), 14, 14, 512), (512, 256)),
    "transpose": lambda: module(lambda x: op.permute_dims(x, [1, 0]), (67, 130)),
    "functions": lambda: module(_functions, (40, 33)),
    "concat of many": lambda: module(lambda *x: op.concat(x, axis=1), *[(4, 5 + i) for i in range(8)]),
    "concat of more": lambda: module(lambda *x: op.concat(x, axis=1), *[(4, 5)] * 42),
    "quotients of rows": lambda: module(
        lambda x, a, b: op.add(op.divide(a, b), x), (64, 20), (64, 1), (64, 1)
    ),
    "pad": lambda: module(lambda x: op.nn.pad(x, [0, 0, 1, 2]), (40, 33)),
    "take": lambda: loose(lambda x, i: op.take(x, i, axis=0), (50, 33), (7,), dtypes=["float32", "int64"]),
    "softmax": lambda: module(op.nn.softmax, (64, 300)),
    "softmax of columns": lambda: module(lambda x: op.nn.softmax(x, axis=1), (2, 30, 64)),
    "group normalization": lambda: module(
        lambda x, a, b: op.nn.group_norm(x, a, b, 4, -1, [1, 2]), (1, 14, 14, 32), (32,), (32,)
    ),
    "any columns": lambda: module(lambda x: op.sum(x, [1]), (5, _rows())),
    "normalization": lambda: module(lambda x, a, b: op.nn.layer_norm(x, a, b, axes=[-1]), (64, 96), (96,), (96,)),
    "sum of rows": lambda: module(lambda x: op.sum(x, [1]), (64, 300)),
    "sum of columns": lambda: module(lambda x: op.mean(x, [1, 2]), (1, 28, 28, 64)),
    "sum of all": lambda: module(op.sum, (30, 70)),
    "reduction of pairs": lambda: module(
        lambda x: relax.BlockBuilder.current().call_te(topi.argmax, x, 1), (64, 300)
    ),
    "largest index": lambda: module(lambda x: op.argmax(x, axis=1), (64, 300)),
    "product": lambda: module(op.matmul, (197, 384), (384, 512)),
    "product of any rows": lambda: module(_layer, (_rows(), 784), weights=[(784, 500), (500,)]),
    "product of any rows into a temporary": lambda: module(
        lambda x, w: op.nn.softmax(op.matmul(x, w)), (_rows(), 64), (64, 48)
    ),
    "image of any size": lambda: module(
        lambda x, w: op.nn.conv2d(x, w, strides=2, padding=1, **NHWC), (2, _rows(), _rows(), 16), (3, 3, 16, 40)
    ),
    "first layer of any image": lambda: module(
        lambda x, w: op.nn.conv2d(x, w, strides=2, padding=1, data_layout="NHWC", kernel_layout="OHWI"),
        (1, _rows(), _rows(), 3),
        (16, 3, 3, 3),
    ),
    "pixels of any image": lambda: module(
        lambda x, w: op.nn.conv2d(x, w, **NHWC), (1, _rows(), _rows(), 16), (1, 1, 16, 40)
    ),
    "product of transposed": lambda: module(lambda x, w: op.matmul(x, op.permute_dims(w)), (40, 200), (300, 200)),
    "product of large transposed": lambda: module(
        lambda x, w: op.matmul(x, op.permute_dims(w)), (40, 3000), (3000, 3000)
    ),
    "product of long rows that are computed": lambda: module(
        lambda x, s, w: op.matmul(op.exp(op.multiply(x, s)), w), (512, 4096), (512, 1), (4096, 64)
    ),
    "product of what is computed": lambda: module(
        lambda x, s, w: op.matmul(op.exp(op.multiply(x, s)), w), (64, 64), (64, 1), (64, 64)
    ),
    "packed weights": lambda: module(_layer, (29, 784), weights=[(784, 500), (500,)]),
    "narrow packed weights of one row": lambda: module(_layer, (1, 784), weights=[(784, 240), (240,)]),
    "packed weights of one row": lambda: module(_layer, (1, 784), weights=[(784, 256), (256,)]),
    "packed filters": lambda: module(_convolution, (1, 14, 14, 64), weights=[(3, 3, 64, 256), (256,)]),
    "scaled input": lambda: module(
        lambda x, s, w: op.nn.conv2d(op.multiply(x, s), w, **NHWC), (1, 14, 14, 40), (1, 1, 1, 40), (1, 1, 40, 32)
    ),
    "depthwise": lambda: module(
        lambda x, w: op.nn.conv2d(x, w, groups=32, padding=(2, 2), **NHWC), (1, 14, 14, 32), (5, 5, 1, 32)
    ),
    "channels first": lambda: module(lambda x, w: op.nn.conv2d(x, w), (1, 8, 14, 14), (16, 8, 3, 3)),
    "pooling": lambda: module(lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), (1, 28, 28, 64)),
    "functions of bfloat16": lambda: module(
        lambda x: op.astype(op.nn.gelu(op.astype(x, "float32")), "bfloat16"), (40, 33), dtype="bfloat16"
    ),
    "steps of bfloat16 around a function": lambda: module(
        lambda x: op.multiply(op.astype(op.exp(op.astype(op.add(x, x), "float32")), "bfloat16"), x),
        (40, 33),
        dtype="bfloat16",
    ),
    "a function of integers to integers": lambda: module(
        lambda x: op.astype(op.log(op.astype(x, "float32")), "int64"), (40, 33), dtype="int64"
    ),
    "bfloat16": lambda: module(lambda x, w: op.tanh(op.matmul(x, w)), (40, 64), (64, 130), dtype="bfloat16"),
    "sort": lambda: loose(lambda x: op.sort(x, axis=1), (8, 30)),
    "running sum": lambda: loose(lambda x: op.cumsum(x, axis=1), (8, 30)),
    "scatter": lambda: loose(
        lambda x, i, y: op.scatter_elements(x, i, y, axis=1), (4, 9), (4, 3), (4, 3),
        dtypes=["float32", "int64", "float32"],
    ),
    "no elements": lambda: module(op.exp, (0, 4)),
    "lstm": lambda: loose(lstm, (5, 2, 32), (8, 32), (2, 8), (2, 8)),
    "gru": lambda: loose(gru, (5, 2, 24), (8, 24), (2, 8), (8,)),
    "rnn": lambda: loose(rnn, (5, 2, 8), (8, 8), (2, 8)),
}  # fmt: skip
"""By name."""

EXTRACTED: dict[str, Callable[[], relax.Function]] = {
    **graphs.GRAPHS,
    "lstm": lambda: SCHEDULED["lstm"]()["main"],
    "packed weights": lambda: _bound(SCHEDULED["packed weights"]()),
}
"""By name, functions whose bindings are operators."""


LOWERED: dict[str, Callable[[], relax.Function]] = {
    "attention": lambda: SCHEDULED["attention"]()["main"],
    "winograd": lambda: _with_constants(lambda x, w: op.nn.relu(op.nn.conv2d(x, w, padding=(1, 1), **NHWC)),
                                        (1, 12, 12, 16), (3, 3, 16, 32)),
    "grouped": lambda: _with_constants(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1), groups=4, **NHWC),
                                       (1, 12, 12, 64), (3, 3, 16, 64)),
    **{name: (lambda name=name: _packed(SCHEDULED[name]()["main"])) for name in ("lstm", "gru", "rnn")},
}  # fmt: skip
"""By name, functions of operators that kernels of our own take."""


def _packed(cell: relax.Function) -> relax.Function:
    """A recurrent layer whose weights are constants."""
    weights = cell.params[1]
    return cell.bind_params(
        {weights: relax.const(np.ones([int(n) for n in weights.ty.shape.values], "float32"))}
    )


def _with_constants(build: Build, shape: Shape, weights: Shape) -> relax.Function:
    """``build`` of an input and of a constant, operator by operator."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    values = np.random.default_rng(0).standard_normal([int(extent) for extent in weights], dtype="float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(x, relax.const(values)))
        builder.emit_func_output(result)
    return builder.get()["main"]


def _bound(mod: IRModule) -> relax.Function:
    """The kernel of :func:`module` as a function with constants of its own."""
    kernel = mod["kernel"]
    constants = {
        param: relax.const(np.ones([int(n) for n in param.ty.shape.values], "float32"))
        for param in kernel.params[1:]
    }
    return kernel.bind_params(constants)
