"""Checks the inputs of a call against the signature, and makes tensors of them. No value is converted or truncated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm_ffi import Tensor

from ..errors import CollageError, first_line
from .memory import HOST, Memory, memory_of
from .signature import OtherSpec, Spec, TensorSpec, TupleSpec, shown, tensor_text
from .tensors import NotTaken, is_of_torch, numpy_type, what

_NUMBERS = ("uint", "int", "float", "bfloat", "bool")
"""How the names of types begin that may be converted to each other."""

Sizes = dict[str, tuple[int, str]]
"""The symbolic dimensions of a call: the extent of each, and the input that gave it."""

Take = Callable[[Any, Sizes], Any]
"""Turns a value into what the program reads; raises CollageError if it may not be this input."""


def taking(spec: Spec, memory: Memory = HOST, memory_at: Callable[[str], Memory] = memory_of) -> Take:
    """The check and conversion of one input of a program that reads ``memory``.

    ``memory_at`` returns that of a device that a signature names.
    """
    if isinstance(spec, TensorSpec):
        return TensorInput(spec, memory_at(spec.device) if spec.device else memory)
    return _tuple_of(spec, memory, memory_at) if isinstance(spec, TupleSpec) else _other(spec, memory)


class TensorInput:
    """Takes arrays and tensors of one type and shape."""

    __slots__ = ("_dtype", "_extents", "_memory", "_spec", "_type")

    def __init__(self, spec: TensorSpec, memory: Memory = HOST):
        self._spec = spec
        self._memory = memory
        self._dtype = numpy_type(spec.dtype)
        self._type = tvm_ffi.dtype(spec.dtype)
        fixed = spec.shape is not None and all(isinstance(dim, int) for dim in spec.shape)
        self._extents = spec.shape if fixed else None  # a shape without symbols: one comparison checks it

    def __call__(self, value: Any, sizes: Sizes) -> Tensor:
        if type(value) is np.ndarray:
            return self._array(value, sizes)
        if isinstance(value, Tensor):
            return self._tensor(value, sizes)
        try:
            return self._foreign(value, sizes)
        except NotTaken as error:
            raise self._refused(str(error)) from error
        except ValueError as error:  # a type that DLPack has, but TVM lacks
            raise self._refused(f"{what(value)} was given: {first_line(error)}") from error

    def _array(self, array: np.ndarray, sizes: Sizes) -> Tensor:
        if array.dtype != self._dtype:
            if array.dtype.newbyteorder("=") != self._dtype:
                raise self._wrong_type(array.dtype.name, array.shape)
            array = array.astype(self._dtype)  # the same values in the machine's byte order
        if array.shape != self._extents:
            self._check_shape(array.shape, sizes)
        return self._memory.tensor_of_array(array)

    def _tensor(self, tensor: Tensor, sizes: Sizes) -> Tensor:
        if tensor.dtype != self._type:
            raise self._wrong_type(str(tensor.dtype), tensor.shape)
        if tensor.shape != self._extents:
            self._check_shape(tensor.shape, sizes)
        try:
            return self._memory.readable(tensor)
        except NotTaken as error:
            raise self._refused(str(error)) from error

    def _foreign(self, value: Any, sizes: Sizes) -> Tensor:
        """A tensor of another library, an array of a subclass of numpy's, or Python's own numbers."""
        if isinstance(value, (np.ndarray, np.generic)):
            if isinstance(value, np.ma.MaskedArray):
                raise NotTaken("a masked array was given, whose mask would be lost: give a plain array")
            return self._array(np.asarray(value), sizes)
        if hasattr(value, "__dlpack__"):
            try:
                tensor = self._memory.exchanged(value)
            except NotTaken:
                if is_of_torch(value) or not hasattr(value, "__array__"):
                    raise
                return self._array(_as_array(value), sizes)  # such as read-only arrays
            return self._tensor(tensor, sizes)
        if isinstance(value, (bool, int, float, list, tuple)):
            return self._array(self._numbers(value), sizes)
        if hasattr(value, "__array__"):
            return self._array(_as_array(value), sizes)
        raise NotTaken(f"{what(value)} was given")

    def _numbers(self, value: Any) -> np.ndarray:
        """Python's numbers, which are bool, int64 or float64. Integers fit every integer type that has their values."""
        array = _as_array(value)
        if (array.dtype.kind in "iu" and self._dtype.kind in "iu") or array.size == 0:
            exact = array.astype(self._dtype)
            if np.array_equal(exact, array):
                return exact
            raise NotTaken(f"numbers from {array.min()} to {array.max()} were given")
        return array

    def _check_shape(self, shape: tuple[int, ...], sizes: Sizes) -> None:
        expected = self._spec.shape
        if expected is None:
            return
        if len(shape) != len(expected):
            raise self._refused(
                f"{self._given(shape)} was given: {len(shape)} dimensions, not {len(expected)}"
            )
        for axis, (extent, dim) in enumerate(zip(shape, expected, strict=True)):
            if isinstance(dim, str):
                size, source = sizes.setdefault(dim, (extent, self._spec.name))
                if extent != size:
                    why = f"dimension {axis} is {extent}, but {dim} is {size} in {shown(source)}"
                    raise self._refused(f"{self._given(shape)} was given: {why}")
            elif dim is not None and extent != dim:
                raise self._refused(
                    f"{self._given(shape)} was given: dimension {axis} is {extent}, not {dim}"
                )

        for axis, factor in self._spec.multiples:
            if shape[axis] % factor:
                why = f"dimension {axis} is {shape[axis]}, not a multiple of {factor}"
                raise self._refused(f"{self._given(shape)} was given: {why}")

    def _given(self, shape: tuple[int, ...]) -> str:
        return tensor_text(self._spec.dtype, shape)

    def _wrong_type(self, dtype: str, shape: Sequence[int]) -> CollageError:
        given = f"{tensor_text(dtype, shape)} was given, and programs convert no types"
        advice = (
            f": convert it to {self._spec.dtype}, if that keeps its values"
            if dtype.startswith(_NUMBERS)
            else ""
        )
        return self._refused(given + advice)

    def _refused(self, why: str) -> CollageError:
        return CollageError(f"input {shown(self._spec.name)} takes {self._spec}; {why}")


