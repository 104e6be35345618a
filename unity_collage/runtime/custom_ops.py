"""Python functions that compute operators of a program. A process that loads the program registers them first."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..ffi import tvm_ffi

CustomOps = Mapping[str, Callable[..., Any]]
"""Python functions for operators, by ``domain::Operator``: from arrays of numpy to an array or several, attributes are
keyword arguments. They have no side effects."""


_ALIGNMENT = 64
"""In bytes; kernels read and write whole vectors."""

_registered: dict[str, Callable[..., Any]] = {}
"""The functions that programs of this process call, by the name of the operator."""


def symbol_of(name: str) -> str:
    """The symbol by which a program calls the function for the operator ``name``."""
    return f"unity_collage.custom.{name}"


def register_custom_ops(custom_ops: CustomOps) -> None:
    """Let the programs of this process call these functions; programs that have not run yet use them in place of
    earlier ones.
    """
    for name, function in custom_ops.items():
        _registered[name] = function
        tvm_ffi.register_global_func(symbol_of(name), _as_packed(function), override=True)


def is_another(name: str, function: Callable[..., Any]) -> bool:
    """Whether programs of this process call another function for the operator ``name``."""
    return _registered.get(name, function) is not function


def encoded(attributes: Mapping[str, Any]) -> str:
    """The attributes of a node as text, which is the first argument of a call."""
    return json.dumps({name: _plain(value) for name, value in attributes.items()})


def results_of(function: Callable[..., Any], arrays: list[np.ndarray], attributes: str) -> list[np.ndarray]:
    """The results of a function for read-only arrays and encoded attributes."""
    for array in arrays:
        array.flags.writeable = False
    given = {name: _value(value) for name, value in json.loads(attributes).items()}
    found = function(*arrays, **given)
    return [np.asarray(each) for each in (found if isinstance(found, (list, tuple)) else [found])]


def _as_packed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of encoded attributes and tensors."""

    def packed(attributes: str, *tensors: Any) -> Any:
        results = results_of(function, [np.from_dlpack(tensor) for tensor in tensors], str(attributes))
        made = [tvm_ffi.from_dlpack(_copied(result)) for result in results]
        return made[0] if len(made) == 1 else made

    return packed


def _copied(result: np.ndarray) -> np.ndarray:
    """A dense copy, aligned as kernels assume.

    It is copied since a result may be an operand, and later kernels reuse its memory.
    """
    memory = np.empty(result.nbytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    copy = memory[begin : begin + result.nbytes].view(result.dtype).reshape(result.shape)
    copy[...] = result
    return copy


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.name, "values": value.tolist()}
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    raise TypeError(f"it has an attribute of the type {type(value).__name__}")


def _value(value: Any) -> Any:
    return np.array(value["values"], value["dtype"]) if isinstance(value, dict) else value
