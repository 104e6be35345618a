"""Products, convolutions and pooling by register tiles, with what follows them."""

import numpy as np
import pytest
import tvm
from schedule_checks import TARGET, built, check, floats, padded, scheduled, windows
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import tirx as T

from unity_collage.annotations import UNSCHEDULED
from unity_collage.passes.schedule_cpu import ScheduleCPU
from unity_collage.schedule import schedule

relu = op.nn.relu
NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


@pytest.mark.parametrize(
    "sizes", [(128, 64, 96), (197, 33, 1000), (7, 5, 3), (49, 40, 10), (1, 64, 300), (6, 16, 1)]
)
def test_product_with_bias_and_activation(sizes):
    m, k, n = sizes
    check(lambda x, w, b: relu(op.add(op.matmul(x, w), b)), lambda x, w, b: np.maximum(x @ w + b, 0),
          floats(m, k), floats(k, n), floats(n))  # fmt: skip


def test_product_with_a_residual_and_no_bias():
    check(lambda x, w, r: op.add(op.matmul(x, w), r), lambda x, w, r: x @ w + r,
          floats(1, 50, 64), floats(64, 80), floats(1, 50, 80))  # fmt: skip


@pytest.mark.parametrize("rows", [1, 50])
def test_product_with_transposed_weights(rows):
    check(lambda x, w: op.matmul(x, op.permute_dims(w, [1, 0])), lambda x, w: x @ w.T,
          floats(rows, 70), floats(90, 70), one_kernel=True)  # fmt: skip


def test_matrix_times_vector():
    check(op.matmul, np.matmul, floats(65, 33), floats(33))


@pytest.mark.parametrize("width", [6, 40])
def test_product_whose_rows_are_spread_over_an_image(width):
    def build(x, w, b):
        rows = relu(op.add(op.matmul(x, w), b))
        return op.permute_dims(rows, [2, 3, 0, 4, 1, 5])

    check(build, lambda x, w, b: np.maximum(x @ w + b, 0).transpose(2, 3, 0, 4, 1, 5),
          floats(1, 1, 2, 5, width, 9), floats(2, 3, 1, 1, 9, 33), floats(33), one_kernel=True)  # fmt: skip


@pytest.mark.parametrize("size", [6, 1])
def test_pointwise_convolution_of_gated_channels(size):
    def build(x, s, w, b):
        return op.add(op.nn.conv2d(op.multiply(x, s), w, **NHWC), b)

    shapes = [(1, size, size, 40), (1, 1, 1, 40), (1, 1, 40, 24), (24,)]
    arrays = [floats(*shape) for shape in shapes]
    check(build, lambda x, s, w, b: (x * s) @ w[0, 0] + b, *arrays, one_kernel=True)


def test_product_of_gated_rows():
    check(lambda s, x, w: op.matmul(op.multiply(s, x), w), lambda s, x, w: (s * x) @ w,
          floats(40), floats(30, 40), floats(40, 50), one_kernel=True)  # fmt: skip
    check(lambda s, x, w: op.matmul(op.multiply(s, x), w), lambda s, x, w: (s * x) @ w,
          floats(30, 1), floats(30, 40), floats(40, 50), one_kernel=True)  # fmt: skip


@pytest.mark.parametrize("size", [14, 7, 12])
@pytest.mark.parametrize("fields", [(16, 32), (24,), (8, 8, 5)])
def test_pointwise_convolution_of_what_is_computed_just_before(size, fields):
    """By bands of rows, with what is joined, scaled and cut off for it."""
    images = [floats(1, size, size, channels, seed=i) for i, channels in enumerate(fields)]
    s, w, b = floats(1, 1, 1, sum(fields)), floats(1, 1, sum(fields), 40), floats(1, 1, 1, 40)

    def build(*args):
        *parts, factor, weights, bias = args
        whole = op.concat(parts, -1) if len(parts) > 1 else parts[0]
        before = op.nn.relu(op.add(op.multiply(whole, factor), factor))
        return op.nn.relu(
            op.add(op.nn.conv2d(before, weights, data_layout="NHWC", kernel_layout="HWIO"), bias)
        )

    def expected(*args):
        *parts, factor, weights, bias = args
        before = np.maximum(np.concatenate(parts, -1) * factor + factor, 0)
        return np.maximum(before @ weights[0, 0] + bias, 0)

    check(build, expected, *images, s, w, b, one_kernel=True)


def test_rows_of_a_product_are_computed_in_bands():
    text = scheduled(lambda x, w: op.matmul(op.nn.relu(x), w), (512, 256), (256, 64), one_kernel=True)
    assert "band = T.sblock_alloc_buffer((256, 256))" in text


def test_product_of_integers():
    x = np.arange(70, dtype="int32").reshape(7, 10)
    check(op.matmul, np.matmul, x, x.T.copy(), rtol=0)


