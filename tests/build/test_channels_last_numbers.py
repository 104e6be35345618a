"""ChannelsLast changes no number: small graphs, compiled before and after."""

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op

from unity_collage.passes.channels_last import ChannelsLast

TARGET = tvm.target.Target("llvm")
RNG = np.random.default_rng(7)


def constant(*shape):
    return relax.const(RNG.standard_normal(shape).astype("float32"))


def module(body, *shapes):
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(builder.emit, *params)))
        builder.emit_func_output(out)
    return builder.get()


def run(mod, inputs):
    machine = relax.VirtualMachine(relax.build(mod, TARGET), tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(array) for array in inputs])
    return [result.numpy()] if hasattr(result, "numpy") else [field.numpy() for field in result]


def image_operators(mod):
    """The layouts of the operators that have one."""
    calls = [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
    attrs = [call.attrs for call in calls if isinstance(call, relax.Call)]
    return [getattr(a, "data_layout", None) or a.layout for a in attrs if hasattr(a, "out_layout")]


def biased(e, x, channels, out, kernel=(3, 3), **attrs):
    x = e(op.nn.conv2d(x, constant(out, channels // attrs.get("groups", 1), *kernel), **attrs))
    return e(op.add(x, constant(1, out, 1, 1)))


def inception(e, x):
    x = e(op.nn.relu(biased(e, x, 3, 8, padding=1)))
    left = e(op.nn.relu(biased(e, x, 8, 4, (1, 1))))
    pooled = e(op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1)))
    return op.mean(e(op.concat([left, e(op.nn.relu(pooled)), x], axis=1)), axis=[2, 3])


def separable(e, x):
    x = biased(e, x, 8, 8, groups=8, padding=(0, 1, 2, 1), strides=(2, 1))
    x = biased(e, e(op.clip(x, 0, 6)), 8, 16, groups=4, dilation=2, padding=2)
    return op.nn.softmax(x, axis=1)


def halves(e, x):
    x = biased(e, x, 3, 8)
    parts = e(op.split(x, [3, 5], axis=1))
    first, last = e(relax.TupleGetItem(parts, 0)), e(relax.TupleGetItem(parts, 2))
    return op.strided_slice(e(op.maximum(first, last)), [3, 1], [1, 0], [10, 3], [3, 2])


def residual(e, x):
    y = biased(e, e(op.nn.relu(biased(e, x, 4, 6, padding=1))), 6, 4, padding=1)
    y = e(op.nn.gelu(e(op.add(y, x))))
    return e(op.nn.avg_pool2d(y, (3, 3), (2, 2), (1, 0, 1, 2), ceil_mode=True, count_include_pad=False))


def normalised(e, x):
    x = e(op.nn.relu(biased(e, x, 3, 9)))
    wide = e(op.expand_dims(e(op.multiply(x, x)), axis=1))
    sums = e(op.squeeze(e(op.nn.avg_pool3d(wide, (5, 1, 1), padding=(2, 0, 0, 2, 0, 0))), axis=[1]))
    return op.divide(x, e(op.power(e(op.add(sums, relax.const(1.0))), relax.const(0.75))))


def patches(e, x):
    x = biased(e, x, 3, 8, (4, 4), strides=4)
    tokens = e(op.permute_dims(e(op.reshape(x, (2, 8, 6))), [0, 2, 1]))
    return op.matmul(tokens, constant(8, 5))


def shuffled(e, x):
    x = e(op.reshape(biased(e, x, 3, 6), (2, 3, 2, 6, 10)))
    x = e(op.reshape(e(op.permute_dims(x, [0, 2, 1, 3, 4])), (2, 6, 6, 10)))
    return op.reshape(x, (2, 360))


def gated(e, x):
    x = biased(e, x, 3, 8)
    gate = e(op.reshape(e(op.matmul(e(op.mean(x, axis=[2, 3])), constant(8, 8))), (2, 8, 1, 1)))
    return op.multiply(x, e(op.sigmoid(biased(e, gate, 8, 8, (1, 1)))))


def resized(e, x):
    x = e(op.image.resize2d(biased(e, x, 3, 4), (11, 7)))
    x = e(op.nn.pad(x, [0, 0, 0, 0, 1, 2, 3, 0], "reflect"))
    x = e(op.nn.instance_norm(x, constant(4), constant(4), channel_axis=1, axes=[2, 3]))
    return op.stack([x, e(op.flip(x, axis=1))], axis=2)


def transposed(e, x):
    x = biased(e, x, 3, 4)
    x = e(op.nn.conv2d_transpose(x, constant(4, 3, 3, 3), strides=(2, 2)))
    return op.nn.adaptive_avg_pool2d(x, 3)


@pytest.mark.parametrize(
    "body",
    [inception, halves, normalised, patches, shuffled, gated, resized, transposed],
    ids=lambda body: body.__name__,
)
def test_graphs_on_an_rgb_image(body):
    compare(module(body, (2, 3, 8, 12)))


def test_depthwise_and_grouped_convolutions():
    compare(module(separable, (2, 8, 9, 7)))


def test_residual_and_uneven_pooling():
    compare(module(residual, (2, 4, 8, 7)))


def test_weights_that_are_inputs():
    def body(_, x, w):
        return op.nn.conv2d(x, w, padding=1)

    compare(module(body, (1, 3, 6, 5), (4, 3, 3, 3)))


@pytest.mark.parametrize(
    ("image", "weight", "convolution", "pool"),
    [
        ((2, 4, 9), (6, 2, 3), op.nn.conv1d, op.nn.avg_pool1d),
        ((1, 4, 5, 6, 7), (6, 2, 3, 3, 3), op.nn.conv3d, op.nn.max_pool3d),
    ],
)
def test_other_ranks(image, weight, convolution, pool):
    def body(e, x):
        return pool(e(convolution(x, constant(*weight), groups=2, padding=1)))

    compare(module(body, image))


def test_a_symbolic_batch():
    def body(e, x):
        return op.mean(e(op.nn.relu(biased(e, x, 3, 4))), axis=[2, 3])

    compare(module(body, (tirx.Var("n", "int64"), 3, 6, 5)), RNG.standard_normal((2, 3, 6, 5)))


def compare(mod, *inputs):
    """Equal outputs, and some image operator holds its channels last now."""
    out = ChannelsLast()(mod)
    if not inputs:
        inputs = [RNG.standard_normal([int(n) for n in p.ty.shape.values]) for p in mod["main"].params]
    inputs = [array.astype("float32") for array in inputs]
    for before, after in zip(run(mod, inputs), run(out, inputs), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)
    assert image_operators(out) != image_operators(mod)
