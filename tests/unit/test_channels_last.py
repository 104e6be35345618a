"""ChannelsLast on the smallest modules that show each family, and on those that it must leave alone."""

import numpy as np
import pytest
import tvm
from prepare_checks import plain
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.graph.devices import with_listed_devices
from unity_collage.passes.channels_last import ChannelsLast, why_left_alone

W = np.arange(4 * 3 * 3 * 3, dtype="float32").reshape(4, 3, 3, 3)
W_LAST = np.ascontiguousarray(W.transpose(2, 3, 1, 0))
BIAS = np.arange(4, dtype="float32").reshape(1, 4, 1, 1)
BIAS_LAST = BIAS.reshape(1, 1, 1, 4)


def converted(mod):
    """What becomes of ``mod``, without what is said of the operators that stay."""
    return plain(ChannelsLast()(mod))


def assert_becomes(before, expected):
    tvm.ir.assert_structural_equal(converted(before), expected)


def assert_stays(mod):
    assert_becomes(mod, mod)


def built(shape, body, *more):
    """A module of one dataflow block, ``body`` being called with a variable of each shape."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate((shape, *more))]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(builder, *params)))
        builder.emit_func_output(out)
    return builder.get()


def _calls(mod):
    """The calls of ``main`` in order."""
    values = [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
    return [value for value in values if isinstance(value, relax.Call)]


def operators(mod):
    """The operator names of ``main`` in order."""
    return [call.op.name.removeprefix("relax.") for call in _calls(mod)]


def call_of(mod, name):
    """The only call of an operator."""
    (call,) = [call for call in _calls(mod) if call.op.name == f"relax.{name}"]
    return call


def conv(x, channels=3, out=4, size=3, **attrs):
    weight = relax.const(np.ones((out, channels, size, size), "float32"))
    return relax.op.nn.conv2d(x, weight, padding=size // 2, **attrs)


def test_convolution_bias_and_activation():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 3, 8, 6), "float32")) -> R.Tensor((1, 4, 8, 6), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, R.const(W), padding=[1, 1, 1, 1])
                lv1 = R.add(lv, R.const(BIAS))
                gv = R.nn.relu(lv1)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 3, 8, 6), "float32")) -> R.Tensor((1, 4, 8, 6), "float32"):
            with R.dataflow():
                x_last = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv = R.nn.conv2d(
                    x_last, R.const(W_LAST), padding=[1, 1, 1, 1], data_layout="NHWC", kernel_layout="HWIO"
                )
                lv1 = R.add(lv, R.const(BIAS_LAST))
                lv2 = R.nn.relu(lv1)
                gv = R.permute_dims(lv2, axes=[0, 3, 1, 2])
                R.output(gv)
            return gv

    assert_becomes(Before, Expected)


def test_concat_pool_and_mean_leave_one_transpose_at_the_input():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32")) -> R.Tensor((1, 8), "float32"):
            with R.dataflow():
                lv = R.nn.max_pool2d(x, pool_size=[2, 2], strides=[2, 2])
                lv1 = R.nn.relu(lv)
                lv2 = R.concat((lv, lv1), axis=1)
                lv3 = R.nn.softmax(lv2, axis=1)
                gv = R.mean(lv3, axis=[2, 3])
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32")) -> R.Tensor((1, 8), "float32"):
            with R.dataflow():
                x_last = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv = R.nn.max_pool2d(x_last, pool_size=[2, 2], strides=[2, 2], layout="NHWC")
                lv1 = R.nn.relu(lv)
                lv2 = R.concat((lv, lv1), axis=3)
                lv3 = R.nn.softmax(lv2, axis=3)
                gv = R.mean(lv3, axis=[1, 2])
                R.output(gv)
            return gv

    assert_becomes(Before, Expected)


def test_global_mean_and_its_reshape_need_no_transpose():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32")) -> R.Tensor((1, 4), "float32"):
            with R.dataflow():
                lv = R.nn.avg_pool2d(x, pool_size=[3, 3])
                lv1 = R.mean(lv, axis=[2, 3], keepdims=True)
                gv = R.reshape(lv1, R.shape([1, 4]))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32")) -> R.Tensor((1, 4), "float32"):
            with R.dataflow():
                x_last = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv = R.nn.avg_pool2d(x_last, pool_size=[3, 3], layout="NHWC")
                lv1 = R.mean(lv, axis=[1, 2], keepdims=True)
                gv = R.reshape(lv1, R.shape([1, 4]))
                R.output(gv)
            return gv

    assert_becomes(Before, Expected)


def test_patch_embedding_becomes_a_plain_reshape():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 3, 8, 6), "float32")) -> R.Tensor((1, 48, 4), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, R.const(W), padding=[1, 1, 1, 1])
                lv1 = R.reshape(lv, R.shape([1, 4, 48]))
                lv2 = R.permute_dims(lv1, axes=[0, 2, 1])
                gv = R.exp(lv2)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 3, 8, 6), "float32")) -> R.Tensor((1, 48, 4), "float32"):
            with R.dataflow():
                x_last = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv = R.nn.conv2d(
                    x_last, R.const(W_LAST), padding=[1, 1, 1, 1], data_layout="NHWC", kernel_layout="HWIO"
                )
                lv1 = R.reshape(lv, R.shape([1, 48, 4]))
                gv = R.exp(lv1)
                R.output(gv)
            return gv

    assert_becomes(Before, Expected)


@pytest.mark.parametrize("importer", ["expand_dims", "reshape"])
def test_response_normalisation_slides_along_the_last_axis(importer):
    def body(b, x):
        x = b.emit(relax.op.nn.max_pool2d(x))
        if importer == "reshape":
            wide = b.emit(relax.op.reshape(x, (2, 1, 8, 5, 7)))
        else:
            wide = b.emit(relax.op.expand_dims(x, axis=1))
        pooled = b.emit(relax.op.nn.avg_pool3d(wide, (5, 1, 1), padding=(2, 0, 0)))
        if importer == "reshape":
            narrow = b.emit(relax.op.reshape(pooled, (2, 8, 5, 7)))
        else:
            narrow = b.emit(relax.op.squeeze(pooled, axis=[1]))
        return relax.op.divide(x, narrow)

    out = converted(built((2, 8, 5, 7), body))
    assert operators(out) == [
        "permute_dims", "nn.max_pool2d", "reshape", "nn.avg_pool1d", "reshape", "divide", "permute_dims",
    ]  # fmt: skip
    pool = call_of(out, "nn.avg_pool1d")
    assert list(pool.args[0].ty.shape.values) == [2, 35, 8]
    assert pool.attrs.layout == "NCW"
    assert list(pool.attrs.padding) == [2, 2]


def test_split_and_its_projections():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32")) -> R.Tensor((1, 4, 8, 6), "float32"):
            with R.dataflow():
                lv = R.nn.max_pool2d(x)
                lv1 = R.split(lv, 2, axis=1)
                lv2 = lv1[1]
                lv3 = lv1[0]
                lv4 = (lv2, lv3)
                gv = R.concat(lv4, axis=-3)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32")) -> R.Tensor((1, 4, 8, 6), "float32"):
            with R.dataflow():
                x_last = R.permute_dims(x, axes=[0, 2, 3, 1])
                lv = R.nn.max_pool2d(x_last, layout="NHWC")
                lv1 = R.split(lv, 2, axis=3)
                lv2 = lv1[1]
                lv3 = lv1[0]
                lv4 = R.concat((lv2, lv3), axis=3)
                gv = R.permute_dims(lv4, axes=[0, 3, 1, 2])
                R.output(gv)
            return gv

    assert_becomes(Before, Expected)


def test_a_plain_operator_gets_its_operand_back_once():
    def body(b, x):
        x = b.emit(relax.op.nn.max_pool2d(x))
        first = b.emit(relax.op.matmul(x, x))
        return relax.op.matmul(first, x)

    out = converted(built((2, 8, 5, 5), body))
    assert operators(out) == ["permute_dims", "nn.max_pool2d", "permute_dims", "matmul", "matmul"]


def test_one_transpose_serves_all_users_of_an_input():
    def body(b, x):
        left, right = b.emit(conv(x)), b.emit(conv(x, size=1))
        return relax.op.nn.relu(b.emit(relax.op.add(left, right)))

    out = converted(built((1, 3, 8, 8), body))
    assert operators(out).count("permute_dims") == 2


def test_a_permutation_in_the_model_cancels_against_the_layout():
    def body(b, x):
        image = b.emit(relax.op.permute_dims(x, [0, 3, 1, 2]))
        return relax.op.permute_dims(b.emit(conv(image)), [0, 2, 3, 1])

    assert "permute_dims" not in operators(converted(built((1, 8, 6, 3), body)))


def test_unit_spatial_values_are_reshaped_not_transposed():
    def squeeze_and_excite(b, x):
        x = b.emit(conv(x))
        gate = b.emit(relax.op.mean(x, axis=[2, 3]))
        gate = b.emit(relax.op.reshape(gate, (2, 4, 1, 1)))
        gate = b.emit(relax.op.sigmoid(b.emit(conv(gate, 4, size=1))))
        return relax.op.mean(b.emit(relax.op.multiply(x, gate)), axis=[2, 3])

    out = converted(built((2, 3, 8, 6), squeeze_and_excite))
    assert operators(out).count("permute_dims") == 1
    assert operators(out).count("reshape") == 1


def test_channel_shuffle_moves_the_channels_only():
    def shuffle(b, x):
        x = b.emit(conv(x))
        x = b.emit(relax.op.reshape(x, (1, 2, 2, 8, 6)))
        x = b.emit(relax.op.permute_dims(x, [0, 2, 1, 3, 4]))
        x = b.emit(relax.op.reshape(x, (1, 4, 8, 6)))
        return relax.op.mean(x, axis=[2, 3])

    out = converted(built((1, 3, 8, 6), shuffle))
    assert operators(out) == [
        "permute_dims", "nn.conv2d", "reshape", "permute_dims", "reshape", "mean",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "name", "attrs"),
    [
        (lambda x: relax.op.nn.pad(x, [*range(8)]), "nn.pad", {"pad_width": [0, 1, 4, 5, 6, 7, 2, 3]}),
        (lambda x: relax.op.sum(x, axis=[-3], keepdims=True), "sum", {"axis": [3]}),
        (lambda x: relax.op.argmax(x, axis=1), "argmax", {"axis": 3}),
        (lambda x: relax.op.flip(x, axis=2), "flip", {"axis": 1}),
        (lambda x: relax.op.image.resize2d(x, (4, 4)), "image.resize2d", {"layout": "NHWC"}),
        (lambda x: relax.op.nn.adaptive_avg_pool2d(x, 1), "nn.adaptive_avg_pool2d", {"layout": "NHWC"}),
        (
            lambda x: relax.op.nn.instance_norm(x, _vector(), _vector(), channel_axis=1, axes=[2, 3]),
            "nn.instance_norm",
            {"channel_axis": 3, "axes": [1, 2]},
        ),
        (
            lambda x: relax.TupleGetItem(relax.op.nn.batch_norm(x, *[_vector()] * 4, axis=1), 0),
            "nn.batch_norm",
            {"axis": 3},
        ),
        (lambda x: relax.op.nn.prelu(x, _vector(), axis=1), "nn.prelu", {"axis": 3}),
        (lambda x: relax.op.stack([x, x], axis=1), "stack", {"axis": 0}),
    ],
)  # fmt: skip
def test_axes_are_mapped(body, name, attrs):
    out = converted(built((2, 4, 8, 6), lambda b, x: body(b.emit(relax.op.nn.max_pool2d(x)))))
    call = call_of(out, name)
    assert {key: _plain_data(call.attrs[key]) for key in attrs} == attrs
    assert operators(out).index("permute_dims") == 0


def _vector():
    return relax.const(np.ones(4, "float32"))


def _plain_data(value):
    return value if isinstance(value, (str, int)) else [int(axis) for axis in value]


def test_slice_maps_the_axes_that_are_an_operand():
    def body(b, x):
        return relax.op.strided_slice(b.emit(relax.op.nn.max_pool2d(x)), [1, 2], [0, 1], [2, 5])

    call = call_of(converted(built((2, 4, 8, 6), body)), "strided_slice")
    assert [int(axis) for axis in call.args[1].fields] == [3, 1]


@pytest.mark.parametrize(
    ("shape", "pool", "data"),
    [((2, 3, 8), relax.op.nn.max_pool1d, "NWC"), ((2, 3, 4, 5, 6), relax.op.nn.max_pool3d, "NDHWC")],
)
def test_other_ranks(shape, pool, data):
    out = converted(built(shape, lambda _, x: pool(x)))
    call = call_of(out, f"nn.{pool.__name__}")
    assert call.attrs.layout == call.attrs.out_layout == data


@pytest.mark.parametrize(
    ("operand", "aligned"),
    [((6,), [1, 1, 6, 1]), ((8, 6), [1, 8, 6, 1]), ((4, 1, 1), [1, 1, 4]), ((), []), ((1,), [1])],
)
def test_operands_of_lower_rank_line_up(operand, aligned):
    def body(b, x, y):
        return relax.op.add(b.emit(relax.op.nn.max_pool2d(x)), y)

    other = call_of(converted(built((2, 4, 8, 6), body, operand)), "add").args[1]
    assert [int(extent) for extent in other.ty.shape.values] == aligned


def test_symbolic_batch_and_extents():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4, "h", "w"), "float32")) -> R.Tensor(("n", "h * w", 4), "float32"):
            n, h, w = T.int64(), T.int64(), T.int64()
            with R.dataflow():
                lv = R.nn.max_pool2d(x)
                lv1 = R.reshape(lv, R.shape([n, 4, h * w]))
                gv = R.permute_dims(lv1, axes=[0, 2, 1])
                R.output(gv)
            return gv

    out = converted(Before)
    assert operators(out) == ["permute_dims", "nn.max_pool2d", "reshape"]
    tvm.ir.assert_structural_equal(out["main"].ret_ty, Before["main"].ret_ty, map_free_vars=True)


def test_a_reshape_that_mixes_axes_has_its_operand_in_the_original_layout():
    out = converted(
        built((2, 4, 8, 6), lambda b, x: relax.op.reshape(b.emit(relax.op.nn.max_pool2d(x)), (2, 192)))
    )
    assert operators(out) == ["permute_dims", "nn.max_pool2d", "permute_dims", "reshape"]


def test_a_transposed_convolution_stays():
    def body(b, x):
        weight = relax.const(np.ones((4, 2, 3, 3), "float32"))
        return relax.op.nn.conv2d_transpose(b.emit(relax.op.nn.max_pool2d(x)), weight)

    out = converted(built((2, 4, 8, 6), body))
    assert call_of(out, "nn.conv2d_transpose").attrs.data_layout == "NCHW"


def test_a_shape_asks_for_no_data():
    def body(b, x):
        x = b.emit(relax.op.nn.max_pool2d(x))
        shape = b.emit(relax.op.shape_to_tensor(b.emit(relax.op.shape_of(x))))
        return relax.Tuple([shape, b.emit(relax.op.mean(x, axis=[2, 3]))])

    assert operators(converted(built((2, 4, 8, 6), body))).count("permute_dims") == 1


def test_several_outputs_keep_their_types():
    def body(b, x):
        x = b.emit(relax.op.nn.max_pool2d(x))
        return relax.Tuple([x, b.emit(relax.op.nn.relu(x)), b.emit(relax.op.mean(x, axis=[2, 3]))])

    before = built((2, 4, 8, 6), body)
    out = converted(before)
    tvm.ir.assert_structural_equal(out["main"].ret_ty, before["main"].ret_ty)
    assert operators(out).count("permute_dims") == 3


def test_an_output_that_is_used_again_in_its_block():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32")):
            with R.dataflow():
                gv = R.nn.max_pool2d(x)
                lv = R.nn.relu(gv)
                gv1 = R.mean(lv, axis=[2, 3])
                R.output(gv, gv1)
            return (gv, gv1)

    assert operators(converted(Before)).count("permute_dims") == 2


def test_no_image_operator_no_change():
    def body(b, x):
        x = b.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
        return relax.op.nn.softmax(b.emit(relax.op.multiply(x, relax.const(2.0))), axis=-1)

    assert_stays(built((2, 4, 8, 6), body))


def test_channels_last_already():
    assert_stays(built((2, 8, 6, 4), lambda _, x: relax.op.nn.max_pool2d(x, layout="NHWC")))


def test_blocked_layouts_stay():
    def body(b, x):
        return relax.op.nn.max_pool2d(x, layout="NCHW4c")

    assert_stays(built((2, 1, 8, 6, 4), body))


@pytest.mark.parametrize("attribute", ["Primitive", "Composite", "Codegen"])
def test_a_function_that_is_a_kernel_stays(attribute):
    mod = built((2, 4, 8, 6), lambda _, x: relax.op.nn.max_pool2d(x))
    func = mod["main"].with_attr(attribute, "taken")
    assert why_left_alone(func) == f"it is a kernel already: it has the attribute {attribute}"
    assert_stays(tvm.IRModule({"main": func}))


def test_branches_stay_and_read_and_return_plain_values():
    @I.ir_module
    class Branch:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((1, 4, 8, 6)):
            with R.dataflow():
                a = R.nn.max_pool2d(x)
                R.output(a)
            if c:
                y = R.nn.max_pool2d(a)
            else:
                y = R.nn.relu(a)
            with R.dataflow():
                z = R.nn.max_pool2d(y)
                R.output(z)
            return z

    out = converted(Branch)
    first, branches, last = out["main"].body.blocks
    moved = ["relax.permute_dims", "relax.nn.max_pool2d", "relax.permute_dims"]
    for block in (first, last):
        assert [binding.value.op.name for binding in block.bindings] == moved
    tvm.ir.assert_structural_equal(
        branches.bindings[0].value, Branch["main"].body.blocks[1].bindings[0].value, map_free_vars=True
    )


def test_a_call_of_another_function_has_its_operands_as_they_were():
    @I.ir_module
    class Two:
        @R.function(private=True)
        def kernel(x: R.Tensor((1, 4, 8, 6), "float32")) -> R.Tensor((1, 4, 8, 6), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                gv = R.nn.max_pool2d(x)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32")) -> R.Tensor((1, 4, 8, 6), "float32"):
            cls = Two
            with R.dataflow():
                lv = R.nn.max_pool2d(x)
                lv1 = cls.kernel(lv)
                gv = R.nn.max_pool2d(lv1)
                R.output(gv)
            return gv

    out = converted(Two)
    tvm.ir.assert_structural_equal(out["kernel"], Two["kernel"])
    assert [getattr(call.op, "name", None) for call in _calls(out)] == [
        "relax.permute_dims", "relax.nn.max_pool2d", "relax.permute_dims", None,
        "relax.permute_dims", "relax.nn.max_pool2d", "relax.permute_dims",
    ]  # fmt: skip


def test_a_match_cast_takes_the_original_layout():
    @I.ir_module
    class Cast:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32")) -> R.Tensor("float32", ndim=4):
            n = T.int64()
            with R.dataflow():
                lv = R.nn.max_pool2d(x)
                lv1 = R.match_cast(lv, R.Tensor((n, 4, 8, 6), "float32"))
                gv = R.nn.relu(lv1)
                R.output(gv)
            return gv

    assert operators(converted(Cast)) == ["permute_dims", "nn.max_pool2d", "permute_dims", "nn.relu"]


def test_a_tuple_that_leaves_the_block_is_put_together_again():
    def body(b, x):
        return relax.op.split(b.emit(relax.op.nn.max_pool2d(x)), 2, axis=1)

    before = built((2, 4, 8, 6), body)
    out = converted(before)
    assert operators(out) == ["permute_dims", "nn.max_pool2d", "split", "permute_dims", "permute_dims"]
    tvm.ir.assert_structural_equal(out["main"].ret_ty, before["main"].ret_ty)


def test_bindings_outside_of_dataflow_stay():
    @I.ir_module
    class Impure:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 6), "float32")) -> R.Tensor((1, 4, 8, 6), "float32"):
            y = R.nn.max_pool2d(x)
            z = R.nn.relu(y)
            return z  # noqa: RET504 (TVMScript)

    assert_stays(Impure)


def test_module_attributes_stay():
    mod = built((2, 4, 8, 6), lambda _, x: relax.op.nn.max_pool2d(x)).with_attr("collage.note", "kept")
    assert converted(mod).attrs["collage.note"] == "kept"


def test_a_second_run_changes_nothing():
    once = converted(built((1, 3, 8, 6), lambda b, x: relax.op.nn.relu(b.emit(conv(x)))))
    assert_stays(once)


def test_a_copy_to_another_device_keeps_the_layout():
    """A copy moves bytes: without this, an image would be transposed before and behind each."""
    near, far = (relax.VDevice("llvm", number, "global") for number in (0, 1))

    def body(builder, x):
        first = builder.emit(R.nn.relu(R.nn.conv2d(x, relax.const(W))))
        there = builder.emit(relax.op.to_vdevice(first, far))
        return R.nn.conv2d(there, relax.const(np.ones((4, 4, 1, 1), "float32")))

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 8, 8), "float32", near))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(builder, x)))
        builder.emit_func_output(out)
    last = converted(with_listed_devices(builder.get()))
    assert operators(last) == [
        "permute_dims",
        "nn.conv2d",
        "nn.relu",
        "to_vdevice",
        "nn.conv2d",
        "permute_dims",
    ]
    assert call_of(last, "to_vdevice").ty.vdevice.vdevice_id == 1


@I.ir_module
class ChangedBehindATranspose:
    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(1), T.int64(5), T.int64(5), T.int64(3)), "float32")):
        for i, j, k in T.grid(T.int64(5), T.int64(5), T.int64(3)):
            with T.sblock("grown"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                x[T.int64(0), vi, vj, vk] = x[T.int64(0), vi, vj, vk] + T.float32(10)

    @R.function
    def main(x: R.Tensor((1, 5, 5, 3), "float32")):
        cls = ChangedBehindATranspose
        with R.dataflow():
            a = R.permute_dims(x, axes=[0, 3, 1, 2])
            b = R.call_tir_inplace(
                cls.grown, (x,), inplace_indices=[0], out_ty=R.Tensor((1, 5, 5, 3), "float32")
            )
            c = R.nn.conv2d(a, R.const(W), padding=(1, 1))
            R.output(b, c)
        return (b, c)


def test_an_image_is_not_read_behind_a_change_of_its_memory():
    assert_stays(ChangedBehindATranspose)
