"""Whole models against ONNX Runtime: forced on each backend and mixed, inside the network too."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
import zoo_models as models
from compiled import DrawnCost, arrays, backends_of, compiled

TOLERANCE = 1e-3
"""Largest error, over the range of the tensor."""


NODES = {"nasrnn": 96}
"""How many nodes of a network are compiled, where not all: two of its eight equal steps."""


def tapped(model: onnx.ModelProto, every: int = 10, nodes: int | None = None) -> onnx.ModelProto:
    """``model`` with each ``every``-th tensor inside as one more output: a network may hide its errors.

    With ``nodes``, only that many nodes are left, and the result of the last one is the output.
    """
    model = onnx.shape_inference.infer_shapes(model)
    known = {value.name: value for value in model.graph.value_info}
    if nodes is not None:
        del model.graph.node[nodes:], model.graph.output[:]
        model.graph.output.append(known.pop(model.graph.node[-1].output[0]))
    inside = [name for node in model.graph.node for name in node.output if name in known]
    model.graph.output.extend(known[name] for name in inside[::every])
    return model


def errors(got: list[np.ndarray], expected: list[np.ndarray]) -> list[float]:
    """The largest error of each tensor over its range."""
    found = []
    for ours, right in zip(got, expected, strict=True):
        assert ours.shape == right.shape and ours.dtype == right.dtype
        spread = float(np.ptp(right)) or float(np.abs(right).max()) or 1.0
        found.append(float(np.abs(ours.astype("float64") - right).max()) / spread)
    return found


FORCED = (("onednn",), ("openblas",), ("kernels",), ("tvm",), None)
# On drawn costs of nasrnn the exact search takes minutes where oneDNN alone has chains. Our kernels take nothing of it.
CHOICES: dict[str, tuple[tuple[str, ...] | None, ...]] = {
    "mnist_mlp": FORCED,
    "nasrnn": (("openblas",), ("tvm",), None),
    "squeezenet": FORCED,
}


@pytest.mark.parametrize(
    ("name", "backends"),
    [(name, forced) for name, choices in CHOICES.items() for forced in choices],
    ids=lambda part: part if isinstance(part, str) else "+".join(part or ("mixed",)),
)
def test_every_tenth_tensor_agrees_with_onnx_runtime(name: str, backends: tuple[str, ...] | None) -> None:
    model = tapped(models.load(name), nodes=NODES.get(name))
    feeds = models.inputs(model, seed=3)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    # Without the contract instrument: it prints every weight after every pass.
    with tvm.transform.PassContext():
        program = compiled(model, backends, DrawnCost("zoo"))
    assert len(model.graph.output) > 1
    assert max(errors(arrays(program(**feeds)), session.run(None, feeds))) <= TOLERANCE
    if backends is None:
        assert len(backends_of(program)) > 1
    else:
        able = set(backends) if backends != ("kernels",) or name == "squeezenet" else set()
        assert able <= backends_of(program) <= {*backends, "tvm"}
