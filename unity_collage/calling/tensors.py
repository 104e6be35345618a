"""Arrays of numpy, PyTorch and others as tensors that TVM's kernels can read, without a change of any value.

Memory is shared where it is on the CPU, contiguous, writable and aligned, and copied elsewhere. No type is converted.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import tvm_ffi
from tvm_ffi import Tensor

from ..errors import CollageError, first_line
from ..ffi import import_without_torch
from ..runtime import cuda, load_tvm_runtime

ALIGNMENT = 64
"""The alignment in bytes that TVM's kernels assume of tensors, since they read and write whole vectors."""

_COPIED_BYTES = 4096
"""Arrays of numpy up to this size are copied: that takes no longer than checking whether they are aligned."""

_EXCHANGED_KINDS = frozenset("fiub")
"""The kinds of numpy's types that DLPack has."""

CPU = (1, 0)
"""The CPU as DLPack numbers devices."""

_DEVICE = tvm_ffi.device("cpu")
load_tvm_runtime()
_allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
_shape = lru_cache(maxsize=1024)(tvm_ffi.Shape)  # a new one takes 2 us
_type = cache(lambda dtype: tvm_ffi.dtype(numpy_type(dtype).name))  # of numpy or by its name; takes 1 us


def numpy_type(dtype: str | np.dtype) -> np.dtype:
    """A type of numpy, given as itself or by its name; raises TypeError where there is none.

    numpy knows bfloat16 and floats of 8 bits from ml_dtypes, which takes as long to import as a small program to load.
    """
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes  # noqa: F401

        return np.dtype(dtype)


class NotTaken(CollageError):
    """A value cannot be a tensor; the text says why and what it is."""


def tensor_of_array(array: np.ndarray) -> Tensor:
    """``array``, which is in the machine's byte order, as a tensor; its memory is shared if possible."""
    if array.dtype.kind not in _EXCHANGED_KINDS:
        return copied_array(array)
    if array.nbytes > _COPIED_BYTES and array.flags.c_contiguous and array.flags.writeable:
        tensor = tvm_ffi.from_dlpack(array)
        if tensor.data_ptr() % ALIGNMENT == 0:
            return tensor
    return copied_array(array)


def copied_array(array: np.ndarray) -> Tensor:
    """A new tensor with the values of ``array``.

    ``tvm.runtime.tensor`` takes 12 us for the smallest array, longer than a run of a small model.
    """
    tensor = empty(array.shape, array.dtype)
    if array.dtype.kind in _EXCHANGED_KINDS:
        np.from_dlpack(tensor)[...] = array
        return tensor
    if tensor.dtype.bits != 8 * array.itemsize:  # TVM packs the elements of types of less than a byte
        import_without_torch("tvm.relax")
        return sys.modules["tvm"].runtime.tensor(array)
    source = np.ascontiguousarray(array)  # keeps the memory alive while its address is used
    ctypes.memmove(tensor.data_ptr(), source.ctypes.data, source.nbytes)
    return tensor


def empty(shape: Sequence[int], dtype: str | np.dtype, number: int = 0) -> Tensor:
    """A new aligned tensor with values of any kind, on the device of the kind ``cpu`` with this ``number``."""
    device = tvm_ffi.device("cpu", number) if number else _DEVICE
    return _allocate(_shape(tuple(shape)), _type(dtype), device, None)


def exchanged(value: Any) -> Tensor:
    """A tensor of any library with DLPack as one of TVM, which need not be readable; raises NotTaken with the reason.

    PyTorch's own marks that DLPack does not know are resolved: a gradient that is required, a negation that is pending.
    """
    if is_of_torch(value):
        if not value.is_cpu:
            raise why_elsewhere(value.device)
        value = plain(value, sys.modules["torch"])
    try:
        return tvm_ffi.from_dlpack(value)
    except Exception as error:  # a foreign library exports its tensor: its error becomes the reason
        raise NotTaken(f"{what(value)} was given: {first_line(error)}") from error


