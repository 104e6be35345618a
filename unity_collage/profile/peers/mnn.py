"""MNN, a runtime for phones that has Winograd convolutions on x86 too."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx

from ...errors import ModelError
from ...scratch import Scratch
from .native import convert, kept_output, module
from .runtimes import Inputs, Peer, python_loop

CONVERT = "import sys, _tools; _tools.mnnconvert(sys.argv)"
"""The code that converts a model by its arguments. The command ``mnnconvert`` would install a package with pip and send
the size of the model to a server. The converter below it does neither.
"""


def mnn(path: Path, inputs: Inputs, threads: int) -> Peer:
    """A session in float32. A run includes the copy of its inputs, since a session uses their memory again.

    Raises ModelError with what MNN said where it cannot convert or run the model.
    """
    with Scratch("mnn") as folder, kept_output() as said:
        library = module("MNN", "MNN")
        names = [output.name for output in onnx.load(path, load_external_data=False).graph.output]
        model = Path(folder) / "model.mnn"
        command = ("--modelFile", path, "--MNNModel", model, "--bizCode", "collage")
        convert([sys.executable, "-c", CONVERT, "-f", "ONNX", *command], Path(folder), model)
        network = library.Interpreter(str(model))
        session = network.createSession({"backend": "CPU", "numThread": threads, "precision": "high"})
        if session is None:
            raise ModelError(f"there is no session: {said()}")
        for name, tensor in network.getSessionInputAll(session).items():
            network.resizeTensor(tensor, inputs[name].shape)
        network.resizeSession(session)
        given = {
            name: (tensor, _host_tensor(library, tensor, inputs[name]))
            for name, tensor in network.getSessionInputAll(session).items()
        }

        def run() -> int:
            for tensor, host in given.values():
                tensor.copyFrom(host)
            return network.runSession(session)

        if run() != 0:
            raise ModelError(f"it does not run: {said()}")

    def outputs() -> list[np.ndarray]:
        run()
        found: Mapping[str, Any] = network.getSessionOutputAll(session)
        return [_numbers(library, found[name]) for name in names]

    return Peer(python_loop(run), outputs)


def _numbers(library: ModuleType, tensor: Any) -> np.ndarray:
    host = _host_tensor(library, tensor, np.zeros(tensor.getShape()))
    tensor.copyToHostTensor(host)
    return np.array(host.getNumpyData()).reshape(tensor.getShape())


def _host_tensor(library: ModuleType, tensor: Any, values: np.ndarray) -> Any:
    """A copy of ``values`` in the type that ``tensor`` has in MNN, which stores 64-bit integers in 32 bits."""
    kind = tensor.getDataType()
    dtypes = {library.Halide_Type_Float: np.float32, library.Halide_Type_Uint8: np.uint8}
    held = np.ascontiguousarray(values, dtypes.get(kind, np.int32))
    return library.Tensor(held.shape, kind, held, library.Tensor_DimensionType_Caffe)
