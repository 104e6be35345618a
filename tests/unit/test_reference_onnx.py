"""Small ONNX graphs, imported and run with numpy, against ONNX Runtime."""

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from unity_collage import reference
from unity_collage.frontend.models import import_model

RNG = np.random.default_rng(11)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def whole(*shape: int, low: int = -9, high: int = 9, dtype: str = "int64") -> np.ndarray:
    return RNG.integers(low, high, shape).astype(dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype="int64")


def one_node(
    op: str, inputs: list, constants: dict[int, np.ndarray], outputs: int, attrs: dict
) -> onnx.ModelProto:
    """A graph of one node; an input of None is left out, ``constants`` are initializers by position."""
    count = len(inputs) + len(constants)
    names = [
        "" if n < len(inputs) and inputs[n] is None and n not in constants else f"i{n}" for n in range(count)
    ]
    results = [f"o{n}" for n in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attrs)],
        op,
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, inputs, strict=False)
            if array is not None
        ],
        [
            helper.make_value_info(name, helper.make_tensor_type_proto(TensorProto.UNDEFINED, None))
            for name in results
        ],
        [numpy_helper.from_array(array, f"i{n}") for n, array in constants.items()],
    )
    for value in graph.output:
        value.ClearField("type")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(op, *inputs, constants=None, outputs=1, tolerance=3e-6, **attrs) -> None:
    arrays = list(inputs)
    model = one_node(op, arrays, constants or {}, outputs, attrs)
    model = onnx.shape_inference.infer_shapes(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = [array for array in arrays if array is not None]
    want = session.run(None, dict(zip([i.name for i in session.get_inputs()], given, strict=True)))
    mod = import_model(model).mod
    got = reference.run(mod["main"], given, mod)
    for left, right in zip(got, want, strict=True):
        assert (left.shape, left.dtype) == (np.shape(right), np.asarray(right).dtype)
        scale = np.abs(np.nan_to_num(np.asarray(right, "float64"), posinf=0, neginf=0)).max(initial=1)
        np.testing.assert_allclose(
            left.astype("float64"), right.astype("float64"), tolerance, tolerance * scale
        )


def check_relax(call: Callable[..., relax.Expr], arrays: list[np.ndarray], want: list[np.ndarray]) -> None:
    """An operator of Relax that the importer does not emit, against numpy."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"i{n}", relax.TensorType(a.shape, str(a.dtype))) for n, a in enumerate(arrays)]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(call(*params)))
    mod = builder.get()
    for left, right in zip(reference.run(mod["main"], arrays, mod), want, strict=True):
        np.testing.assert_array_equal(left, right)


UNARY = """Abs Atan Ceil Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Neg Relu
Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Tan Tanh ThresholdedRelu"""


@pytest.mark.parametrize("op", UNARY.split())
def test_unary(op):
    check(op, 3 * real(3, 7))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Greater", "LessOrEqual", "Equal"])
def test_binary_broadcasts(op):
    check(op, real(2, 1, 4), real(3, 1))
    check(op, whole(2, 1, 4, dtype="int32"), whole(3, 1, low=1, dtype="int32"))


def test_integers_are_divided_towards_zero():
    check("Div", ints(7, -7, 7, -7), ints(2, 2, -2, -2))
    check("Mod", ints(7, -7, 7, -7), ints(2, 2, -2, -2))


def test_clip_where_and_cast():
    check("Clip", real(3, 4), constants={1: np.float32(-0.5), 2: np.float32(0.5)})
    check("Where", real(3, 4) > 0, real(4), real(3, 1))
    check("Cast", 9 * real(3, 4), to=TensorProto.INT32)
    check("Cast", whole(3, 4), to=TensorProto.FLOAT16)


@pytest.mark.parametrize(
    "op", ["ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL2", "ReduceLogSumExp"]
)
@pytest.mark.parametrize(("axes", "keepdims"), [([1], 1), ([-1, 0], 0), ([-2], 0)])
def test_reductions(op, axes, keepdims):
    check(op, real(2, 3, 4), axes=axes, keepdims=keepdims)


def test_reductions_to_an_index_and_scans():
    check("CumSum", real(3, 4), constants={1: ints(1)[0]})
    check("CumSum", real(3, 4), constants={1: ints(0)[0]}, exclusive=1)
    x, y = real(3, 4), real(3, 9)
    check_relax(lambda x: relax.op.argmax(x, -1), [x], [x.argmax(-1)])
    check_relax(lambda x: relax.op.argmin(x, 0, True), [x], [x.argmin(0, keepdims=True)])
    order = np.argsort(y, -1)
    for largest, places in ((True, order[:, :-5:-1]), (False, order[:, :4])):
        want = [np.take_along_axis(y, places, -1), places]
        check_relax(lambda y, way=largest: relax.op.topk(y, 4, 1, "both", way, "int64"), [y], want)


def test_products():
    check("MatMul", real(2, 1, 3, 4), real(5, 4, 6))
    check("MatMul", real(4), real(4, 6))
    check("Gemm", real(4, 3), real(5, 4), real(5), transA=1, transB=1, alpha=0.5, beta=2.0)
    check("Einsum", real(2, 3, 4), real(2, 5, 4), equation="bij,bkj->bik")


CONVOLUTIONS = [
    ((2, 4, 7, 9), (6, 4, 3, 2), {}),
    ((1, 4, 8, 8), (6, 2, 3, 3), {"group": 2, "strides": [2, 1], "pads": [1, 2, 0, 1]}),
    ((1, 4, 9, 9), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1], "dilations": [2, 3]}),
    ((1, 3, 11), (5, 3, 4), {"strides": [3], "pads": [2, 1]}),
    ((1, 4, 5, 5, 5), (2, 2, 2, 3, 2), {"group": 2, "pads": [1, 0, 1, 0, 1, 2]}),
    ((1, 3, 7, 8), (4, 3, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
]


@pytest.mark.parametrize(("x", "weight", "attrs"), CONVOLUTIONS)
def test_conv(x, weight, attrs):
    check("Conv", real(*x), constants={1: real(*weight), 2: real(weight[0])}, **attrs)


@pytest.mark.parametrize(
    ("x", "weight", "attrs"),
    [
        ((2, 4, 5, 4), (4, 3, 3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
        ((2, 4, 5, 4), (4, 3, 3, 3), {"group": 2, "strides": [2, 2], "output_padding": [1, 1]}),
        ((1, 4, 9), (4, 2, 3), {"strides": [2], "pads": [1, 1]}),
    ],
)
def test_conv_transpose(x, weight, attrs):
    outputs = weight[1] * attrs.get("group", 1)
    check("ConvTranspose", real(*x), constants={1: real(*weight), 2: real(outputs)}, **attrs)


@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ],
)
def test_pool(attrs):
    check("MaxPool", real(2, 3, 8, 9), **attrs)
    check("AveragePool", real(2, 3, 8, 9), **attrs)
    check("AveragePool", real(2, 3, 8, 9), count_include_pad=1, **attrs)


def test_pool_of_other_ranks():
    check("MaxPool", real(2, 3, 8), kernel_shape=[3], strides=[2], pads=[1, 0])
    check("AveragePool", real(1, 2, 5, 6, 4), kernel_shape=[2, 3, 1], pads=[1, 1, 0, 0, 1, 0])
    check("MaxPool", real(1, 2, 9, 9), kernel_shape=[2, 2], dilations=[2, 3])
    check("GlobalAveragePool", real(2, 3, 5, 6))
    check("GlobalMaxPool", real(2, 3, 5, 6))


def test_normalizations():
    one = {"constants": {1: real(3), 2: real(3)}}
    check(
        "BatchNormalization",
        real(2, 3, 4, 5),
        constants={1: real(3), 2: real(3), 3: real(3), 4: np.abs(real(3)) + 1},
        epsilon=1e-3,
    )
    check("InstanceNormalization", real(2, 3, 4, 5), epsilon=1e-3, **one)
    check("LayerNormalization", real(2, 4, 3), epsilon=1e-3, **one)
    check("LRN", np.abs(real(1, 7, 4, 4)), size=5, alpha=0.01, beta=0.75)


@pytest.mark.parametrize("axis", [1, -1])
def test_softmax(axis):
    check("Softmax", 9 * real(2, 3, 4), axis=axis)
    check("LogSoftmax", 9 * real(2, 3, 4), axis=axis)


def test_moving_elements():
    check("Reshape", real(2, 3, 4), constants={1: ints(0, -1)})
    check("Flatten", real(2, 3, 4), axis=2)
    check("Transpose", real(2, 3, 4), perm=[1, 2, 0])
    check("Unsqueeze", real(2, 3), constants={1: ints(0, -1)})
    check("Squeeze", real(1, 3, 1), constants={1: ints(-1)})
    check("Expand", real(3, 1), constants={1: ints(2, 1, 4)})
    check("Tile", real(2, 3), constants={1: ints(2, 3)})
    check("Concat", real(2, 3), real(2, 5), axis=-1)
    check("Split", real(2, 7), constants={1: ints(2, 5)}, outputs=2, axis=1)
    check("DepthToSpace", real(1, 8, 2, 3), blocksize=2, mode="CRD")
    check("SpaceToDepth", real(1, 2, 4, 6), blocksize=2)
    check("Trilu", real(4, 5), upper=0)
    check("Slice", real(5, 7), constants={1: ints(4, 1), 2: ints(-100, 100), 3: ints(0, 1), 4: ints(-2, 3)})
    check("Shape", real(2, 3))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode):
    check("Pad", real(3, 4), constants={1: ints(1, 0, 2, 3), 2: np.float32(1.5)}, mode=mode)


def test_indexing():
    check("Gather", real(3, 4, 5), whole(2, 2, low=0, high=4), axis=1)
    check("Gather", real(3, 4, 5), constants={1: ints(-1)[0]}, axis=-1)
    check("GatherElements", real(3, 4), whole(2, 4, low=-3, high=3), axis=0)
    check("GatherND", real(3, 4, 5), whole(7, 2, low=0, high=3))
    data, rows, updates = real(3, 4), ints(2, 0, 1, 2).reshape(1, 4), real(1, 4)
    want = data.copy()
    np.put_along_axis(want, rows, updates, 0)
    check_relax(lambda d, i, u: relax.op.scatter_elements(d, i, u, 0), [data, rows, updates], [want])
    data, rows, updates = real(4, 3), ints(2, 0).reshape(2, 1), real(2, 3)
    want = data.copy()
    want[[2, 0]] = updates
    check_relax(relax.op.scatter_nd, [data, rows, updates], [want])
    check("OneHot", whole(2, 3, low=0, high=5), constants={1: ints(5)[0], 2: ints(0, 1)}, axis=1)


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(coordinates, mode):
    check(
        "Resize",
        real(1, 2, 5, 6),
        None,
        None,
        constants={3: ints(1, 2, 9, 13)},
        mode=mode,
        tolerance=1e-5,
        coordinate_transformation_mode=coordinates,
        **({"nearest_mode": "floor"} if mode == "nearest" else {}),
    )


def test_quantization():
    scale = np.float32(0.05)
    check("QuantizeLinear", real(3, 4), constants={1: scale, 2: np.int8(3)})
    check("DequantizeLinear", whole(3, 4, dtype="int8"), constants={1: scale, 2: np.int8(3)})
