"""The examples by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from ..errors import ModelError, with_names
from .draw import drawn

FOLDER = Path(__file__).resolve().parent

_SMALL = """
    <ir_version: 9, opset_import: ["": 17]>
    small (float[1, 3, 64, 64] image) => (float[1, 10] scores) {
      c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (image, kernel)
      r = Relu (c)
      g = GlobalAveragePool (r)
      f = Flatten (g)
      scores = MatMul (f, matrix)
    }
"""


@dataclass(frozen=True, slots=True)
class Example:
    """A model to try."""

    name: str
    about: str
    """A line about the model and its input."""
    make: Callable[[], onnx.ModelProto]


def example(name: str) -> Example:
    """The example of that name; raises ModelError for an unknown name."""
    if name not in EXAMPLES:
        raise ModelError(with_names(f"no example is called {name!r}", name, list(EXAMPLES)))
    return EXAMPLES[name]


def _small() -> onnx.ModelProto:
    model = onnx.parser.parse_model(_SMALL)
    for name, shape in {"kernel": (32, 3, 3, 3), "matrix": (32, 10)}.items():
        weights = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return model


def _listed(name: str, about: str) -> Example:
    return Example(name, about, partial(drawn, FOLDER / f"{name}.onnx"))


EXAMPLES = {
    each.name: each
    for each in (
        Example(
            "small",
            "a convolution, a mean and a product, on an image of 64 x 64: the model of the documents",
            _small,
        ),
        _listed("mnist_mlp", "a perceptron of two layers, on an image of 28 x 28"),
        _listed("squeezenet", "SqueezeNet with 26 convolutions, on an image of 224 x 224"),
        _listed("resnet50", "ResNet-50 with 53 convolutions, on an image of 224 x 224"),
        _listed("bert_base_128", "BERT base with 12 layers, on 128 tokens"),
    )
}
"""The examples, the smallest first."""
