"""How torch.compile runs an ONNX model, in a process beside other runtimes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from unity_collage.errors import ModelError
from unity_collage.profile.peers.runtime_process import RuntimeProcess
from unity_collage.profile.peers.runtimes import Inputs, Peer, python_loop

TORCH_COMPILE = "torch-compile"
RUNNER = "torch_peer.runtime:torch_compile"
FOLDER = Path(__file__).resolve().parents[1]


def process_of(name: str, path: Path, inputs: Inputs, threads: int) -> RuntimeProcess:
    """A runtime with its model: torch.compile, whose converter is part of the benchmarks, or one of the package."""
    if name == TORCH_COMPILE:
        return RuntimeProcess(name, path, inputs, threads, RUNNER, [FOLDER])
    return RuntimeProcess(name, path, inputs, threads)


def torch_compile(path: Path, inputs: Inputs, threads: int) -> Peer:
    """The model as a user would write it in torch, in one compiled graph with its weights frozen.

    Raises ModelError, which names the operator, if there is no torch function for one.
    """
    torch = _torch()
    import onnx
    from torch._inductor import config  # pyright: ignore[reportMissingImports]

    from .module import graph_module

    torch.set_num_threads(threads)
    config.freezing = True
    run = torch.compile(graph_module(onnx.load(path), inputs), fullgraph=True, dynamic=False)
    values = [torch.from_numpy(value) for value in inputs.values()]
    loop = python_loop(lambda: run(*values))

    def timed(seconds: float) -> list[float]:
        with torch.no_grad():
            return loop(seconds)

    def outputs() -> list[np.ndarray]:
        with torch.no_grad():
            return [found.numpy() for found in run(*values)]

    try:
        outputs()  # it is compiled when it runs first
    except Exception as error:  # whatever its backend and the C++ compiler raise
        advice = "\nSet TORCHDYNAMO_VERBOSE"  # to torch's own developers, below the reason
        reason = str(error).partition(advice)[0].strip().rpartition("\n")[2]
        raise ModelError(f"not compiled: {reason}") from error
    return Peer(timed, outputs)


def _torch() -> Any:
    """PyTorch, which is not a dependency even of the benchmarks: with CUDA, as on PyPI, it takes gigabytes."""
    try:
        return import_module("torch")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("PyTorch is missing: pip install torch") from error
