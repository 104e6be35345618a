"""Kernels with symbolic extents: right for every size, and parallel."""

import re

import numpy as np
import pytest
import tvm
from schedule_checks import TARGET, WIDE, built, floats, module, run, scheduled
from tvm import relax, s_tir, tirx
from tvm.relax import op
from tvm.script import tirx as T
from tvm.tirx import ForKind

from unity_collage.passes.schedule_cpu import ScheduleCPU
from unity_collage.schedule.stage import nodes

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


CASES = {
    "element-wise": (
        lambda x, b: op.nn.relu(op.add(x, b)),
        [(N, 64), (64,)],
        lambda x, b: np.maximum(x + b, 0),
    ),
    "one axis": (op.tanh, [(N,)], np.tanh),
    "softmax": (op.nn.softmax, [(N, M)], softmax),
    "product": (
        lambda x, w, b: op.add(op.matmul(x, w), b),
        [(N, 64), (64, 48), (48,)],
        lambda x, w, b: x @ w + b,
    ),
    "product of images": (  # the rows are a multiple of 196
        op.matmul,
        [(N, 14, 14, 512), (512, 256)],
        np.matmul,
    ),
    "product of both": (op.matmul, [(N, M), (M, N)], np.matmul),
    "sum": (lambda x: op.sum(x, axis=-1), [(N, M)], lambda x: x.sum(-1)),
    "mean": (lambda x: op.mean(x, axis=[0]), [(N, 64)], lambda x: x.mean(0)),
    "transpose": (lambda x: op.permute_dims(x, [1, 0]), [(N, M)], np.transpose),
    "concat": (
        lambda x, y: op.concat([x, y], axis=-1),
        [(N, M), (N, 3)],
        lambda x, y: np.concatenate([x, y], -1),
    ),
    "sum of all": (op.sum, [(N, M)], lambda x: x.sum()),
}


@pytest.mark.parametrize("case", CASES)
def test_any_size(case):
    build, shapes, reference = CASES[case]
    mod = module(build, shapes, ["float32"] * len(shapes))
    for n, m in ((1, 1), (5, 33), (7, 6), (70, 197), (300, 70)):
        sizes = {N: n, M: m}
        arrays = [
            floats(*(sizes.get(extent, extent) for extent in shape), seed=i) for i, shape in enumerate(shapes)
        ]
        np.testing.assert_allclose(run(mod, *arrays)[0], reference(*arrays), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ["element-wise", "one axis", "softmax", "product", "sum", "transpose"])
def test_symbolic_kernels_are_parallel(case):
    build, shapes, _ = CASES[case]
    mod = ScheduleCPU(TARGET)(module(build, shapes, ["float32"] * len(shapes)))
    assert "T.parallel" in mod.script()


@pytest.mark.parametrize("case", ["element-wise", "one axis", "softmax", "sum", "transpose"])
def test_the_size_at_run_time_decides_whether_threads_share_the_work(case):
    build, shapes, _ = CASES[case]
    mod = ScheduleCPU(TARGET)(module(build, shapes, ["float32"] * len(shapes)))
    (kernel,) = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    choices = [each for each in nodes(kernel.body, tirx.IfThenElse) if nodes(each, tirx.For)]
    kinds = [
        {loop.kind == ForKind.PARALLEL for loop in nodes(branch, tirx.For)}
        for branch in (choices[-1].then_case, choices[-1].else_case)
    ]
    assert kinds[0] == {False} and True in kinds[1]


