"""Runs an ONNX model in each runtime, set up as its own documentation advises for the least latency on a CPU.

Each gets the same file, inputs and number of threads, and float32 unless its name says otherwise. A runtime is imported
only when it is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ...defaults import FILES_OF_TORCH

Inputs = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Peer:
    """A model in a runtime, ready to run."""

    timed: Callable[[float], list[float]]
    """Runs the model for about the given seconds, and returns the seconds of each run."""
    outputs: Callable[[], list[np.ndarray]]


def unity_collage(path: Path, inputs: Inputs, threads: int) -> Peer:
    """A saved program, timed by the native loop."""
    from ... import runtime
    from ...program import load

    runtime.set_num_threads(threads)
    program = load(path)
    values = [inputs[name] for name in inputs]
    run = program.prepared(*values)

    def timed(seconds: float) -> list[float]:
        return runtime.measure(run, [], warmup_seconds=seconds / 5, min_runs=3, min_seconds=seconds)

    def outputs() -> list[np.ndarray]:
        found = program(*values)
        return [found.numpy()] if hasattr(found, "numpy") else [tensor.numpy() for tensor in found]

    return Peer(timed, outputs)


def stock_tvm(path: Path, inputs: Inputs, threads: int) -> Peer:
    """``relax.build`` alone, for the host, on our thread pool."""
    import tvm
    from tvm import relax

    from ... import runtime
    from ...frontend.models import import_model
    from ...target import host_target

    runtime.set_num_threads(threads)
    source = import_model(path)
    machine = relax.VirtualMachine(relax.build(source.mod, host_target()), tvm.cpu())
    tensors = [tvm.runtime.tensor(inputs[name]) for name in source.inputs]
    machine.save_function("main", "stock_main", *tensors)
    run = machine.module["stock_main"]

    def timed(seconds: float) -> list[float]:
        return runtime.measure(run, [], warmup_seconds=0.0, min_runs=1, min_seconds=seconds)

    def outputs() -> list[np.ndarray]:
        found = machine["main"](*tensors)
        return [found.numpy()] if hasattr(found, "numpy") else [tensor.numpy() for tensor in found]

    return Peer(timed, outputs)


def onnxruntime(
    path: Path,
    inputs: Inputs,
    threads: int,
    libraries: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> Peer:
    """The CPU provider; inputs and outputs are bound before.

    ``libraries``: paths of those with custom operators. ``settings``: configuration entries of the session.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    for key, value in (settings or {}).items():
        options.add_session_config_entry(key, value)
    for library in libraries:
        options.register_custom_ops_library(library)
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_cpu_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    run = partial(session.run_with_iobinding, binding)
    try:
        for _ in range(2):  # the second run writes to what the first one has allocated
            run()
    except RuntimeError:  # a result with another rank than the model declares cannot be bound
        run = partial(session.run, None, dict(inputs))
    return Peer(python_loop(run), lambda: [np.asarray(value) for value in session.run(None, dict(inputs))])


def torch_eager(path: Path, inputs: Inputs, threads: int) -> Peer:
    """An exported program of PyTorch, or a module of TorchScript, run operator by operator."""
    import torch
    from torch.export.graph_signature import InputKind, TensorArgument
    from torch.utils import _pytree as pytree

    torch.set_num_threads(threads)
    tensors = iter([torch.from_numpy(value) for value in inputs.values()])
    if path.suffix != ".pt2":
        return _torch_peer(torch.jit.load(path, map_location="cpu").eval(), [*tensors], {})
    program = torch.export.load(path)
    given = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    leaves = [
        next(tensors) if isinstance(arg, TensorArgument) else getattr(arg, "value", None) for arg in given
    ]
    form = program.call_spec.in_spec
    assert form is not None
    return _torch_peer(program.module(), *pytree.tree_unflatten(leaves, form))


def _torch_peer(module: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Peer:
    import torch
    from torch.utils import _pytree as pytree

    def run() -> list[Any]:
        with torch.no_grad():
            return [
                leaf for leaf in pytree.tree_leaves(module(*args, **named)) if isinstance(leaf, torch.Tensor)
            ]

    return Peer(python_loop(run), lambda: [tensor.numpy() for tensor in run()])


def openvino_f32(path: Path, inputs: Inputs, threads: int) -> Peer:
    """The CPU plugin in float32: its own default is bfloat16 where the machine has it."""
    return _openvino(path, inputs, {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})


def openvino_default(path: Path, inputs: Inputs, threads: int) -> Peer:
    """The CPU plugin with its own choice of precision."""
    return _openvino(path, inputs, {"INFERENCE_NUM_THREADS": threads})


def _openvino(path: Path, inputs: Inputs, config: dict[str, Any]) -> Peer:
    import openvino  # pyright: ignore[reportMissingImports]

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(str(path)), "CPU", {"PERFORMANCE_HINT": "LATENCY", **config}
    )
    request = compiled.create_infer_request()
    for name, value in inputs.items():
        request.set_tensor(name, openvino.Tensor(value))

    def outputs() -> list[np.ndarray]:
        request.infer()
        return [np.array(request.get_output_tensor(i).data) for i in range(len(compiled.outputs))]

    return Peer(python_loop(request.infer), outputs)


def python_loop(run: Callable[[], Any]) -> Callable[[float], list[float]]:
    """A function that times ``run`` from Python, which adds 0.1 us to each run."""

    def timed(seconds: float) -> list[float]:
        for _ in range(3):
            run()
        end = time.perf_counter() + seconds
        found: list[float] = []
        while len(found) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
        return found

    return timed


OURS, ONNX_RUNTIME, EAGER = "unity_collage", "onnxruntime", "torch-eager"

PEERS = {
    ONNX_RUNTIME: f"{__name__}:onnxruntime",
    "openvino": f"{__name__}:openvino_f32",
    "openvino-default": f"{__name__}:openvino_default",
    "stock-tvm": f"{__name__}:stock_tvm",
    "mnn": f"{__package__}.mnn:mnn",
    "ncnn": f"{__package__}.ncnn:ncnn",
}
"""The runtimes to compare with: the function that runs each, by the name for ``--against``."""

_PACKAGES = {
    ONNX_RUNTIME: ("onnxruntime",),
    "openvino": ("openvino",),
    "openvino-default": ("openvino",),
    "mnn": ("MNN", "onnxruntime"),
    "ncnn": ("ncnn", "pnnx", "onnxruntime"),
}
"""The packages that runtimes need, which have the names of their modules; results of converted models are checked
against those of ONNX Runtime."""

CONVERTING = ("mnn", "ncnn")
"""Runtimes that run a file converted from the ONNX model, which may compute something else."""

RUNTIMES = {**PEERS, OURS: f"{__name__}:unity_collage", EAGER: f"{__name__}:torch_eager"}
"""All runtimes that a process can run by name."""


def why_no_peer(name: str, model: Path) -> str | None:
    """Why one of ``PEERS`` cannot run the file of a model, if that is known before; nothing is imported."""
    needed = _PACKAGES.get(name, ())
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        how = " ".join(["--no-deps", *missing] if missing == ["pnnx"] else missing)
        return (
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed: pip install {how}"
        )
    if needed and model.suffix in FILES_OF_TORCH:
        return f"it runs ONNX models, and {model.name} is not one"
    return None
