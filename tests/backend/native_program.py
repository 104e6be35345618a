"""Write programs of the native runtime by hand, for the tests of its executors."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi

from unity_collage import runtime

View = dict[str, Any]


def row_major(shape: Sequence[int]) -> list[int]:
    """Strides in elements of a packed tensor."""
    return [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]


def channels_last(dims: Sequence[int]) -> list[int]:
    """Strides for logical dims N, C, spatial... of a tensor that lies as N, spatial..., C."""
    spatial = row_major(dims[2:])
    return [int(np.prod(dims[1:])), 1, *(stride * dims[1] for stride in spatial)]


class Program:
    """Collects buffers and steps; ``create`` turns it into a module of a backend."""

    def __init__(self, name: str = "main") -> None:
        self.text: dict[str, Any] = {
            "name": name, "buffers": [], "inputs": [], "outputs": [], "constants": [], "steps": [],
        }  # fmt: skip
        self.blob = b""

    def input(self, *shape: int, dtype: str = "float32") -> View:
        return self._argument("inputs", shape, dtype)

    def output(self, *shape: int, dtype: str = "float32") -> View:
        return self._argument("outputs", shape, dtype)

    def temporary(self, *shape: int, dtype: str = "float32") -> View:
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self.text["buffers"].append({"nbytes": nbytes, "dtype": dtype, "shape": list(shape)})
        buffer = len(self.text["buffers"]) - 1
        return {
            "buffer": buffer,
            "dims": list(shape),
            "strides": row_major(shape),
            "dtype": dtype,
            "offset": 0,
        }

    def constant(self, array: np.ndarray) -> View:
        view = self.temporary(*array.shape, dtype=str(array.dtype))
        self.blob += b"\0" * (-len(self.blob) % 64)
        where = {"buffer": view["buffer"], "offset": len(self.blob), "nbytes": array.nbytes}
        self.text["constants"].append(where)
        self.blob += array.tobytes()
        return view

    def step(
        self, primitive: str, args: dict[str, View], post_ops: Sequence[dict[str, Any]] = (), **attrs: Any
    ) -> "Program":
        step = {"primitive": primitive, "args": args, "attrs": attrs, "post_ops": list(post_ops)}
        self.text["steps"].append(step)
        return self

    def create(self, backend: str) -> tvm_ffi.Module:
        return create(backend, {"programs": [self.text]}, self.blob)

    def _argument(self, role: str, shape: Sequence[int], dtype: str) -> View:
        view = self.temporary(*shape, dtype=dtype)
        self.text[role].append(view["buffer"])
        return view


def create(backend: str, programs: object, blob: bytes = b"") -> tvm_ffi.Module:
    """A module of ``backend`` from the parsed text of its programs."""
    runtime.load(backend)
    return tvm_ffi.get_global_func(f"collage.{backend}.create")(json.dumps(programs), blob)


def run(module: tvm_ffi.Module, *inputs: np.ndarray, out: Sequence[int], name: str = "main") -> np.ndarray:
    """Call one function with numpy arrays and return its output of shape ``out``."""
    result = np.full(out, np.nan, dtype="float32")
    tensors = [tvm_ffi.from_dlpack(np.ascontiguousarray(array)) for array in inputs]
    module.get_function(name)(*tensors, tvm_ffi.from_dlpack(result))
    return result


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype="float32")


def seen_as(view: View, dims: Sequence[int], strides: Sequence[int], offset: int = 0) -> View:
    """The same buffer with other dims, strides (elements) and offset (bytes)."""
    return view | {"dims": list(dims), "strides": list(strides), "offset": offset}