def _tuple_of(spec: TupleSpec, memory: Memory, memory_at: Callable[[str], Memory]) -> Take:
    fields = [taking(field, memory, memory_at) for field in spec.fields]

    def take(value: Any, sizes: Sizes) -> tuple[Any, ...]:
        if not isinstance(value, (tuple, list, tvm_ffi.Array)) or len(value) != len(fields):
            raise CollageError(f"input {shown(spec.name)} takes a tuple {spec}; {what(value)} was given")
        return tuple(field(part, sizes) for field, part in zip(fields, value, strict=True))

    return take


def _other(spec: OtherSpec, memory: Memory) -> Take:
    """Takes shapes, which may be tuples of integers, plain numbers, and tensors of any type."""

    def take(value: Any, _: Sizes) -> Any:
        if isinstance(value, (bool, int, float, tvm_ffi.Shape)):
            return value
        if spec.kind.startswith("R.Shape"):
            if isinstance(value, (tuple, list)) and all(isinstance(extent, int) for extent in value):
                return tvm_ffi.Shape(tuple(value))
            raise CollageError(f"input {shown(spec.name)} takes {spec}; {what(value)} was given")
        return unchecked(value, memory)

    return take


def unchecked(value: Any, memory: Memory = HOST) -> Any:
    """A value of unknown type as the VM takes it: arrays become tensors, tuples stay tuples."""
    if isinstance(value, (tuple, list)):
        return tuple(unchecked(field, memory) for field in value)
    if isinstance(value, tvm_ffi.Object) or not isinstance(value, (np.ndarray, np.generic, int, float)):
        return value
    return memory.tensor_of_array(np.asarray(value))


def _as_array(value: Any) -> np.ndarray:
    """``value`` as numpy reads it; raises NotTaken where it is not an array of numbers."""
    try:
        array = np.asarray(value)
    except Exception as error:  # ragged lists; code of a foreign class
        raise NotTaken(f"{what(value)} was given that is not an array: {first_line(error)}") from error
    if array.dtype.kind in "OSUM":
        raise NotTaken(f"{what(value)} was given that numpy does not read as numbers")
    return array
