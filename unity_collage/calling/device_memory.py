"""The memory of the CUDA device: arrays and tensors as tensors that its kernels can read, and results on the host.

Memory of the device is shared if it is contiguous and aligned, and copied on the device otherwise. All copies are
work of the current stream. A call waits for copies from the host, so that the caller may change what was given.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tvm_ffi
from tvm_ffi import Tensor

from ..errors import first_line
from ..runtime import cuda
from ..runtime.streams import current_stream, on_stream
from . import tensors
from .tensors import NotTaken, is_of_torch, nbytes_of, what

ALIGNMENT = 256
"""The alignment in bytes of memory that CUDA gives: kernels of libraries may be chosen for it."""

_LEGACY_STREAM = 1
"""The default stream as DLPack numbers streams: 0 would be ambiguous."""

_DEVICE = tvm_ffi.device("cuda", cuda.DEVICE[1])
_allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")


class DeviceMemory:
    """That of the first CUDA device."""

    def tensor_of_array(self, array: np.ndarray) -> Tensor:
        return _to_device(tensors.tensor_of_array(array))

    def exchanged(self, value: Any) -> Tensor:
        if is_of_torch(value):
            if not (value.is_cpu or value.is_cuda):
                raise NotTaken(f"a tensor on {value.device} was given, and this program runs on {_DEVICE}")
            return tensors.exchanged(value) if value.is_cpu else _imported(tensors.plain(value, _torch()))
        return _imported(value) if _is_on_device(value) else tensors.exchanged(value)

    def readable(self, tensor: Tensor) -> Tensor:
        place = tensor.__dlpack_device__()
        if place != cuda.DEVICE:
            if place[0] == cuda.DEVICE[0]:
                raise NotTaken(
                    f"a tensor on {tensor.device} was given, and programs run on {_DEVICE}: copy it there"
                )
            return _to_device(tensors.readable(tensor))
        if tensors.is_readable(tensor, ALIGNMENT):
            return tensor
        return self.copied_tensor(tensor)

    def copied_tensor(self, tensor: Tensor) -> Tensor:
        if not tensor.is_contiguous():
            raise NotTaken(f"a {tensor.dtype} tensor that is not contiguous was given: make it contiguous")
        return _copied(tensor)

    def why_not_written(self, tensor: Any) -> str | None:
        if str(tensor.device) == str(_DEVICE):
            return None
        advice = "give a tensor on it, or an array of numpy"
        return f"the tensor is on {tensor.device}, and this program runs on {_DEVICE}: {advice}"

    def write(self, result: Tensor, tensor: Tensor) -> None:
        cuda.copy(tensor.data_ptr(), result.data_ptr(), nbytes_of(result), current_stream())

    def stream_of(self, *values: Any) -> AbstractContextManager[Any]:
        """PyTorch's current stream if one of its tensors on the device is among the values, else TVM's."""
        if (torch := sys.modules.get("torch")) is not None and _has_tensor_on_device(values, torch):
            return on_stream(torch.cuda.current_stream(cuda.DEVICE[1]).cuda_stream)
        return nullcontext()


def _imported(value: Any) -> Tensor:
    """A tensor of any library that is on a CUDA device; that library's work on it is ordered before ours on this
    stream.
    """
    try:
        if is_of_torch(value):  # its current stream is ours
            return tvm_ffi.from_dlpack(value)
        return tvm_ffi.from_dlpack(value.__dlpack__(stream=current_stream() or _LEGACY_STREAM))
    except Exception as error:  # a foreign library exports its tensor: its error becomes the reason
        raise NotTaken(f"{what(value)} was given: {first_line(error)}") from error


def _is_on_device(value: Any) -> bool:
    try:
        return int(value.__dlpack_device__()[0]) == cuda.DEVICE[0]
    except Exception:  # such as tensors on devices that DLPack does not have
        return False


def _has_tensor_on_device(values: Iterable[Any], torch: Any) -> bool:
    for value in values:
        if isinstance(value, (tuple, list, Mapping)):
            parts = value.values() if isinstance(value, Mapping) else value
            if _has_tensor_on_device(parts, torch):
                return True
        elif isinstance(value, torch.Tensor) and value.is_cuda:
            return True
    return False


def _to_device(tensor: Tensor) -> Tensor:
    """A copy on the device of a contiguous tensor of the host, which the host may change from now on."""
    copy = _copied(tensor)
    cuda.synchronize(current_stream())
    return copy


def _copied(tensor: Tensor) -> Tensor:
    copy = _allocate(tvm_ffi.Shape(tensor.shape), tensor.dtype, _DEVICE, None)
    cuda.copy(copy.data_ptr(), tensor.data_ptr(), nbytes_of(tensor), current_stream())
    return copy


def _torch() -> Any:
    return sys.modules["torch"]