def test_attention_is_one_kernel():
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def build(q, k, v):
        scores = op.multiply(op.matmul(q, op.permute_dims(k, [0, 2, 1])), relax.const(0.25))
        return op.matmul(op.nn.softmax(scores), v)

    check(build, lambda q, k, v: softmax(q @ k.transpose(0, 2, 1) * 0.25) @ v,
          floats(3, 37, 16), floats(3, 37, 16, seed=1), floats(3, 37, 16, seed=2), one_kernel=True)  # fmt: skip


def test_expensive_operand_is_computed_once():
    check(lambda x, w: op.matmul(op.tanh(x), w), lambda x, w: np.tanh(x) @ w,
          floats(20, 64), floats(64, 48), one_kernel=True)  # fmt: skip


def conv_nhwc(x, w, stride, pad):
    return np.einsum("nyxcab,abcf->nyxf", windows(padded(x, pad, (1, 2)), w.shape[0], stride, (1, 2)), w)


@pytest.mark.parametrize(
    ("size", "channels", "filters", "kernel", "stride"),
    [(14, 16, 32, 3, 1), (7, 20, 33, 3, 1), (9, 3, 10, 3, 2), (14, 64, 24, 1, 1), (23, 3, 16, 7, 2)],
)
def test_convolution_nhwc(size, channels, filters, kernel, stride):
    pad = kernel // 2

    def build(x, w, b):
        conv = op.nn.conv2d(x, w, strides=(stride, stride), padding=(pad, pad), **NHWC)
        return relu(op.add(conv, b))

    check(build, lambda x, w, b: np.maximum(conv_nhwc(x, w, stride, pad) + b, 0),
          floats(1, size, size, channels), floats(kernel, kernel, channels, filters), floats(filters))  # fmt: skip


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (4, 4), (1, 1)])
def test_convolution_nhwc_of_an_image_nchw(kernel, stride):
    pad = kernel // 2 if kernel % 2 else 0

    def build(x, w):
        image = op.permute_dims(x, [0, 2, 3, 1])
        return relu(op.nn.conv2d(image, w, strides=(stride, stride), padding=(pad, pad), **NHWC))

    check(build, lambda x, w: np.maximum(conv_nhwc(x.transpose(0, 2, 3, 1), w, stride, pad), 0),
          floats(1, 3, 20, 20), floats(kernel, kernel, 3, 32), one_kernel=True)  # fmt: skip


@pytest.mark.parametrize(("size", "kernel", "stride"), [(14, 3, 1), (7, 1, 1), (15, 3, 2), (28, 5, 1)])
def test_convolution_nchw(size, kernel, stride):
    pad = kernel // 2

    def expected(x, w, b):
        cut = windows(padded(x, pad, (2, 3)), kernel, stride, (2, 3))
        return np.maximum(np.einsum("ncyxab,fcab->nfyx", cut, w) + b, 0)

    def build(x, w, b):
        return relu(op.add(op.nn.conv2d(x, w, strides=(stride, stride), padding=(pad, pad)), b))

    check(build, expected, floats(1, 12, size, size), floats(20, 12, kernel, kernel), floats(1, 20, 1, 1))


def test_the_next_image_of_a_convolution_over_one_column_is_fetched_ahead():
    """The axis of the lanes is not the last one of the images."""
    x, w = floats(32, 64, 16, 1), floats(32, 64, 1, 1)
    assert "llvm.prefetch" in scheduled(op.nn.conv2d, x.shape, w.shape)
    check(op.nn.conv2d, lambda x, w: np.einsum("ncyx,fcab->nfyx", x, w), x, w)


@pytest.mark.parametrize(("channels", "stride"), [(64, 1), (20, 2), (3, 1)])
def test_depthwise_convolution_nhwc(channels, stride):
    def build(x, w):
        return op.nn.conv2d(x, w, strides=(stride, stride), padding=(1, 1), groups=channels, **NHWC)

    def expected(x, w):
        return np.einsum("nyxcab,abc->nyxc", windows(padded(x, 1, (1, 2)), 3, stride, (1, 2)), w[:, :, 0])

    check(build, expected, floats(1, 13, 13, channels), floats(3, 3, 1, channels))


def test_grouped_convolution_nhwc():
    def build(x, w):
        return op.nn.conv2d(x, w, padding=(1, 1), groups=4, **NHWC)

    def expected(x, w):
        pairs = zip(np.split(x, 4, -1), np.split(w, 4, -1), strict=True)
        return np.concatenate([conv_nhwc(part, weights, 1, 1) for part, weights in pairs], -1)

    check(build, expected, floats(1, 9, 9, 32), floats(3, 3, 8, 48))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(("size", "stride"), [(14, 1), (15, 2), (7, 2)])
