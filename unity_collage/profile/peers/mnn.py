"""MNN, a runtime for phones that has Winograd convolutions on x86 too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from ...converting import to_mnn
from ...errors import ModelError
from ...runtime.mnn_sessions import MnnSession, MnnTensor
from ...scratch import Scratch
from .native import kept_output, module
from .runtimes import Inputs, Peer, python_loop


def mnn(path: Path, inputs: Inputs, threads: int) -> Peer:
    """A session in float32. A run includes the copy of its inputs, since a session uses their memory again.

    Raises ModelError with what MNN said where it cannot convert or run the model.
    """
    with Scratch("mnn") as folder, kept_output() as said:
        module("MNN", "MNN")
        names = [output.name for output in onnx.load(path, load_external_data=False).graph.output]
        model = Path(folder) / "model.mnn"
        to_mnn(path, model)
        shapes = {name: value.shape for name, value in inputs.items()}
        try:
            session = MnnSession(model, {"precision": "high"}, threads, shapes)
            for name, tensor in session.inputs.items():
                _set(tensor, inputs[name])
            session.run()
        except RuntimeError as error:
            raise ModelError(f"{error}: {said()}") from error

    def outputs() -> list[np.ndarray]:
        session.run()
        return [_numbers(session.outputs[name]) for name in names]

    return Peer(python_loop(session.run), outputs)


def _set(tensor: MnnTensor, values: np.ndarray) -> None:
    """Read ``values`` in the type that the tensor has in MNN."""
    held = np.ascontiguousarray(values, tensor.dtype)
    tensor.set(held.ctypes.data)


def _numbers(tensor: MnnTensor) -> np.ndarray:
    found = np.empty(tensor.shape, tensor.dtype)
    tensor.take(found.ctypes.data)
    return found
