"""The models that pages speak of, in small: their files, inputs and dimensions have the same names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

HEAD = '<ir_version: 8, opset_import: ["": 17, "my.ops": 1]>\n'

CLASSIFIER = """classifier (float[batch, 16] rows) => (float[batch, 8] scores) {
    product = MatMul(rows, w)
    scores = Relu(product)
}"""

ENCODER = """encoder (float[batch, length, 16] tokens) => (float[batch, length, 8] states) {
    product = MatMul(tokens, w)
    states = Relu(product)
}"""

MODELS = {
    "resnet50.onnx": """resnet50 (float[1, 3, 224, 224] image) => (float[1, 8, 7, 7] scores) {
        r1 = Conv<strides = [32, 32]>(image, filters)
        r2 = Relu(r1)
        scores = Softmax<axis = 1>(r2)
    }""",
    "model.onnx": CLASSIFIER,
    "classifier.onnx": CLASSIFIER,
    "encoder.onnx": ENCODER,
    "detector.onnx": """detector (float[1, 3, height, width] image) => (float[1, 3, height, width] boxes) {
        boxes = Relu(image)
    }""",
    "silero_vad.onnx": """
    vad (float[batch, samples] input, float[2, batch, 128] state, int64 sr) => (float[batch, samples] output) {
        rate = Constant<value = int64 {16000}>()
        is_fast = Equal(sr, rate)
        output = If(is_fast) <
            then_branch = fast () => (float[batch, samples] a) { a = Sigmoid(input) },
            else_branch = slow () => (float[batch, samples] b) { b = Tanh(input) }
        >
    }""",
    "own.onnx": """own (float[2, 3] x) => (float[2, 3] y) {
        y = my.ops.Foo<by = 2.0>(x)
    }""",
}
"""Graphs in the textual form of ONNX, without their weights."""

WEIGHTS = {"w": (16, 8), "filters": (8, 3, 32, 32)}
"""Shapes of weights, by name."""


def write(name: str, folder: Path) -> None:
    """Write a model of ``MODELS`` under its name."""
    model = onnx.parser.parse_model(HEAD + MODELS[name])
    read = {value for node in model.graph.node for value in node.input}
    rng = np.random.default_rng(0)
    for weight in sorted(read & set(WEIGHTS)):
        values = rng.standard_normal(WEIGHTS[weight], dtype=np.float32) / 8
        model.graph.initializer.append(numpy_helper.from_array(values, weight))
    onnx.save(model, folder / name)