def test_symbolic_batch_of_a_convolution():
    def build(x, w):
        return op.nn.conv2d(x, w, padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")

    mod = module(build, [(N, 9, 9, 8), (3, 3, 8, 16)], ["float32"] * 2)
    x, w = floats(3, 9, 9, 8), floats(3, 3, 8, 16)
    cut = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]), (3, 3), (1, 2)
    )
    np.testing.assert_allclose(
        run(mod, x, w)[0], np.einsum("nyxcab,abcf->nyxf", cut, w), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("kernel", [1, 3])
def test_free_height_and_width_of_a_convolution(kernel):
    half = kernel // 2

    def build(x, w, b):
        out = op.nn.conv2d(x, w, padding=half, data_layout="NHWC", kernel_layout="HWIO")
        return op.nn.relu(op.add(out, b))

    mod = module(build, [(1, N, M, 16), (kernel, kernel, 16, 40), (40,)], ["float32"] * 3)
    w, b = floats(kernel, kernel, 16, 40, seed=1), floats(40, seed=2)
    for height, width in ((1, 1), (2, 5), (9, 6), (7, 13), (30, 31)):
        x = floats(1, height, width, 16)
        padded = np.pad(x, [(0, 0), (half, half), (half, half), (0, 0)])
        cut = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))
        expected = np.maximum(np.einsum("nyxcab,abcf->nyxf", cut, w) + b, 0)
        np.testing.assert_allclose(run(mod, x, w, b)[0], expected, rtol=1e-4, atol=1e-4)


def _first_convolution(x, w):
    """Three channels, and the weights as they are in most models."""
    return op.nn.conv2d(x, w, strides=2, padding=1, data_layout="NHWC", kernel_layout="OHWI")


def test_a_stride_over_free_height_and_width():
    """Tiles at each border, tiles at none, and images that are smaller than a tile."""
    mod = module(_first_convolution, [(1, N, M, 3), (16, 3, 3, 3)], ["float32"] * 2)
    w = floats(16, 3, 3, 3, seed=1)
    for height, width in ((1, 1), (2, 5), (9, 30), (33, 32), (34, 131)):
        x = floats(1, height, width, 3)
        padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
        cut = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
        expected = np.einsum("nyxcab,fabc->nyxf", cut, w)
        np.testing.assert_allclose(run(mod, x, w)[0], expected, rtol=1e-4, atol=1e-4)


def test_weights_are_turned_and_padding_is_decided_once_for_a_tile():
    """Without the first, each sum was computed alone, which took seven times as long."""
    script = scheduled(_first_convolution, (1, N, M, 3), (16, 3, 3, 3))
    assert "packed" in script and "pad_temp" not in script
    sums = [line for line in script.splitlines() if "acc[" in line and "packed[" in line and " + " in line]
    assert {"if_then_else" in line for line in sums} == {True, False}


def test_several_short_rows_are_one_step_of_a_parallel_loop():
    """The number of a step is divided to find its row, which takes as long as three elements."""
    script = scheduled(lambda x: op.nn.pad(x, [0, 0, 1, 1, 1, 1, 0, 0]), (1, N, M, 3))
    assert re.search(r"T.min\(.*T.int64\(32\)\)", script)


def test_rows_of_a_product_are_in_tiles_and_those_that_are_left_one_by_one():
    build, shapes, _ = CASES["product"]
    script = ScheduleCPU(TARGET)(module(build, shapes, ["float32"] * len(shapes))).script()
    assert "T.unroll" in script and "else:" in script and "T.min(" in script


def test_every_number_of_rows_is_right():
    """Up to three times the height of a tile, with tiles of each height."""
    build, shapes, reference = CASES["product"]
    with TARGET:
        mod = ScheduleCPU()(module(build, shapes, ["float32"] * len(shapes)))
        main = relax.VirtualMachine(relax.build(mod, TARGET), tvm.cpu())["main"]
    others = [floats(*shape, seed=i) for i, shape in enumerate(shapes[1:])]
    for n in range(1, 45):
        x = floats(n, 64)
        out = main(*map(tvm.runtime.tensor, (x, *others))).numpy()
        np.testing.assert_allclose(out, reference(x, *others), rtol=1e-4, atol=1e-4, err_msg=f"{n} rows")


def test_rows_that_fill_no_tiles_are_in_lower_ones():
    """20 rows take 3 tiles of 7 rows: with the 8 of the highest tiles 24 rows would be computed."""
    build, shapes, _ = CASES["product"]
    script = ScheduleCPU(WIDE)(module(build, shapes, ["float32"] * len(shapes))).script()
    heights = re.findall(r"if height <= T.int64\((\d+)\)", script)
    assert heights == ["5", "6", "7"]


