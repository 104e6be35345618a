"""One small ONNX model for each way in which an operator may be given, and for what torch has no function."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(7)


def draw(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype("float32")


def positive(*shape: int) -> np.ndarray:
    return np.abs(draw(*shape)) + np.float32(0.5)


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def number(value: float) -> np.ndarray:
    return np.array(value, "float32")


def floats(*values: float) -> np.ndarray:
    return np.array(values, "float32")


X = "x"
"""Where the operand goes that depends on the input."""


@dataclass(frozen=True)
class Case:
    """One operator; its operand ``X`` is the input, the others are constants, None is left out."""

    op: str
    x: np.ndarray
    operands: tuple[Any, ...] = (X,)
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 17

    def model(self) -> onnx.ModelProto:
        names = [_name(number, value) for number, value in enumerate(self.operands)]
        outputs = [f"y{number}" for number in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, name="node", **self.attributes)
        weights = {name: value for name, value in zip(names, self.operands, strict=True) if name[:1] == "w"}
        return model([node], self.x, outputs, weights, self.opset)


def _name(number: int, value: Any) -> str:
    if value is None:
        return ""
    return f"w{number}" if isinstance(value, np.ndarray) else value


def model(
    nodes: list[onnx.NodeProto],
    x: np.ndarray,
    outputs: list[str],
    weights: dict[str, np.ndarray],
    opset: int = 17,
) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


IMAGE, LINE, VOLUME = draw(2, 4, 9, 8), draw(2, 4, 9), draw(1, 2, 5, 6, 5)
ROWS = draw(2, 3, 8)


def pooled(op: str, **attributes: Any) -> Case:
    return Case(op, IMAGE, attributes=attributes)


def convolved(*shape: int, op: str = "Conv", x: np.ndarray = IMAGE, **attributes: Any) -> Case:
    channels = shape[0] if op == "Conv" else shape[1] * attributes.get("group", 1)
    return Case(op, x, (X, draw(*shape), draw(channels)), attributes)


WINDOWS = {
    "conv": convolved(6, 4, 3, 3, pads=[1, 1, 1, 1], strides=[2, 1]),
    "conv without bias": Case("Conv", IMAGE, (X, draw(6, 4, 3, 3))),
    "conv in groups": convolved(8, 2, 3, 3, group=2, dilations=[2, 2]),
    "conv padded unevenly": convolved(6, 4, 3, 3, pads=[0, 1, 2, 1], strides=[2, 2]),
    "conv padded to the same": convolved(6, 4, 4, 3, auto_pad="SAME_UPPER", strides=[2, 2]),
    "conv padded to the same, first": convolved(6, 4, 4, 3, auto_pad="SAME_LOWER", strides=[1, 2]),
    "conv on a line": convolved(6, 4, 3, x=LINE, pads=[1, 0]),
    "conv on a volume": convolved(3, 2, 3, 3, 3, x=VOLUME, pads=[1] * 6),
    "transposed": convolved(4, 6, 4, 4, op="ConvTranspose", strides=[2, 2], pads=[1, 1, 1, 1]),
    "transposed, uneven": convolved(
        4, 3, 3, 3, op="ConvTranspose", strides=[2, 2], pads=[0, 1, 1, 0], output_padding=[1, 0], group=2
    ),
    "max": pooled("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "max, rounded up": pooled("MaxPool", kernel_shape=[2, 3], strides=[2, 3], ceil_mode=1),
    "max, uneven": pooled("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1]),
    "max, uneven and rounded up": pooled(
        "MaxPool", kernel_shape=[3, 3], strides=[3, 3], pads=[0, 1, 1, 0], ceil_mode=1
    ),
    "max, dilated": pooled("MaxPool", kernel_shape=[2, 2], dilations=[3, 2], pads=[1, 0, 1, 0]),
    "max, padded by a window": pooled("MaxPool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    "max on a line": Case("MaxPool", LINE, attributes={"kernel_shape": [3], "strides": [2]}),
    "global average": pooled("GlobalAveragePool"),
}

for include in (0, 1):
    for up in (0, 1):
        for title, pads in {"even": [1, 1, 1, 1], "uneven": [0, 1, 1, 0], "at the end": [0, 0, 1, 1]}.items():
            WINDOWS[f"average, {title}, include {include}, rounded up {up}"] = pooled(
                "AveragePool",
                kernel_shape=[3, 3],
                strides=[2, 3],
                pads=pads,
                count_include_pad=include,
                ceil_mode=up,
            )


def resized(mode: str, coordinates: str, *given: np.ndarray | None, **attributes: Any) -> Case:
    where = {"mode": mode, "coordinate_transformation_mode": coordinates}
    return Case("Resize", IMAGE, (X, None, *given), where | attributes, opset=18)


FLOOR = {"nearest_mode": "floor"}

SHAPES = {
    "nearest by scales": resized("nearest", "asymmetric", floats(1, 1, 2, 3), **FLOOR),
    "nearest by sizes": resized("nearest", "asymmetric", None, ints(2, 4, 12, 20), **FLOOR),
    "linear by scales": resized("linear", "half_pixel", floats(1, 1, 2, 2)),
    "linear by sizes": resized("linear", "half_pixel", None, ints(2, 4, 13, 5)),
    "reshape": Case("Reshape", ROWS, (X, ints(0, -1))),
    "reshape, negative": Case("Reshape", ROWS, (X, ints(-1, 4, 3))),
    "flatten": Case("Flatten", ROWS),
    "flatten, negative": Case("Flatten", ROWS, attributes={"axis": -1}),
    "flatten to a row": Case("Flatten", ROWS, attributes={"axis": 0}),
    "squeeze": Case("Squeeze", draw(1, 3, 1, 2), (X, ints(-2))),
    "squeeze all": Case("Squeeze", draw(1, 3, 1, 2)),
    "unsqueeze": Case("Unsqueeze", ROWS, (X, ints(-1, 0))),
    "transpose": Case("Transpose", ROWS),
    "transposed heads": Case("Transpose", IMAGE, attributes={"perm": [0, 2, 3, 1]}),
    "expand": Case("Expand", draw(3, 1), (X, ints(2, 1, 4))),
    "concat": Case("Concat", ROWS, (X, draw(2, 3, 5), X), {"axis": -1}),
    "split in equal parts": Case("Split", ROWS, attributes={"axis": -1}, outputs=2),
    "split by a number": Case("Split", ROWS, attributes={"axis": 2, "num_outputs": 3}, outputs=3, opset=18),
    "split by sizes": Case("Split", ROWS, (X, ints(1, 7)), {"axis": 2}, outputs=2),
    "slice": Case("Slice", ROWS, (X, ints(1, -7), ints(2**63 - 1, -1), ints(1, -1), ints(1, 2))),
    "slice beyond": Case("Slice", ROWS, (X, ints(-50, 1), ints(1, 50))),
    "gather one": Case("Gather", ROWS, (X, np.array(-1)), {"axis": 1}),
    "gather several": Case("Gather", ROWS, (X, ints(2, 0, -1)), {"axis": -1}),
    "gather from a table": Case("Gather", ints(0, 3, -1).reshape(1, 3), (draw(5, 4), X)),
    "pad": Case("Pad", IMAGE, (X, ints(0, 1, 0, 2, 1, 0, 0, 0), number(3.0))),
    "pad less": Case("Pad", IMAGE, (X, ints(0, 0, -1, 0, 0, 0, 2, -2))),
    "pad some axes": Case("Pad", IMAGE, (X, ints(1, 2, 0, 1), None, ints(-1, 1)), opset=18),
    "pad by reflection": Case("Pad", IMAGE, (X, ints(0, 0, 1, 2, 0, 0, 3, 0)), {"mode": "reflect"}),
    "pad by the edge": Case("Pad", IMAGE, (X, ints(0, 0, 1, 2, 0, 0, 3, 0)), {"mode": "edge"}),
    "shape": Case("Shape", ROWS, attributes={"start": -2}),
    "cast": Case("Cast", ROWS, attributes={"to": TensorProto.INT32}),
}

NUMBERS = {
    "add": Case("Add", ROWS, (X, draw(8))),
    "subtract from a number": Case("Sub", ROWS, (number(2.0), X)),
    "multiply by one element": Case("Mul", ROWS, (floats(0.3), X)),
    "multiply to more axes": Case("Mul", ROWS, (X, draw(1, 1, 1, 1))),
    "divide": Case("Div", ROWS, (X, number(2.5))),
    "divide integers": Case("Div", ints(-7, 7, 9), (X, ints(2))),
    "sum": Case("Sum", ROWS, (X, draw(8), draw(3, 1))),
    "power": Case("Pow", positive(2, 3), (X, number(1.5))),
    "square": Case("Pow", ROWS, (X, number(2.0))),
    "clip": Case("Clip", ROWS, (X, number(-0.2), number(0.5))),
    "clip above": Case("Clip", ROWS, (X, None, number(0.5))),
    "hard sigmoid": Case("HardSigmoid", ROWS * 4),
    "hard sigmoid of torch": Case("HardSigmoid", ROWS * 4, attributes={"alpha": 1 / 6}),
    "equal": Case("Equal", ints(1, 2, 3), (X, ints(3, 2, 1))),
    "dropout": Case("Dropout", ROWS, (X, number(0.5))),
    "mean": Case("ReduceMean", ROWS, attributes={"axes": [-1, 0], "keepdims": 0}),
    "mean, axes as an operand": Case("ReduceMean", ROWS, (X, ints(1)), opset=18),
    "mean of all": Case("ReduceMean", ROWS),
    "mean of nothing": Case("ReduceMean", ROWS, attributes={"noop_with_empty_axes": 1}, opset=18),
    "softmax": Case("Softmax", ROWS, attributes={"axis": -2}),
    "batch norm": Case("BatchNormalization", IMAGE, (X, draw(4), draw(4), draw(4), positive(4))),
    "layer norm": Case("LayerNormalization", ROWS, (X, draw(3, 8), draw(3, 8)), {"axis": -2}),
    "layer norm without bias": Case("LayerNormalization", ROWS, (X, draw(8)), {"epsilon": 1e-3}),
    "LRN": Case("LRN", IMAGE, attributes={"size": 3, "alpha": 0.5, "bias": 2.0}),
    "matmul": Case("MatMul", ROWS, (X, draw(8, 5))),
    "gemm": Case("Gemm", draw(3, 4), (X, draw(5, 4), draw(5)), {"transB": 1}),
    "gemm, scaled": Case(
        "Gemm", draw(4, 3), (X, draw(4, 5), draw(3, 1)), {"transA": 1, "alpha": 0.5, "beta": 2.0}
    ),
    "gemm without bias": Case("Gemm", draw(3, 4), (X, draw(4, 5)), {"alpha": 0.5}),
    **{
        op: Case(op, positive(3, 4))
        for op in ("Erf", "HardSwish", "Identity", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh")
    },
}


def recurrent(direction: str, *states: np.ndarray) -> Case:
    directions = 2 if direction == "bidirectional" else 1
    weights = draw(directions, 20, 6), draw(directions, 20, 5), draw(directions, 40)
    given = (X, *weights, *([None, *states] if states else []))
    return Case("LSTM", draw(4, 2, 6), given, {"hidden_size": 5, "direction": direction}, outputs=3)


MORE = {
    "LSTM": recurrent("forward", draw(1, 2, 5), draw(1, 2, 5)),
    "LSTM both ways": recurrent("bidirectional"),
    "gather elements": Case("GatherElements", ROWS, (X, ints(0, 2).reshape(1, 2, 1)), {"axis": 1}),
    "global maximum": pooled("GlobalMaxPool"),
    "smallest": Case("Min", ROWS, (X, draw(8), draw(3, 1))),
    "compare": Case("GreaterOrEqual", ROWS, (X, draw(8))),
    **{op: Case(op, positive(3, 4)) for op in ("Abs", "Cos", "Log", "Neg", "Sin")},
}

CASES = WINDOWS | SHAPES | NUMBERS | MORE


REFUSALS = {
    "no operator": (Case("Celu", ROWS), "no torch function for ONNX operator Celu (node node)"),
    "another domain": (Case("Relu", ROWS, attributes={"domain": "own.ops"}), "ONNX operator Relu (node node)"),
    "an older version": (Case("Softmax", ROWS, opset=12), "operators of ONNX's version 12"),
    "a shape as an input": (Case("Reshape", ints(2, 3), (draw(6), X)), "operand 1 is computed from the inputs"),
    "another mode": (Case("Pad", IMAGE, (X, ints(0) .repeat(8)), {"mode": "wrap"}), "Pad with mode=wrap"),
    "another resize": (resized("cubic", "half_pixel", floats(1, 1, 2, 2)), "Resize with cubic half_pixel"),
    "steps backwards": (Case("Slice", ROWS, (X, ints(-1), ints(0), ints(0), ints(-1))), "steps backwards"),
    "an even norm": (Case("LRN", IMAGE, attributes={"size": 4}), "LRN over an even number of channels"),
}  # fmt: skip
