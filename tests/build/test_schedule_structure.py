"""What the scheduled loops look like, and what is left alone."""

import re

import numpy as np
import tvm
from schedule_checks import TARGET, floats, module, run, scheduled
from tvm import tirx
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import tirx as T

from unity_collage.passes.schedule_cpu import ScheduleCPU
from unity_collage.schedule import schedule

NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def kernels(mod: tvm.IRModule) -> list[tirx.PrimFunc]:
    return [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]


def test_large_kernels_are_parallel_and_in_vectors():
    for text in (
        scheduled(lambda x, y: op.nn.relu(op.add(x, y)), (1, 56, 56, 64), (1, 56, 56, 64)),
        scheduled(lambda x: op.permute_dims(x, [0, 3, 1, 2]), (1, 56, 56, 64)),
        scheduled(lambda x: op.mean(x, [1, 2]), (1, 56, 56, 64)),
        scheduled(op.matmul, (64, 64), (64, 64)),
        scheduled(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1), **NHWC), (1, 14, 14, 16), (3, 3, 16, 32)),
        scheduled(lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), (1, 64, 64, 64)),
    ):
        assert "T.parallel" in text
        assert "T.vectorized" in text


def test_tiny_kernels_start_no_threads():
    for text in (
        scheduled(lambda x, y: op.add(x, y), (10, 10), (10,)),
        scheduled(op.nn.softmax, (1, 1000)),
        scheduled(op.matmul, (4, 16), (16, 16)),
    ):
        assert "T.parallel" not in text


def test_one_core_needs_no_parallel_loops():
    mod = module(lambda x, y: op.add(x, y), [(256, 1024)] * 2, ["float32"] * 2)
    single = tvm.target.Target(
        {**{key: TARGET.attrs[key] for key in ("mcpu",)}, "kind": "llvm", "num-cores": 1}
    )
    assert "T.parallel" not in kernels(ScheduleCPU(single)(mod))[0].script()


def test_a_fused_group_is_one_pass_over_memory():
    text = scheduled(lambda x, y: op.nn.relu(op.multiply(op.add(x, y), y)), (64, 64), (64, 64))
    assert "sblock_alloc_buffer" not in text


def test_the_epilogue_of_a_product_needs_no_copy_of_its_result():
    text = scheduled(lambda x, w, b: op.nn.relu(op.add(op.matmul(x, w), b)), (64, 64), (64, 64), (64,))
    assert text.count("for v_k") == text.count("in range(T.int64(64))") == 1


def test_transposes_turn_tiles_in_registers():
    assert "T.Shuffle" in scheduled(lambda x: op.permute_dims(x, [1, 0]), (64, 96))


def test_a_whole_tensor_is_summed_in_vectors():
    assert "T.vectorized" in scheduled(op.sum, (30, 70))


def test_a_long_epilogue_is_a_loop_over_the_tile():
    long = scheduled(lambda x, w: op.nn.gelu(op.matmul(x, w)), (64, 64), (64, 64))
    short = scheduled(lambda x, w: op.nn.relu(op.matmul(x, w)), (64, 64), (64, 64))
    vectors_of_a_row = 4
    assert long.count("T.Let") <= 2 * vectors_of_a_row
    assert ("done = " in long, "done = " in short) == (True, False)


def test_factors_of_what_is_summed_go_to_the_weights():
    text = scheduled(
        lambda x, s, w: op.nn.conv2d(op.multiply(x, s), w, **NHWC),
        (1, 14, 14, 40),
        (1, 1, 1, 40),
        (1, 1, 40, 32),
        one_kernel=True,
    )
    assert re.search(r"x0\[[^\]]*\] \* \(x2\[[^\]]*\] \* x1\[[^\]]*\]\)", text)
    assert text.count("T.parallel") == 1


def test_factors_of_rows_stay_where_they_are():
    text = scheduled(
        lambda x, s, w: op.matmul(op.multiply(x, s), w), (64, 64), (64, 1), (64, 64), one_kernel=True
    )
    assert "sblock_alloc_buffer((T.int64(64), T.int64(64)))" in text


def test_few_rows_are_read_at_a_time_where_they_share_lines_of_the_innermost_cache():
    def height(inner: int) -> int:
        text = scheduled(op.matmul, (196, inner), (inner, 256))
        return max(int(rows) for rows in re.findall(r"T.unroll\(T.int64\((\d+)\)\)", text))

    assert height(1024) <= 8
    assert height(1000) > 8


def test_a_core_writes_whole_rows_unless_it_would_read_a_heavy_operand_again_for_each():
    def parallel(columns: int) -> list[str]:
        return re.findall(r"for (v_i\d)\w* in T.parallel", scheduled(op.matmul, (1024, 64), (64, columns)))

    assert parallel(128) == ["v_i0"]
    assert parallel(4096) == ["v_i1"]


def test_a_scheduled_kernel_is_left_alone():
    once = ScheduleCPU(TARGET)(module(lambda x, y: op.add(x, y), [(64, 64)] * 2, ["float32"] * 2))
    tvm.ir.assert_structural_equal(ScheduleCPU(TARGET)(once), once)


def test_a_kernel_becomes_opaque_to_fusion():
    (kernel,) = kernels(ScheduleCPU(TARGET)(module(op.exp, [(64, 64)], ["float32"])))
    assert kernel.attrs["op_pattern"] == 8
    assert kernel.attrs["tirx.is_scheduled"]


def test_the_target_in_scope_is_taken():
    mod = module(lambda x, y: op.add(x, y), [(64, 64)] * 2, ["float32"] * 2)
    with TARGET:
        tvm.ir.assert_structural_equal(ScheduleCPU()(mod), ScheduleCPU(TARGET)(mod))


def test_a_scatter_keeps_its_loops_and_says_why():
    def build(x, indices, updates):
        return op.scatter_elements(x, indices, updates, axis=1)

    (kernel,) = kernels(
        ScheduleCPU(TARGET)(module(build, [(4, 9), (4, 3), (4, 3)], ["float32", "int64", "float32"]))
    )
    assert kernel.attrs["collage.unscheduled"]


def test_loops_of_somebody_else_are_kept():
    @T.prim_func(private=True, s_tir=True)
    def by_hand(x: T.Buffer((64, 64), "float32"), y: T.Buffer((64, 64), "float32")):
        for i in T.parallel(64):
            for j in range(64):
                with T.sblock("y"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = x[vi, vj] + T.float32(1)

    kept = schedule(by_hand, TARGET)
    assert "is already scheduled" in kept.attrs["collage.unscheduled"]
    tvm.ir.assert_structural_equal(kept.body, by_hand.body)


def test_an_update_in_place_writes_each_element_once():
    @I.ir_module
    class Before:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((37,), "float32")):
            for i in range(37):
                with T.sblock("x"):
                    vi = T.axis.spatial(37, i)
                    x[vi] = x[vi] + T.float32(1)

    values = tvm.runtime.tensor(np.zeros(37, "float32"))
    tvm.compile(ScheduleCPU(TARGET)(Before), TARGET)["main"](values)
    np.testing.assert_array_equal(values.numpy(), np.ones(37))


def test_results_that_feed_two_readers_are_kept():
    def build(x):
        total = op.sum(x, axis=[1], keepdims=True)
        return op.add(op.multiply(x, total), total)

    mod = module(build, [(9, 50)], ["float32"], one_kernel=True)
    x = floats(9, 50)
    total = x.sum(1, keepdims=True)
    np.testing.assert_allclose(run(mod, x)[0], x * total + total, rtol=1e-4, atol=1e-4)
