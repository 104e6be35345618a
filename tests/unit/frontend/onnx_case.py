"""ONNX models of one node, imported, built by TVM with our legalizations, run, and compared with other runtimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

from unity_collage.frontend.onnx.importer import imported
from unity_collage.legalization import legalize_ops, legalize_sorts

Dims = Sequence[int | str]


def one_node(
    op: str,
    inputs: Mapping[str, np.ndarray | None],
    outputs: int | Sequence[str] = 1,
    *,
    opset: int = 17,
    domain: str = "",
    constant: Sequence[str] = (),
    dims: Mapping[str, Dims] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; operands that are None are not given, and those in ``constant`` are weights.

    ``dims`` gives inputs other dimensions than those of their arrays, such as names.
    """
    names = [f"out{n}" for n in range(outputs)] if isinstance(outputs, int) else list(outputs)
    operands = [name if array is not None else "" for name, array in inputs.items()]
    node = helper.make_node(op, operands, names, name="node", domain=domain, **attributes)
    given = {name: array for name, array in inputs.items() if array is not None}
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), (dims or {}).get(name, array.shape)
        )
        for name, array in given.items()
        if name not in constant
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in names if name]
    weights = [numpy_helper.from_array(given[name], name) for name in constant]
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    graph = helper.make_graph([node], "one", infos, results, weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def prepared(model: onnx.ModelProto) -> Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]:
    """What computes the results of the imported model, built by TVM with our legalizations."""
    mod, inputs, _ = imported(model)
    legal = legalize_ops()(legalize_sorts()(mod))
    vm = relax.VirtualMachine(relax.build(legal, tvm.target.Target("llvm")), tvm.cpu())

    def call(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        found = vm["main"](*(tvm.runtime.tensor(np.asarray(feeds[name], order="C")) for name in inputs))
        many: Any = found if isinstance(found, (list, tuple)) or type(found).__name__ == "Array" else [found]
        return [item.numpy() for item in many]

    return call


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The results of the imported model as :func:`prepared` builds it."""
    return prepared(model)(feeds)


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The results of ONNX Runtime."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(item) for item in session.run(None, dict(feeds))]


def by_reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The results of onnx's own evaluator."""
    return [np.asarray(item) for item in ReferenceEvaluator(model).run(None, dict(feeds))]


def check(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    rtol: float = 1e-5,
    atol: float = 1e-5,
    want: Sequence[np.ndarray] | None = None,
) -> None:
    """Assert that all results are ``want``, or else those of ONNX Runtime, in element type, shape and value."""
    names = {info.name for info in model.graph.input}
    feeds = {name: array for name, array in feeds.items() if name in names}
    expected = by_onnxruntime(model, feeds) if want is None else want
    found = run(model, feeds)
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected, strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        wide = [array.astype("float64") if array.dtype.kind in "fV" else array for array in (got, wanted)]
        np.testing.assert_allclose(*wide, rtol=rtol, atol=atol)
