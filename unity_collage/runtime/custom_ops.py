"""Python functions that compute operators of a program. A process that loads the program registers them first."""

import ctypes
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..ffi import tvm_ffi

CustomOps = Mapping[str, Callable[..., Any]]
"""Python functions for operators, by ``domain::Operator``: from arrays of numpy to an array or several, attributes are
keyword arguments. They have no side effects."""


_PREFIX = "unity_collage.custom."
NOTE = "collage_custom"
"""The attribute of an executable that names the operators for which it calls Python functions."""
_MISSING = rf"Cannot find function {re.escape(_PREFIX)}(\S+)"

_registered: dict[str, Callable[..., Any]] = {}
"""The functions that programs of this process call, by the name of the operator."""


def symbol_of(name: str) -> str:
    """The symbol by which a program calls the function for the operator ``name``."""
    return _PREFIX + name


def operators_among(symbols: Iterable[str]) -> list[str]:
    """The operators whose functions are called by these symbols, each once."""
    return sorted({symbol.removeprefix(_PREFIX) for symbol in symbols if symbol.startswith(_PREFIX)})


def why_not_found(error: str) -> str | None:
    """What to do about an ``error`` that says that a function is missing; None for other errors."""
    named = re.search(_MISSING, error)
    if named is None:
        return None
    advice = (
        f"call unity_collage.register_custom_ops({{{named[1]!r}: function}}) before the program is loaded"
    )
    return f"{named[0]}: {advice}"


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
        made = [_tensor(each) for each in results_of(function, list(map(_array, tensors)), str(attributes))]
        return made[0] if len(made) == 1 else made

    return packed


def _array(tensor: Any) -> np.ndarray:
    """A tensor as an array: its memory, or a copy where DLPack of numpy lacks its type, such as bfloat16."""
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError):
        import ml_dtypes  # noqa: F401  # numpy knows bfloat16 from here

        array = np.empty(tensor.shape, str(tensor.dtype))
        ctypes.memmove(array.ctypes.data, tensor.data_ptr(), array.nbytes)
        return array


def _tensor(result: np.ndarray) -> Any:
    """A copy in TVM's memory: a result may be an operand, and later kernels reuse that."""
    source = np.ascontiguousarray(result, result.dtype.newbyteorder("="))
    allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
    dtype, device = tvm_ffi.dtype(source.dtype.name), tvm_ffi.device("cpu")
    tensor = allocate(tvm_ffi.Shape(result.shape), dtype, device, None)
    ctypes.memmove(tensor.data_ptr(), source.ctypes.data, source.nbytes)
    return tensor


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