def is_readable(tensor: Tensor, alignment: int = ALIGNMENT) -> bool:
    """Whether kernels of its device can read a tensor in its memory.

    An empty one is contiguous with any strides; TVM takes one kind of strides only.
    """
    return tensor.data_ptr() % alignment == 0 and tensor.is_contiguous() and tensor.numel() > 0


def readable(tensor: Tensor) -> Tensor:
    """``tensor`` where kernels can read it, else a copy that they can; raises NotTaken if it is not on the CPU."""
    if is_readable(tensor) and tensor.__dlpack_device__() == CPU:
        return tensor
    if tensor.__dlpack_device__() != CPU:
        raise why_elsewhere(tensor.device)
    return copied_tensor(tensor)


def copied_tensor(tensor: Tensor) -> Tensor:
    """A new contiguous tensor with the values of one on the CPU."""
    copy = empty(tensor.shape, str(tensor.dtype))
    if tensor.is_contiguous():
        copy_bytes(tensor, copy)
        return copy
    try:
        np.from_dlpack(copy)[...] = np.from_dlpack(tensor)
    except (RuntimeError, BufferError) as error:  # a type that numpy does not exchange
        raise NotTaken(f"a {tensor.dtype} tensor that is not contiguous was given") from error
    return copy


def array_of_tensor(tensor: Tensor) -> np.ndarray:
    """A new array with the values of a tensor on the CPU, or of a contiguous one on a CUDA device."""
    array = np.empty(tensor.shape, numpy_type(str(tensor.dtype)))
    if tensor.__dlpack_device__()[0] == cuda.DEVICE[0]:
        cuda.copy_to_host(array.ctypes.data, tensor.data_ptr(), array.nbytes)
        return array
    source = tensor if tensor.is_contiguous() else copied_tensor(tensor)
    ctypes.memmove(array.ctypes.data, source.data_ptr(), array.nbytes)
    return array


def is_of_torch(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch, which is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def copy_bytes(source: Tensor, target: Tensor) -> None:
    """Write a tensor to another of its type and shape; both are contiguous and on the CPU."""
    nbytes = source.numel() * numpy_type(str(source.dtype)).itemsize
    ctypes.memmove(target.data_ptr(), source.data_ptr(), nbytes)


def nbytes_of(tensor: Tensor) -> int:
    """The bytes of a contiguous tensor; elements of less than a byte are packed."""
    return (tensor.numel() * tensor.dtype.bits * tensor.dtype.lanes + 7) // 8


def why_elsewhere(device: Any) -> NotTaken:
    """A tensor on ``device`` was given to a program on the CPU."""
    given = f"a tensor on {device} was given, and programs read the CPU's memory"
    if not str(device).startswith("cuda"):
        return NotTaken(given)
    advice = 'copy the tensor to the CPU, or compile the model with target="cuda"'
    return NotTaken(f"a tensor on {device} was given, and this program runs on the CPU: {advice}")


def kind_of(value: Any) -> str:
    """The type of a value for a message."""
    kind = type(value)
    home = kind.__module__.partition(".")[0]
    return kind.__name__ if home == "builtins" else f"{home}.{kind.__name__}"


def what(value: Any) -> str:
    """A value of a wrong kind, for a message."""
    return "None" if value is None else f"a value of type {kind_of(value)}"


def plain(value: Any, torch: Any) -> Any:
    """A contiguous tensor of PyTorch that DLPack can express; raises NotTaken for other layouts."""
    if value.layout is not torch.strided or value.is_quantized:
        what = "quantized" if value.is_quantized else str(value.layout)
        raise NotTaken(f"a tensor that is {what} was given, and programs read dense ones")
    if value.requires_grad:
        value = value.detach()
    if value.is_conj() or value.is_neg():
        value = value.resolve_conj().resolve_neg()
    return value if value.is_contiguous() else value.contiguous()