def test_max_pool(layout, size, stride):
    axes = (1, 2) if layout == "NHWC" else (2, 3)
    shape = (2, size, size, 20) if layout == "NHWC" else (2, 20, size, size)

    def build(x):
        return op.nn.max_pool2d(x, (3, 3), (stride, stride), (1, 1, 1, 1), layout=layout)

    check(
        build, lambda x: windows(padded(x, 1, axes, -np.inf), 3, stride, axes).max((-1, -2)), floats(*shape)
    )


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("counts_padding", [True, False])
def test_average_pool(layout, counts_padding):
    axes = (1, 2) if layout == "NHWC" else (2, 3)

    def build(x):
        return op.nn.avg_pool2d(
            x, (3, 3), (1, 1), (1, 1, 1, 1), layout=layout, count_include_pad=counts_padding
        )

    def expected(x):
        ones = windows(padded(np.ones_like(x), 1, axes), 3, 1, axes).sum((-1, -2))
        return windows(padded(x, 1, axes), 3, 1, axes).sum((-1, -2)) / (9 if counts_padding else ones)

    check(build, expected, floats(1, 12, 12, 12))


def test_pool_into_a_part_of_a_larger_output():
    def build(x):
        return op.concat([op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1), layout="NHWC"), x], axis=-1)

    def expected(x):
        pooled = windows(padded(x, 1, (1, 2), -np.inf), 3, 1, (1, 2)).max((-1, -2))
        return np.concatenate([pooled, x], -1)

    check(build, expected, floats(1, 14, 14, 32), one_kernel=True)


def test_a_product_that_starts_from_a_bias():
    @I.ir_module
    class Before:
        @T.prim_func(s_tir=True)
        def main(
            a: T.Buffer((20, 30), "float32"),
            b: T.Buffer((30, 40), "float32"),
            bias: T.Buffer((40,), "float32"),
            c: T.Buffer((20, 40), "float32"),
        ):
            for i, j, k in T.grid(20, 40, 30):
                with T.sblock("c"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        c[vi, vj] = bias[vj]
                    c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]

    after = ScheduleCPU(TARGET)(Before)
    assert "acc" in after.script()
    arrays = [floats(20, 30), floats(30, 40), floats(40), np.zeros((20, 40), "float32")]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(after, TARGET)["main"](*tensors)
    np.testing.assert_allclose(tensors[3].numpy(), arrays[0] @ arrays[1] + arrays[2], rtol=1e-4, atol=1e-4)


def test_a_copy_of_a_padded_image_reads_inside_of_it():
    """The copy has the condition of the padding; it read before the image's first element when it had none."""

    def build(x, w):
        made = relu(op.nn.conv2d(x, w, padding=[1, 1, 1, 1], **NHWC))
        return op.permute_dims(made, [0, 3, 1, 2])

    text = scheduled(build, (1, 32, 32, 3), (3, 3, 3, 8), one_kernel=True)
    reads = [line for line in text.splitlines() if "= " in line and "x0[" in line]
    assert reads and all("packed[" in line and "T.if_then_else(" in line for line in reads)

    def reference(x, w):
        return np.maximum(np.einsum("nyxcrs,rsco->noyx", windows(padded(x, 1, (1, 2)), 3, 1, (1, 2)), w), 0)

    check(build, reference, floats(1, 32, 32, 3), floats(3, 3, 3, 8), one_kernel=True)


