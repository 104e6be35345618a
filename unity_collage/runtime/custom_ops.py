"""Python functions that compute operators of a program: who runs it elsewhere registers them first."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..ffi import tvm_ffi

CustomOps = Mapping[str, Callable[..., Any]]
"""Python functions for operators, by ``domain::Operator``: from arrays of numpy to an array or several, attributes are
keyword arguments. They have no side effects."""


def symbol_of(name: str) -> str:
    """How a program calls the function for the operator ``name``."""
    return f"unity_collage.custom.{name}"


def register_custom_ops(custom_ops: CustomOps) -> None:
    """Let the programs of this process call these functions; those of the same names before are replaced."""
    for name, function in custom_ops.items():
        tvm_ffi.register_global_func(symbol_of(name), _as_packed(function), override=True)


def encoded(attributes: Mapping[str, Any]) -> str:
    """The attributes of a node as text, which is the first argument of a call."""
    return json.dumps({name: _plain(value) for name, value in attributes.items()})


def results_of(function: Callable[..., Any], arrays: list[np.ndarray], attributes: str) -> list[np.ndarray]:
    """What a function returns for arrays and encoded attributes."""
    given = {name: _value(value) for name, value in json.loads(attributes).items()}
    found = function(*arrays, **given)
    return [np.asarray(each) for each in (found if isinstance(found, (list, tuple)) else [found])]


def _as_packed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of encoded attributes and tensors."""

    def packed(attributes: str, *tensors: Any) -> Any:
        results = results_of(function, [np.from_dlpack(tensor) for tensor in tensors], str(attributes))
        made = [tvm_ffi.from_dlpack(np.ascontiguousarray(result)) for result in results]
        return made[0] if len(made) == 1 else made

    return packed


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
