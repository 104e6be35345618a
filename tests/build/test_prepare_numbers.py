"""The normal form computes what the model computed: by TVM's own kernels before and after, and by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import zoo_models as models
from tvm import relax, topi
from tvm.ir import IRModule
from tvm.relax import op

from unity_collage import reference
from unity_collage.frontend.models import import_model
from unity_collage.passes.prepare import Prepare


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("float32")


def const(*shape: int, seed: int = 1) -> relax.Expr:
    return relax.const(draw(*shape, seed=seed))


def module(make, shape: tuple[int, ...]) -> IRModule:
    """``make(builder, x)`` as the ``main`` of a module."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(make(builder, x))
        builder.emit_func_output(y)
    return builder.get()


def conv_net(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Imported pads, batch norm, clip, a strided path, hard-swish, a global pool."""
    padded = builder.emit_te(topi.nn.pad, x, (0, 0, 0, 0), (0, 0, 1, 1), 0.0)
    a = builder.emit(op.nn.conv2d(padded, const(8, 4, 3, 3), strides=2))
    stats = [const(8), const(8, seed=2), const(8, seed=3), relax.const(np.abs(draw(8, seed=4)))]
    b = builder.emit(relax.TupleGetItem(builder.emit(op.nn.batch_norm(a, *stats, axis=1, training=False)), 0))
    c = builder.emit_te(topi.maximum, b, 0.0)
    d = builder.emit_te(topi.minimum, c, 6.0)
    shifted = builder.emit_te(topi.nn.pad, d, (0, 0, -1, -1), (0, 0, 1, 1), 0.0)
    e = builder.emit(op.nn.avg_pool2d(shifted, (1, 1), strides=2))
    f = builder.emit(op.add(op.nn.conv2d(e, const(8, 8, 1, 1)), op.reshape(const(8), (1, 8, 1, 1))))
    g = builder.emit(op.multiply(f, op.divide(op.clip(op.add(f, relax.const(3.0)), 0, 6), relax.const(6.0))))
    return builder.emit(op.squeeze(op.nn.adaptive_avg_pool2d(g, (1, 1)), [2, 3]))


def transformer(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """A layer norm in parts, query, key and value by one product, a scaled query, GELU in parts."""
    centred = builder.emit(op.subtract(x, op.mean(x, -1, True)))
    spread = builder.emit(op.mean(op.power(centred, relax.const(2.0)), [-1], True))
    normal = builder.emit(op.divide(centred, op.sqrt(op.add(spread, relax.const(1e-5)))))
    made = builder.emit(op.add(op.matmul(normal, const(16, 48)), const(48)))
    moved = builder.emit(op.permute_dims(op.reshape(made, (1, 5, 3, 2, 8)), [2, 0, 3, 1, 4]))
    parts = builder.emit(op.split(moved, 3, 0))
    q, k, v = (builder.emit(op.squeeze(builder.emit(relax.TupleGetItem(parts, i)), [0])) for i in range(3))
    scores = builder.emit(op.matmul(op.multiply(q, relax.const(0.35)), op.permute_dims(k, [0, 1, 3, 2])))
    mixed = builder.emit(op.matmul(op.nn.softmax(scores), v))
    joined = builder.emit(op.reshape(op.permute_dims(mixed, [0, 2, 1, 3]), (1, 5, 16)))
    gate = builder.emit(op.add(op.erf(op.divide(joined, relax.const(2**0.5))), relax.const(1.0)))
    return builder.emit(op.multiply(op.multiply(joined, gate), relax.const(0.5)))


def run(mod: IRModule, x: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


@pytest.mark.parametrize(
    ("make", "shape", "gone"),
    [
        (conv_net, (1, 4, 16, 16), ("call_tir", "batch_norm", "avg_pool")),
        (transformer, (1, 5, 16), ("split", "erf", "R.power", "0.34999", "squeeze")),
    ],
)
def test_the_program_built_after_prepare_computes_the_same(make, shape, gone):
    before = module(make, shape)
    after = Prepare()(before)
    assert not [name for name in gone if name in after.script()]
    x = draw(*shape, seed=9)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["mnist_mlp", "nasrnn", "squeezenet"])
def test_whole_models_agree_with_onnx_runtime(name):
    runtime = pytest.importorskip("onnxruntime")
    model = models.load(name)
    inputs = models.inputs(model)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    after = Prepare()(import_model(model).mod)
    results = reference.run(after["main"], [inputs[param.name] for param in after["main"].params])
    for got, wanted in zip(results, expected, strict=True):
        assert np.abs(got - wanted).max() <= 1e-5 * np.ptp(wanted)