@T.prim_func(private=True, s_tir=True)
def _one_result_and_one_temporary(
    x: T.Buffer((256, 64), "float32"), squares: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")
):
    total = T.sblock_alloc_buffer((64,), "float32")
    for i, k in T.grid(64, 256):
        with T.sblock("both"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
                squares[vi] = T.float32(0)
            total[vi] = total[vi] + x[vk, vi]
            squares[vi] = squares[vi] + x[vk, vi] * x[vk, vi]
    for i in range(64):
        with T.sblock("y"):
            vi = T.axis.spatial(64, i)
            y[vi] = squares[vi] * T.float32(2)


def test_a_result_beside_a_temporary_is_written():
    x = floats(256, 64)
    squares, y = (tvm.runtime.tensor(np.full(64, np.nan, "float32")) for _ in range(2))
    built(_one_result_and_one_temporary)(tvm.runtime.tensor(x), squares, y)
    np.testing.assert_allclose(squares.numpy(), (x * x).sum(0), rtol=1e-4)
    np.testing.assert_allclose(y.numpy(), 2 * (x * x).sum(0), rtol=1e-4)


@T.prim_func(private=True, s_tir=True)
def _product_in_place(x: T.Buffer((96, 128), "float32"), w: T.Buffer((128, 128), "float32")):
    c = T.sblock_alloc_buffer((96, 128), "float32")
    for i, j, k in T.grid(96, 128, 128):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + x[vi, vk] * w[vk, vj]
    for i, j in T.grid(96, 128):
        with T.sblock("x"):
            vi, vj = T.axis.remap("SS", [i, j])
            x[vi, vj] = T.max(c[vi, vj], T.float32(0))


@T.prim_func(private=True, s_tir=True)
def _banded_product_in_place(x: T.Buffer((96, 128), "float32"), w: T.Buffer((128, 128), "float32")):
    t = T.sblock_alloc_buffer((96, 128), "float32")
    c = T.sblock_alloc_buffer((96, 128), "float32")
    for i, k in T.grid(96, 128):
        with T.sblock("t"):
            vi, vk = T.axis.remap("SS", [i, k])
            t[vi, vk] = T.exp(x[95 - vi, vk])
    for i, j, k in T.grid(96, 128, 128):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + t[vi, vk] * w[vk, vj]
    for i, j in T.grid(96, 128):
        with T.sblock("x"):
            vi, vj = T.axis.remap("SS", [i, j])
            x[vi, vj] = T.max(c[vi, vj], T.float32(0))


@pytest.mark.parametrize("banded", [False, True])
def test_a_product_in_place_reads_its_operand_before_it_is_changed(banded):
    x, w = floats(96, 128), floats(128, 128)
    changed = tvm.runtime.tensor(x)
    built(_banded_product_in_place if banded else _product_in_place)(changed, tvm.runtime.tensor(w))
    rows = np.exp(x[::-1]) if banded else x
    np.testing.assert_allclose(changed.numpy(), np.maximum(rows @ w, 0), rtol=1e-3, atol=1e-3)


@T.prim_func(private=True, s_tir=True)
def _product_of_chosen_steps(
    a: T.Buffer((64, 96), "float32"),
    b: T.Buffer((128, 96), "float32"),
    chosen: T.Buffer((96,), "bool"),
    c: T.Buffer((64, 128), "float32"),
):
    for i, j, k in T.grid(64, 128, 96):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = T.if_then_else(chosen[vk], c[vi, vj] + a[vi, vk] * b[vj, vk], c[vi, vj])


def test_a_copy_has_no_result():
    a, b, chosen = floats(64, 96), floats(128, 96), np.arange(96) % 3 > 0
    c = tvm.runtime.tensor(np.full((64, 128), np.nan, "float32"))
    built(_product_of_chosen_steps)(*map(tvm.runtime.tensor, (a, b, chosen)), c)
    np.testing.assert_allclose(c.numpy(), (a * chosen) @ b.T, rtol=1e-3, atol=1e-3)


@T.prim_func(private=True, s_tir=True)
def _triangular_product(
    a: T.Buffer((256, 256), "float32"), b: T.Buffer((256, 256), "float32"), c: T.Buffer((256, 256), "float32")
):
    for i, j, k in T.grid(256, 256, 256):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + T.if_then_else(vk <= vi, a[vi, vk] * b[vk, vj], T.float32(0))


def test_columns_under_a_condition_on_rows_are_read_in_place():
    a, b = floats(256, 256), floats(256, 256)
    c = tvm.runtime.tensor(np.full((256, 256), np.nan, "float32"))
    built(_triangular_product)(*map(tvm.runtime.tensor, (a, b)), c)
    np.testing.assert_allclose(c.numpy(), np.tril(a) @ b, rtol=1e-3, atol=1e-3)


@T.prim_func(private=True, s_tir=True)
def _windows_of_bytes(
    x: T.Buffer((8, 64), "int8"), w: T.Buffer((8, 8, 3), "float32"), y: T.Buffer((8, 32), "float32")
):
    for o, j, c, k in T.grid(8, 32, 8, 3):
        with T.sblock("y"):
            vo, vj, vc, vk = T.axis.remap("SSRR", [o, j, c, k])
            with T.init():
                y[vo, vj] = T.float32(0)
            y[vo, vj] = y[vo, vj] + w[vo, vc, vk] * T.if_then_else(
                vj * 2 + vk < 64, T.Cast("float32", x[vc, vj * 2 + vk]), T.float32(0)
            )


def test_a_copy_has_the_type_of_what_it_copies():
    x = np.random.default_rng(0).integers(-9, 9, (8, 64)).astype("int8")
    w, y = floats(8, 8, 3), tvm.runtime.tensor(np.full((8, 32), np.nan, "float32"))
    made = schedule(_windows_of_bytes, TARGET)
    assert UNSCHEDULED not in made.attrs
    built(_windows_of_bytes)(*map(tvm.runtime.tensor, (x, w)), y)
    padded_x = np.pad(x.astype("float32"), ((0, 0), (0, 2)))
    taken = np.stack([padded_x[:, k : k + 64 : 2] for k in range(3)])
    np.testing.assert_allclose(y.numpy(), np.einsum("ock,kcj->oj", w, taken), rtol=1e-4, atol=1e-4)
