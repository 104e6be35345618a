"""ncnn, a runtime for phones that has Winograd convolutions on x86 too; pnnx converts models for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ...converting import convert
from ...errors import ModelError
from ...scratch import Scratch
from .native import kept_output, module
from .runtimes import Inputs, Peer, python_loop

_MODEL = "model"
_INPUT = re.compile(r'ex\.input\("(\w+)", ncnn\.Mat\(in(\d+)\.numpy\(\), batch_index=(\d+)\)')
_OUTPUT = re.compile(r'ex\.extract\("(\w+)"\)\s+out\.append\(\S+\.numpy\(batch_index=(\d+)\)\)')
"""How the script of pnnx passes inputs and results: their blobs, and which axis of an array is the batch."""
_TYPES = {"float32": "f32", "int64": "i64", "int32": "i32", "uint8": "u8", "float64": "f64"}
_HALVES = ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage")


def ncnn(path: Path, inputs: Inputs, threads: int) -> Peer:
    """A network in float32, run by a new extractor each time, as ncnn requires.

    Raises ModelError with the message of pnnx or ncnn if they cannot convert or run the model.
    """
    with Scratch("ncnn") as folder, kept_output() as said:
        library = module("ncnn", "ncnn")
        script = _converted(path, inputs, Path(folder))
        network = _network(library, Path(folder), threads)
        if network is None:
            raise ModelError(f"not loaded: {said()}")
        # A Mat does not keep its array alive; its clone needs none.
        values = [_narrow(value) for value in inputs.values()]
        given = {
            blob: library.Mat(values[int(number)], batch_index=int(axis)).clone()
            for blob, number, axis in _INPUT.findall(script)
        }
        results = {blob: int(axis) for blob, axis in _OUTPUT.findall(script)}

        def run() -> list[Any]:
            return _extracted(network, given, list(results))

        if None in run():
            raise ModelError(f"it does not run: {said()}")

    def outputs() -> list[np.ndarray]:
        found = zip(run(), results.values(), strict=True)
        return [np.array(mat.numpy(batch_index=axis)) for mat, axis in found]

    return Peer(python_loop(run), outputs)


def _converted(path: Path, inputs: Inputs, folder: Path) -> str:
    """Write the model for ncnn into ``folder``; the result is the script that pnnx writes to show how it is run."""
    spec = find_spec("pnnx")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pnnx is missing: pip install --no-deps pnnx")
    (folder / f"{_MODEL}.onnx").symlink_to(path)  # what pnnx writes is next to it
    shapes = [_described(value) for value in inputs.values()]
    pnnx = Path(spec.submodule_search_locations[0]) / "pnnx"
    script = folder / f"{_MODEL}_ncnn.py"
    convert([pnnx, f"{_MODEL}.onnx", "fp16=0", f"inputshape={','.join(shapes)}"], folder, script)
    return script.read_text()


def _described(value: np.ndarray) -> str:
    if value.dtype.name not in _TYPES:
        raise ModelError(f"pnnx takes no inputs of {value.dtype}")
    return f"[{','.join(map(str, value.shape))}]{_TYPES[value.dtype.name]}"


def _narrow(value: np.ndarray) -> np.ndarray:
    """``value`` in 32 bits, the width of all numbers in ncnn, row by row."""
    return np.ascontiguousarray(value, np.float32 if value.dtype.kind == "f" else np.int32)


def _network(library: ModuleType, folder: Path, threads: int) -> Any:
    """The network, or None where ncnn does not know a layer."""
    network = library.Net()
    network.opt.num_threads = threads
    network.opt.use_vulkan_compute = False
    for half in _HALVES:
        setattr(network.opt, f"use_{half}", False)
    loaded = network.load_param(str(folder / f"{_MODEL}.ncnn.param"))
    return None if loaded or network.load_model(str(folder / f"{_MODEL}.ncnn.bin")) else network


def _extracted(network: Any, given: Mapping[str, Any], results: list[str]) -> list[Any]:
    """The results, None in place of each that ncnn failed to compute."""
    with network.create_extractor() as extractor:
        for blob, mat in given.items():
            extractor.input(blob, mat)
        found = [extractor.extract(blob) for blob in results]
    return [None if status else mat for status, mat in found]
