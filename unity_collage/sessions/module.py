"""Runtime modules with functions that are sessions of an inference runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm.runtime import Module

from .. import runtime
from ..runtime.custom_op_libraries import CustomOpLibrary

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_ALIGNED = 64


@dataclass(frozen=True, slots=True)
class SessionModel:
    """A model that becomes a function."""

    symbol: str
    onnx: bytes | Bytes
    """The model in the format that the runtime reads. It is not copied if it is what :func:`aligned_bytes` returns."""
    inputs: Sequence[str]
    """The names of its inputs in the order of the function's arguments; its results follow them."""
    outputs: Sequence[str]
    settings: Mapping[str, str]
    """The runtime's options, by their names there."""
    libraries: Sequence[CustomOpLibrary] = ()
    """Those with operators of the model, which only ONNX Runtime registers."""


def session_module(name: str, models: Sequence[SessionModel]) -> Module:
    """A module with a function for each of ``models``, for the runtime ``name``.

    A function takes the inputs and the tensors to write the results to. Called with the inputs alone it allocates its
    results: one tensor, or an array of several. The runtime compiles a model when its function is first looked up.
    """
    runtime.load(name)
    offset, described = 0, []
    for model in models:
        described.append(
            {
                "name": model.symbol,
                "offset": offset,
                "nbytes": len(model.onnx),
                "inputs": list(model.inputs),
                "outputs": list(model.outputs),
                "settings": dict(model.settings),
                "libraries": list(model.libraries),
            }
        )
        offset += len(model.onnx)
    create = tvm_ffi.get_global_func(f"collage.{name}.create")
    return create(json.dumps({"models": described}), _blob([model.onnx for model in models]))


def aligned_bytes(nbytes: int) -> Bytes:
    """New bytes that a module can keep without a copy."""
    more = np.empty(nbytes + _ALIGNED, np.uint8)
    begin = -more.ctypes.data % _ALIGNED
    return more[begin : begin + nbytes]


def _blob(models: Sequence[bytes | Bytes]) -> Any:
    """All models, one after the other."""
    first, *others = models
    if isinstance(first, np.ndarray) and not others and first.ctypes.data % _ALIGNED == 0:
        return tvm_ffi.from_dlpack(first)
    return b"".join(bytes(model) for model in models)
