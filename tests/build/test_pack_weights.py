"""Packed weights: weights that are constants everywhere are stored in the order in which tiles read them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from schedule_checks import LOWERING, TARGET, WIDE, floats, padded, windows
from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.lowering.pack_weights import packed
from unity_collage.passes.fuse_remaining import FuseRemaining
from unity_collage.passes.schedule_cpu import ScheduleCPU
from unity_collage.schedule.panels import Panels

NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def pack_weights(target: tvm.target.Target) -> tvm.transform.Pass:
    """Packing as a pass, so that the contract of passes is checked."""
    return tvm.transform.module_pass(
        lambda mod, _context: packed(mod, target), opt_level=0, name="collage.pack_weights"
    )


def module(build, shape: tuple[int, ...], weights: Sequence[np.ndarray]) -> IRModule:
    """``main(x)`` calls one kernel, computed by ``build``, with ``weights`` as constants."""
    builder = relax.BlockBuilder()
    types = [relax.TensorType(shape, "float32"), *(relax.const(array).ty for array in weights)]
    params = [relax.Var(f"p{i}", ty) for i, ty in enumerate(types)]
    with builder.function("kernel", params, attrs={"Primitive": 1}, private=True):
        with builder.dataflow():
            result = builder.emit_output(build(*params))
        kernel = builder.emit_func_output(result)
    x = relax.Var("x", types[0])
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(kernel, [x, *map(relax.const, weights)]))
        builder.emit_func_output(result)
    with TARGET:
        return tvm.transform.Sequential(LOWERING)(builder.get())


def calls(mod: IRModule) -> list[relax.Call]:
    return [binding.value for block in mod["main"].body.blocks for binding in block.bindings]


def constants(mod: IRModule) -> list[list[tuple[int, ...] | None]]:
    """The shapes of the constants at each call, None for other arguments."""
    return [
        [tuple(arg.value.shape) if isinstance(arg, ir.GenericConst) else None for arg in call.args[1]]
        for call in calls(mod)
    ]


def run(mod: IRModule, *inputs: np.ndarray) -> np.ndarray:
    executable = relax.build(ScheduleCPU(TARGET)(mod), TARGET)
    return relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, inputs)).numpy()


def layer(x, w, b):
    return op.nn.relu(op.add(op.matmul(x, w), b))


def assert_layer(mod: IRModule, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> None:
    expected = np.maximum(x @ w + b, 0)
    np.testing.assert_allclose(run(mod, x), expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_the_constant_and_the_buffer_are_panels_and_the_bias_is_not() -> None:
    w, b = floats(784, 240), floats(240)
    before = module(layer, (1, 784), [w, b])
    after = pack_weights(WIDE)(before)
    assert constants(after) == [[None, (2, 784, 128), (240,)]]
    assert [int(extent) for extent in after["kernel"].params[1].shape] == [2, 784, 128]
    packed = calls(after)[0].args[1][1].value.numpy()
    np.testing.assert_array_equal(packed, np.stack([w[:, :128], w[:, 112:]]))
    assert_layer(pack_weights(TARGET)(before), floats(1, 784), w, b)


def test_two_narrow_panels_are_read_side_by_side() -> None:
    w, b = floats(784, 256), floats(256)
    before = module(layer, (1, 784), [w, b])
    after = pack_weights(WIDE)(before)
    assert constants(after) == [[None, (8, 784, 32), (256,)]]
    assert_layer(pack_weights(TARGET)(before), floats(1, 784), w, b)
    kernel = ScheduleCPU(WIDE)(after)["kernel"].script()
    assert re.search(r"for v_k in range\(T.int64\(784\)\):\n +for \w+ in T.unroll\(T.int64\(2\)\)", kernel)


@pytest.mark.parametrize(
    ("rows", "columns", "ahead"), [(128, 512, True), (29, 500, True), (128, 16, False), (1, 512, False)]
)
def test_the_next_panel_of_large_weights_is_fetched_ahead(rows: int, columns: int, ahead: bool) -> None:
    w, b = floats(784, columns), floats(columns)
    before = module(layer, (rows, 784), [w, b])
    assert ("llvm.prefetch" in ScheduleCPU(WIDE)(pack_weights(WIDE)(before))["kernel"].script()) == ahead
    assert_layer(pack_weights(TARGET)(before), floats(rows, 784), w, b)


@pytest.mark.parametrize(("columns", "ahead"), [(768, True), (16, False)])
def test_the_next_panel_is_fetched_ahead_for_free_rows(columns: int, ahead: bool) -> None:
    """The code of each height of tiles fetches; what it reads past the last panel is no access."""
    w = floats(300, columns)
    before = several(["n"], w)
    after = ScheduleCPU(TARGET)(pack_weights(TARGET)(before))
    assert ("llvm.prefetch" in after["kernel0"].script()) == ahead
    machine = relax.VirtualMachine(relax.build(after, TARGET), tvm.cpu())
    for rows in (0, 1, 3, 4, 5, 7, 11, 13, 20, 33):
        x = floats(rows, 300, seed=rows)
        (out,) = machine["main"](tvm.runtime.tensor(x))
        np.testing.assert_allclose(out.numpy(), x @ w, rtol=1e-4, atol=2e-4)


def test_long_reductions_of_few_rows_have_narrow_panels() -> None:
    """The panels of two vectors stay in the second-level cache while the next one is fetched."""
    w = floats(2048, 512)
    for rows, width in ((20, 32), (32, 32), ("n", 32)):
        (_, shape) = constants(pack_weights(WIDE)(several([rows], w)))[0]
        assert shape == (512 // width, 2048, width)


@pytest.mark.parametrize("columns", [10, 7, 100, 257, 1000])
@pytest.mark.parametrize("rows", [1, 5, 33])
def test_products_of_odd_sizes_are_the_same_numbers(rows: int, columns: int) -> None:
    w, b = floats(200, columns), floats(columns)
    before = module(layer, (rows, 200), [w, b])
    (_, shape, _) = constants(pack_weights(WIDE)(before))[0]
    assert (len(shape) == 3) == (columns >= 100)
    assert_layer(pack_weights(TARGET)(before), floats(rows, 200), w, b)


def test_the_last_panel_overlaps_its_neighbour() -> None:
    panels = Panels(outside=(), inside=(0,), cut=1, size=10, width=4)
    w = np.arange(20).reshape(2, 10)
    assert panels.shape([2, 10]) == [3, 2, 4]
    assert panels.pack(w)[2].tolist() == [[6, 7, 8, 9], [16, 17, 18, 19]]


@pytest.mark.parametrize("rows", [1, 40])
def test_transposed_weights_are_turned_where_tiles_would_copy_them(rows: int) -> None:
    w, b = floats(300, 200), floats(300)
    before = module(lambda x, w, b: layer(x, op.permute_dims(w), b), (rows, 200), [w, b])
    after = pack_weights(TARGET)(before)
    shape = constants(after)[0][1]
    if rows == 1:
        assert shape == (300, 200)
    else:
        count, inner, width = shape
        assert inner == 200 and count == -(-300 // width) > 1
    assert_layer(after, floats(rows, 200), w.T, b)


def test_a_residual_and_a_long_epilogue_stay() -> None:
    w = floats(128, 512)

    def build(x, w):
        return op.add(op.nn.gelu(op.matmul(x, w)), op.tile(x, [1, 4]))

    before = module(build, (24, 128), [w])
    after = pack_weights(TARGET)(before)
    assert len(constants(after)[0][1]) == 3
    x = floats(24, 128)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("filters", "size", "channels", "kernel"), [(256, 14, 64, 3), (300, 7, 128, 1)])
def test_a_convolution_reads_panels_of_its_filters(filters, size, channels, kernel) -> None:
    w, b = floats(kernel, kernel, channels, filters), floats(filters)
    pad = kernel // 2

    def build(x, w, b):
        return op.nn.relu(op.add(op.nn.conv2d(x, w, padding=(pad, pad), **NHWC), b))

    after = pack_weights(TARGET)(module(build, (1, size, size, channels), [w, b]))
    (_, shape, _) = constants(after)[0]
    assert sorted(shape)[-2:] != sorted(w.shape)[-2:] and shape[-1] < filters
    x = floats(1, size, size, channels)
    found = windows(padded(x, pad, (1, 2)), kernel, 1, (1, 2))
    expected = np.maximum(np.einsum("nyxcab,abcf->nyxf", found, w) + b, 0)
    np.testing.assert_allclose(run(after, x), expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("groups", [4, 64])
def test_grouped_convolutions_stay_unpacked(groups: int) -> None:
    w = floats(3, 3, 64 // groups, 256)

    def build(x, w):
        return op.nn.conv2d(x, w, padding=(1, 1), groups=groups, **NHWC)

    assert constants(pack_weights(TARGET)(module(build, (1, 14, 14, 64), [w]))) == [[None, w.shape]]


def test_weights_that_stay_in_the_innermost_cache_are_left_alone() -> None:
    before = module(op.matmul, (64, 64), [floats(64, 128)])
    tvm.ir.assert_structural_equal(pack_weights(TARGET)(before), before)


@I.ir_module
class Twice:
    @T.prim_func(private=True, s_tir=True)
    def product(
        a: T.Buffer((T.int64(1), T.int64(64)), "float32"),
        b: T.Buffer((T.int64(64), T.int64(512)), "float32"),
        c: T.Buffer((T.int64(1), T.int64(512)), "float32"),
    ):
        for i, j, k in T.grid(T.int64(1), T.int64(512), T.int64(64)):
            with T.sblock("c"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    c[vi, vj] = T.float32(0)
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]

    @R.function
    def main(
        x: R.Tensor((1, 64), "float32"), v: R.Tensor((64, 512), "float32"), w: R.Tensor((64, 512), "float32")
    ) -> R.Tuple(R.Tensor((1, 512), "float32"), R.Tensor((1, 512), "float32")):
        cls = Twice
        with R.dataflow():
            first = R.call_tir(cls.product, (x, v), out_ty=R.Tensor((1, 512), "float32"))
            second = R.call_tir(cls.product, (x, w), out_ty=R.Tensor((1, 512), "float32"))
            R.output(first, second)
        return (first, second)


def twice(**values: np.ndarray) -> IRModule:
    return relax.transform.BindParams("main", values)(Twice)


def test_two_calls_of_one_kernel_each_get_their_constant() -> None:
    v, w, x = floats(64, 512), floats(64, 512, seed=1), floats(1, 64)
    after = pack_weights(TARGET)(twice(v=v, w=w))
    assert constants(pack_weights(WIDE)(twice(v=v, w=w))) == [[None, (16, 64, 32)]] * 2
    machine = relax.VirtualMachine(relax.build(ScheduleCPU(TARGET)(after), TARGET), tvm.cpu())
    for out, right in zip(machine["main"](tvm.runtime.tensor(x)), (x @ v, x @ w), strict=True):
        np.testing.assert_allclose(out.numpy(), right, rtol=1e-4, atol=1e-4)


def test_one_call_with_a_variable_keeps_the_kernel_as_it_is() -> None:
    before = twice(v=floats(64, 512))
    tvm.ir.assert_structural_equal(pack_weights(TARGET)(before), before)


def test_a_constant_that_two_calls_share_is_packed_once() -> None:
    before = twice(v=floats(64, 512))
    w = before["main"].params[1]
    (shared,) = (arg for arg in calls(before)[0].args[1] if isinstance(arg, ir.GenericConst))
    main = before["main"].bind_params({w: shared})
    after = pack_weights(WIDE)(
        IRModule({**dict(before.functions_items()), before.get_global_var("main"): main})
    )
    first, second = (call.args[1][1] for call in calls(after))
    assert tuple(first.value.shape) == (16, 64, 32) and first.value.same_as(second.value)


def test_a_kernel_that_others_may_call_keeps_its_parameters() -> None:
    before = twice(v=floats(64, 512), w=floats(64, 512, seed=1))
    public = before["product"].with_attr("global_symbol", "product")
    before = IRModule({**dict(before.functions_items()), before.get_global_var("product"): public})
    tvm.ir.assert_structural_equal(pack_weights(TARGET)(before), before)


def test_scheduled_kernels_are_left_alone_so_a_second_run_changes_nothing() -> None:
    once = ScheduleCPU(TARGET)(pack_weights(TARGET)(twice(v=floats(64, 512), w=floats(64, 512, seed=1))))
    tvm.ir.assert_structural_equal(pack_weights(TARGET)(once), once)


def test_fuse_remaining_packs_and_reads_panels_from_end_to_end() -> None:
    w, b = floats(784, 256), floats(256)
    before = module(layer, (1, 784), [w, b])
    with WIDE:
        packed, plain = FuseRemaining()(before), FuseRemaining(pack=False)(before)
    assert constants(packed) == [[None, (8, 784, 32), (256,)]]
    assert constants(plain) == [[None, (784, 256), (256,)]]
    (kernel,) = (func for func in packed.functions.values() if isinstance(func, tirx.PrimFunc))
    assert "acc" in kernel.script() and "//" not in kernel.script()


def several(rows: Sequence[int | str], w: np.ndarray) -> IRModule:
    """``main`` multiplies inputs of these numbers of rows, a name for a free one, with the same constant."""
    builder, weights = relax.BlockBuilder(), relax.const(w)
    free = {name: tirx.Var(name, "int64") for name in rows if isinstance(name, str)}
    inputs = [relax.TensorType((free.get(count, count), w.shape[0]), "float32") for count in rows]
    kernels = []
    for number in range(len(rows)):
        own = {name: tirx.Var(name, "int64") for name in free}
        a = relax.Var("a", relax.TensorType((own.get(rows[number], rows[number]), w.shape[0]), "float32"))
        b = relax.Var("b", weights.ty)
        with builder.function(f"kernel{number}", [a, b], attrs={"Primitive": 1}, private=True):
            with builder.dataflow():
                result = builder.emit_output(op.matmul(a, b))
            kernels.append(builder.emit_func_output(result))
    params = [relax.Var(f"x{number}", ty) for number, ty in enumerate(inputs)]
    with builder.function("main", params):
        with builder.dataflow():
            found = [
                builder.emit_output(relax.Call(kernel, [x, weights]))
                for kernel, x in zip(kernels, params, strict=True)
            ]
        builder.emit_func_output(relax.Tuple(found))
    with TARGET:
        return tvm.transform.Sequential(LOWERING)(builder.get())


NARROW = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver3", "num-cores": 2})
"""A machine with 16 registers of 32 bytes."""


def test_kernels_of_several_sizes_read_one_packed_constant() -> None:
    w = floats(768, 768)
    alone = {rows: constants(pack_weights(NARROW)(several([rows], w)))[0][1] for rows in (16, 1024, "n")}
    assert alone == {16: (32, 768, 24), 1024: (48, 768, 16), "n": (48, 768, 16)}
    after = pack_weights(NARROW)(several([16, 1024, "n"], w))
    first, *others = (call.args[1][1] for call in calls(after))
    assert tuple(first.value.shape) == (48, 768, 16) and all(other.same_as(first) for other in others)


def test_panels_that_cost_a_kernel_too_much_are_not_shared() -> None:
    """A product with a vector reads panels side by side, and no model says what it loses by others."""
    w = floats(768, 1000)
    before = several([1, 30, 1], w)
    lone, many, again = (shape for _, shape in constants(pack_weights(NARROW)(before)))
    assert lone == again != many


@pytest.mark.parametrize("columns", [768, 1000, 500])
def test_products_with_shared_panels_are_the_same_numbers(columns: int) -> None:
    w = floats(300, columns)
    sizes = [16, 7, 66, 1]
    before = several([16, "n", 66, "m"], w)
    after = ScheduleCPU(TARGET)(pack_weights(TARGET)(before))
    inputs = [floats(rows, 300, seed=rows) for rows in sizes]
    machine = relax.VirtualMachine(relax.build(after, TARGET), tvm.cpu())
    for out, x in zip(machine["main"](*map(tvm.runtime.tensor, inputs)), inputs, strict=True):
        np.testing.assert_allclose(out.numpy(), x @ w, rtol=1e-4, atol=2e-4)
