"""ONNX models with free sizes, with random weights: perceptron, convolutional networks, encoder and decoder."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Graph:
    """Nodes and weights of a graph with numbered values."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def constant(self, value: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def drawn(self, *shape: int) -> str:
        inputs = math.prod(shape[1:] if len(shape) > 2 else shape[:1])
        scale = math.sqrt(inputs)
        return self.constant((self._random.standard_normal(shape) / scale).astype(np.float32))

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attrs))
        return name

    def linear(self, x: str, inner: int, outer: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.drawn(inner, outer)), self.drawn(outer))

    def model(self, x: onnx.ValueInfoProto, result: str, shape: list[Any]) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "sized", [x], [y], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def perceptron() -> onnx.ModelProto:
    """(batch, 32) -> (batch, 10)."""
    g = _Graph()
    y = g.op("Softmax", g.linear(g.op("Relu", g.linear("x", 32, 64)), 64, 10), axis=-1)
    return g.model(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 32]), y, ["batch", 10])


def convolutions(edge: int = 12, channels: int = 8, layers: int = 2) -> onnx.ModelProto:
    """(batch, 3, edge, edge) -> (batch, 10): each convolution has twice the channels on half of the image."""
    g = _Graph()
    a, inner = "x", 3
    for layer in range(layers):
        outer = channels << layer
        a = g.op("Relu", g.op("Conv", a, g.drawn(outer, inner, 3, 3), g.drawn(outer), pads=[1] * 4))
        if layer < layers - 1:
            a = g.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2])
        inner = outer
    y = g.linear(g.op("Flatten", g.op("GlobalAveragePool", a)), inner, 10)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, edge, edge])
    return g.model(x, y, ["batch", 10])


def speech(frames: int = 900, bands: int = 120, channels: int = 32) -> onnx.ModelProto:
    """(batch, frames, bands) -> (batch, 3): a rating of speech, by convolutions of a spectrogram like DNSMOS."""
    g = _Graph()
    a = g.op("Unsqueeze", "x", g.constant(np.array([1], np.int64)))
    for inner, outer in ((1, channels), (channels, channels), (channels, channels), (channels, 2 * channels)):
        a = g.op("Relu", g.op("Conv", a, g.drawn(outer, inner, 3, 3), g.drawn(outer), pads=[1] * 4))
        a = g.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2])
    a = g.op("Flatten", g.op("GlobalMaxPool", a))
    a = g.op("Relu", g.linear(a, 2 * channels, 128))
    y = g.linear(g.op("Relu", g.linear(a, 128, 64)), 64, 3)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", frames, bands])
    return g.model(x, y, ["batch", 3])