def test_rows_that_are_a_multiple_have_no_code_for_fewer():
    """TVM finds a division by zero in such code for no rows: a published ResNet with a free batch was not built."""
    build, shapes, _ = CASES["product of images"]
    script = ScheduleCPU(TARGET)(module(build, shapes, ["float32"] * len(shapes))).script()
    assert "T.unroll" in script and "else:" not in script and "T.min(" in script


@T.prim_func(private=True, s_tir=True)
def _added_product_of_fours(size: T.handle, x_of: T.handle, w: T.Buffer((16, 64), "float32"), y_of: T.handle):
    """y += x @ w for a number of rows that is a multiple of four."""
    n = T.int64()
    _ = T.match_buffer(size, (n,))
    x, y = T.match_buffer(x_of, (n * 4, 16)), T.match_buffer(y_of, (n * 4, 64))
    product = T.sblock_alloc_buffer((n * 4, 64))
    for i, j, k in T.grid(n * 4, T.int64(64), T.int64(16)):
        with T.sblock("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                product[vi, vj] = T.float32(0)
            product[vi, vj] = product[vi, vj] + x[vi, vk] * w[vk, vj]
    for i, j in T.grid(n * 4, T.int64(64)):
        with T.sblock("added"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = y[vi, vj] + product[vi, vj]


def test_rows_that_tiles_without_overlap_leave_are_not_taken_for_a_multiple():
    """20 rows are three tiles of 6 rows, and two rows: a tile of 4 rows would write behind the result."""
    kernel = built(_added_product_of_fours)
    w = floats(16, 64)
    for n in (1, 2, 4, 5, 7):
        x, around = floats(4 * n, 16), tvm.runtime.tensor(np.ones((4 * n + 8, 64), "float32"))
        y = around._create_view((4 * n, 64))
        kernel(*map(tvm.runtime.tensor, (np.ones(n, "float32"), x, w)), y)
        np.testing.assert_allclose(y.numpy(), x @ w + 1, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(around.numpy()[4 * n :], 1)


def test_no_rows_that_are_a_multiple():
    """The number of turns is 0, and divided by to find the height of the tiles: it ended the process."""
    build, shapes, _ = CASES["product of images"]
    mod = module(build, shapes, ["int64"] * len(shapes))
    out = run(mod, np.ones((0, 14, 14, 512), "int64"), np.ones((512, 256), "int64"))[0]
    assert out.shape == (0, 14, 14, 256)


NORMS = {
    "rows": (lambda x: op.nn.softmax(x, axis=-1), [(N, 64)]),
    "channels": (lambda x: op.nn.softmax(x, axis=1), [(N, 5, 7, 7)]),
}


def buffers(body):
    """The buffers that the blocks in ``body`` allocate."""
    return [buffer for block in nodes(body, s_tir.SBlock) for buffer in block.alloc_buffers]


@pytest.mark.parametrize("case", NORMS)
def test_temporaries_of_rows_are_in_the_memory_of_one_thread(case):
    """Threads may compute one row twice, and a row stays in the caches of its thread."""
    mod = ScheduleCPU(TARGET)(module(*NORMS[case], ["float32"]))
    (name,) = [gvar for gvar, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)]
    placed = s_tir.transform.PlanAndUpdateBufferAllocationLocation()(tvm.IRModule({name: mod[name]}))
    (choice,) = [each for each in nodes(placed[name].body, tirx.IfThenElse) if nodes(each, tirx.For)]
    parallel = next(loop for loop in nodes(choice.else_case, tirx.For) if loop.kind == ForKind.PARALLEL)
    inside = len(buffers(parallel))
    assert inside and inside == len(buffers(choice.else_case))
    assert not placed[name].body.block.alloc_buffers


def test_channels_of_images_of_any_number() -> None:
    """Threads share the last pixels of a line, which two vectors overlap."""
    mod = module(*NORMS["channels"], ["float32"])
    for count in (1, 7, 33, 131):
        x = floats(count, 5, 7, 7)
        (got,) = run(mod, x)
        e = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)
