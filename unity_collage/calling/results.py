"""Results of a call: memory of their own, and buffers that the caller gives for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np
import tvm_ffi
from tvm_ffi import Tensor

from ..errors import CollageError
from ..runtime import cuda
from .memory import HOST, Memory, memory_of
from .signature import Dim, Signature, TensorSpec, shown, tensor_text
from .tensors import CPU, array_of_tensor, is_of_torch, numpy_type, what


def let_numpy_read_tensors() -> None:
    """Give TVM's tensors ``__array__``: without it numpy makes an array of one object of them.

    The FFI returns tensors of one class: TVM's where TVM is imported, and :class:`HostTensor` elsewhere. TVM's
    ``numpy`` would not wait for all streams of a device.
    """
    tvm = sys.modules.get("tvm")
    if tvm is None:
        _use_host_tensors()
    elif not hasattr(tvm.runtime.Tensor, "__array__"):
        tvm.runtime.Tensor.__array__ = _array
        tvm.runtime.Tensor.numpy = _waiting(tvm.runtime.Tensor.numpy)


class HostTensor(Tensor):
    """A tensor in a process without TVM's packages for Python, with the methods that results of programs promise."""

    __slots__ = ()

    def numpy(self) -> np.ndarray:
        """A copy as an array of numpy."""
        return array_of_tensor(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return _array(self, dtype, copy)

    def __repr__(self) -> str:
        return f"<Tensor shape={self.shape}, {self.device}>\n{self.numpy()!r}"


def _waiting(numpy: Callable[[Tensor], np.ndarray]) -> Callable[[Tensor], np.ndarray]:
    """``numpy`` of a tensor; on a CUDA device it waits for the work of all streams."""

    @wraps(numpy)
    def waiting(tensor: Tensor) -> np.ndarray:
        if tensor.__dlpack_device__()[0] == cuda.DEVICE[0]:
            cuda.synchronize_device()
        return numpy(tensor)

    return waiting


@cache
def _use_host_tensors() -> None:
    tvm_ffi.core._set_class_tensor(tvm_ffi.register_object("ffi.Tensor")(HostTensor))  # as TVM sets its own


def with_own_memory(found: Any, shared: Sequence[int], memory: Memory = HOST) -> Any:
    """``found`` with copies of the results that ``shared`` numbers, so that a caller may write to all of them."""
    if isinstance(found, Tensor):
        return _copied(found, memory)
    return [_copied(part, memory) if number in shared else part for number, part in enumerate(found)]


def _copied(part: Any, memory: Memory) -> Any:
    """A copy of a tensor, or of all in nested lists of them; other values do not change."""
    if isinstance(part, Tensor):
        return _memory_of(part, memory).copied_tensor(part)
    return [_copied(field, memory) for field in part] if isinstance(part, tvm_ffi.Array) else part


def _memory_of(tensor: Tensor, memory: Memory) -> Memory:
    """The memory that a result is in: ``memory``, or another one of the same kind."""
    kind, number = tensor.__dlpack_device__()
    return memory_of(f"cpu:{number}") if kind == CPU[0] else memory


class Buffers:
    """The arrays that a caller gives for the results of a call: one, or a tuple of one for each result."""

    def __init__(self, out: Any, signature: Signature | None, memory: Memory = HOST):
        """``memory``: where the program writes. Raises CollageError where a result could not go into its array."""
        self._out = out
        self._memory = memory
        self._arrays = list(out) if isinstance(out, (tuple, list)) else [out]
        self._specs = (None,) * len(self._arrays) if signature is None else signature.results
        self._check_count(len(self._specs))
        for number, (array, spec) in enumerate(zip(self._arrays, self._specs, strict=True)):
            if reason := _why_not_writable(array, memory):
                raise CollageError(f"{self._name(number)} cannot be written to out: {reason}")
            if isinstance(spec, TensorSpec) and not _fits(array, spec.dtype, spec.shape):
                raise CollageError(f"{self._name(number)} is {spec}, but out has {_text(array)} for it")

    def filled(self, found: Any) -> Any:
        """Write the results into the arrays, and return these as given. Nothing is written if one is wrong."""
        results = [found] if isinstance(found, Tensor) else list(found)
        self._check_count(len(results))
        for number, (result, array) in enumerate(zip(results, self._arrays, strict=True)):
            if not isinstance(result, Tensor):
                raise CollageError(f"{self._name(number)} is not a tensor, so it cannot be written to out")
            if not _fits(array, result.dtype, result.shape):
                text = tensor_text(str(result.dtype), result.shape)
                raise CollageError(f"{self._name(number)} is {text}, but out has {_text(array)} for it")
        for result, array in zip(results, self._arrays, strict=True):
            _write(result, array, self._memory)
        return self._out

    def _name(self, number: int) -> str:
        spec = self._specs[number]
        return f"result {number if spec is None else shown(spec.name)}"

    def _check_count(self, results: int) -> None:
        if results != len(self._arrays):
            raise CollageError(
                f"the program has {results} results, and out has arrays for {len(self._arrays)}"
            )


_numpy_type = cache(numpy_type)


def _fits(array: Any, dtype: str, shape: tuple[Dim, ...] | None) -> bool:
    """Whether ``array`` has this type and the extents that are known."""
    if array.dtype != _numpy_type(dtype) if isinstance(array, np.ndarray) else _dtype(array) != dtype:
        return False
    if shape is None or array.shape == shape:
        return True
    pairs = list(zip(array.shape, shape, strict=False))
    return len(array.shape) == len(shape) and all(
        extent == dim for extent, dim in pairs if isinstance(dim, int)
    )


def _why_not_writable(array: Any, memory: Memory) -> str | None:
    if isinstance(array, np.ndarray):
        if not array.flags.writeable:
            return "the array is read-only"
        return None if array.dtype.isnative else "the array is not in the machine's byte order"
    if isinstance(array, Tensor):
        return memory.why_not_written(array) or (
            None if array.is_contiguous() else "the tensor is not contiguous"
        )
    if is_of_torch(array):
        return memory.why_not_written(array)
    return f"a buffer is an array of numpy or a tensor of PyTorch or TVM, not {what(array)}"


def _write(result: Tensor, array: Any, memory: Memory) -> None:
    if isinstance(array, np.ndarray):
        np.copyto(array, _array(result), casting="no")
    elif isinstance(array, Tensor):
        memory.write(result, array)
    else:
        array.detach().copy_(sys.modules["torch"].from_dlpack(result))


def _array(tensor: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """numpy's protocol: the tensor's memory if it is on the CPU and numpy has its type, else a copy."""
    try:
        if tensor.__dlpack_device__() != CPU:
            raise BufferError
        array = np.from_dlpack(tensor)
    except (RuntimeError, BufferError):  # such as bfloat16
        if copy is False:
            raise ValueError(f"an array of {tensor.dtype} on {tensor.device} is a copy") from None
        array = tensor.numpy()
    return array if dtype is None and not copy else np.array(array, dtype=dtype, copy=copy)


def _text(array: Any) -> str:
    return tensor_text(_dtype(array), array.shape)


def _dtype(array: Any) -> str:
    return array.dtype.name if isinstance(array, np.ndarray) else str(array.dtype).removeprefix("torch.")