def detector(channels: int = 16, stages: int = 3, classes: int = 8) -> onnx.ModelProto:
    """(batch, 3, height, width) -> (batch, classes, ...): stages with half the edges and twice the channels each, and a
    bottleneck with a residual, as in YOLO."""
    g = _Graph()

    def block(a: str, inner: int, outer: int, edge: int, **attrs: Any) -> str:
        a = g.op("Conv", a, g.drawn(outer, inner, edge, edge), g.drawn(outer), pads=[edge // 2] * 4, **attrs)
        return g.op("Mul", a, g.op("Sigmoid", a))

    a, inner = "x", 3
    for stage in range(stages):
        outer = channels << stage
        a = block(a, inner, outer, 3, strides=[2, 2])
        a = g.op("Add", a, block(block(a, outer, outer // 2, 1), outer // 2, outer, 3))
        inner = outer
    y = g.op("Conv", a, g.drawn(classes, inner, 1, 1), g.drawn(classes))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    return g.model(x, y, ["batch", classes, "rows", "columns"])


def transformer(width: int = 32, heads: int = 4, table: int = 24, layers: int = 1) -> onnx.ModelProto:
    """(batch, length) of int64 -> (batch, length, width); at most ``table`` positions.

    Shapes are computed by operators, as PyTorch exports them.
    """
    g = _Graph()
    shape = g.op("Shape", "x")
    zero, one, two = (g.constant(np.array([n], np.int64)) for n in (0, 1, 2))
    batch, length = g.op("Slice", shape, zero, one, zero), g.op("Slice", shape, one, two, zero)
    places = g.op("Slice", g.drawn(table, width), zero, length, zero)
    x = g.op("Add", g.op("Gather", g.drawn(50, width), "x", axis=0), places)
    for _ in range(layers):
        split = g.op("Concat", batch, length, g.constant(np.array([heads, width // heads])), axis=0)
        q, k, v = (
            g.op("Transpose", g.op("Reshape", g.linear(x, width, width), split), perm=order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scale = g.constant(np.float32((width // heads) ** -0.5))
        scores = g.op("Softmax", g.op("Mul", g.op("MatMul", q, k), scale), axis=-1)
        mixed = g.op("Transpose", g.op("MatMul", scores, v), perm=[0, 2, 1, 3])
        joined = g.op("Reshape", mixed, g.op("Concat", batch, length, g.constant(np.array([width])), axis=0))
        x = g.op("Add", x, g.linear(joined, width, width))
        x = g.op("LayerNormalization", x, g.drawn(width), g.drawn(width))
        x = g.op("Add", x, g.linear(g.op("Relu", g.linear(x, width, 2 * width)), 2 * width, width))
        x = g.op("LayerNormalization", x, g.drawn(width), g.drawn(width))
    ids = helper.make_tensor_value_info("x", TensorProto.INT64, ["batch", "length"])
    return g.model(ids, x, ["batch", "length", width])


class _Decoder(_Graph):
    """What decoders with a cache have in common: tokens ``x``, and ``key0``, ``value0``, ... of earlier tokens."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        """``shared``: the number of heads of keys and values."""
        super().__init__()
        self._width, self._size, self._shared = width, width // heads, shared
        zero, one, self.last = (self.constant(np.array(n, np.int64)) for n in (0, 1, -1))
        places = (("key0", 2), ("x", 1))
        lengths = [self.op("Shape", name, start=axis, end=axis + 1) for name, axis in places]
        past, length = (self.op("Squeeze", value) for value in lengths)
        total = self.op("Add", past, length)
        self.places = self.op("Range", past, total, one)
        """The positions of the tokens."""
        every, rows = (
            self.op("Range", zero, total, one),
            self.op("Unsqueeze", self.places, self.constant([1])),
        )
        visible = self.op("LessOrEqual", every, rows)
        hidden = self.constant(np.float32(0)), self.constant(np.float32(-1e9))
        self._mask = self.op("Where", visible, *hidden)
        self._inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, [1, "length"])]
        self._results: list[str] = []

    def cached(self, layer: int, key: str, value: str) -> tuple[str, str]:
        """Keys and values of earlier and new tokens, which are results too."""
        for name, new in (("key", key), ("value", value)):
            shape = [1, self._shared, "past", self._size]
            self._inputs.append(helper.make_tensor_value_info(f"{name}{layer}", TensorProto.FLOAT, shape))
            joined = [f"{name}{layer}", new]
            self.nodes.append(helper.make_node("Concat", joined, [f"new_{name}{layer}"], axis=2))
            self._results.append(f"new_{name}{layer}")
        return f"new_key{layer}", f"new_value{layer}"

    def attention(self, query: str, keys: str, values: str) -> str:
        """(1, heads, length, size) -> (1, length, width); no token sees later ones."""
        turned = self.op("Transpose", keys, perm=[0, 1, 3, 2])
        scores = self.op("MatMul", query, turned)
        scaled = self.op("Mul", scores, self.constant(np.float32(self._size**-0.5)))
        chosen = self.op("Softmax", self.op("Add", scaled, self._mask), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", chosen, values), perm=[0, 2, 1, 3])
        return self.op("Reshape", mixed, self.constant(np.array([1, -1, self._width])))

    def decoder(self, title: str, logits: str, vocabulary: int) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [logits], ["y"]))
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, vocabulary])]
        shape = [1, self._shared, "total", self._size]
        outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in self._results]
        graph = helper.make_graph(self.nodes, title, self._inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def decoder(
    width: int = 32, heads: int = 4, layers: int = 2, vocabulary: int = 50, table: int = 64
) -> onnx.ModelProto:
    """GPT-2 with a cache: (1, length) of int64 and keys and values of ``past`` tokens -> logits of the last token, and
    keys and values of ``past + length`` tokens. There are at most ``table`` tokens.

    Inputs are ``x``, ``key0``, ``value0``, ..., results ``y``, ``new_key0``, ``new_value0``, ...
    """
    g = _Decoder(width, heads, heads)
    words = g.drawn(vocabulary, width)
    x = g.op("Add", g.op("Gather", words, "x"), g.op("Gather", g.drawn(table, width), g.places))
    split = g.constant(np.array([1, -1, heads, width // heads]))
    for layer in range(layers):
        normal = g.op("LayerNormalization", x, g.drawn(width), g.drawn(width))
        query, key, value = (
            g.op("Transpose", g.op("Reshape", g.linear(normal, width, width), split), perm=[0, 2, 1, 3])
            for _ in range(3)
        )
        keys, values = g.cached(layer, key, value)
        x = g.op("Add", x, g.linear(g.attention(query, keys, values), width, width))
        normal = g.op("LayerNormalization", x, g.drawn(width), g.drawn(width))
        inner = g.linear(normal, width, 4 * width)
        half = g.op("Mul", inner, g.constant(np.float32(0.5)))
        root = g.op("Erf", g.op("Mul", inner, g.constant(np.float32(0.5**0.5))))
        gelu = g.op("Mul", half, g.op("Add", root, g.constant(np.float32(1))))
        x = g.op("Add", x, g.linear(gelu, 4 * width, width))
    final = g.op("Gather", x, g.last, axis=1)
    normal = g.op("LayerNormalization", final, g.drawn(width), g.drawn(width))
    logits = g.op("MatMul", normal, g.op("Transpose", words, perm=[1, 0]))
    return g.decoder("decoder", logits, vocabulary)


def llama(
    width: int = 48, heads: int = 6, shared: int = 2, layers: int = 2, inner: int = 96, vocabulary: int = 50
) -> onnx.ModelProto:
    """A decoder with rotary positions, RMS norms and gated layers, whose queries share keys and values in groups.

    Inputs and results are those of :func:`decoder`; keys and values have ``shared`` heads. Operators are those that
    PyTorch exports of transformers' Llama: keys are repeated by Expand, angles are computed.
    """
    g, size = _Decoder(width, heads, shared), width // heads
    speeds = g.constant((10000.0 ** (-np.arange(0, size, 2) / size)).astype(np.float32)[None])
    turned = g.op("Cast", g.op("Unsqueeze", g.places, g.constant([1])), to=TensorProto.FLOAT)
    angles = g.op("MatMul", turned, speeds)
    angles = g.op("Concat", angles, angles, axis=-1)
    cos, sin = g.op("Cos", angles), g.op("Sin", angles)

    def normal(x: str) -> str:
        mean = g.op("ReduceMean", g.op("Pow", x, g.constant(np.float32(2))), axes=[-1])
        root = g.op("Sqrt", g.op("Add", mean, g.constant(np.float32(1e-5))))
        return g.op("Mul", g.drawn(width), g.op("Mul", x, g.op("Reciprocal", root)))

    def product(x: str, inner: int, outer: int) -> str:
        return g.op("MatMul", x, g.drawn(inner, outer))

    def by_heads(x: str, count: int) -> str:
        split = g.op("Reshape", x, g.constant(np.array([1, -1, count, size])))
        return g.op("Transpose", split, perm=[0, 2, 1, 3])

    def rotated(x: str) -> str:
        half, end = g.constant(np.array([size // 2])), g.constant(np.array([size]))
        first = g.op("Slice", x, g.constant(np.array([0])), half, g.constant(np.array([3])))
        second = g.op("Slice", x, half, end, g.constant(np.array([3])))
        swapped = g.op("Concat", g.op("Neg", second), first, axis=-1)
        return g.op("Add", g.op("Mul", x, cos), g.op("Mul", swapped, sin))

    def repeated(x: str) -> str:
        lengths = g.op("Shape", x, start=2, end=3)
        around = [g.constant(np.array(n)) for n in ([1, shared, heads // shared], [size], [1, heads])]
        wide = g.op("Concat", around[0], lengths, around[1], axis=0)
        spread = g.op("Expand", g.op("Unsqueeze", x, g.constant([2])), wide)
        return g.op("Reshape", spread, g.op("Concat", around[2], lengths, around[1], axis=0))

    words = g.drawn(vocabulary, width)
    x = g.op("Gather", words, "x")
    for layer in range(layers):
        a = normal(x)
        query = rotated(by_heads(product(a, width, width), heads))
        key = rotated(by_heads(product(a, width, shared * size), shared))
        value = by_heads(product(a, width, shared * size), shared)
        keys, values = g.cached(layer, key, value)
        mixed = g.attention(query, repeated(keys), repeated(values))
        x = g.op("Add", x, product(mixed, width, width))
        a = normal(x)
        gate = product(a, width, inner)
        gate = g.op("Mul", gate, g.op("Sigmoid", gate))
        x = g.op("Add", x, product(g.op("Mul", gate, product(a, width, inner)), inner, width))
    final = normal(g.op("Gather", x, g.last, axis=1))
    logits = g.op("MatMul", final, g.op("Transpose", words, perm=[1, 0]))
    return g.decoder("llama", logits, vocabulary)
