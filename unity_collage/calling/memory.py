"""Where a program runs: the memory that its inputs are read from and its results are written to."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
from tvm_ffi import Tensor

from ..errors import CollageError
from . import tensors
from .tensors import NotTaken

CPU, CUDA = "cpu", "cuda"
"""The devices that programs run on, by the kinds of their targets: ``llvm`` is the CPU."""


class Memory(Protocol):
    """The operations of a call on a device's memory.

    Methods raise NotTaken for a value that cannot be on the device.
    """

    def tensor_of_array(self, array: np.ndarray) -> Tensor:
        """A tensor that kernels can read, with the values of an array in the machine's byte order."""
        ...

    def exchanged(self, value: Any) -> Tensor:
        """A tensor of any library with DLPack as one of TVM, which need not be readable."""
        ...

    def readable(self, tensor: Tensor) -> Tensor:
        """``tensor`` if kernels can read it, else a copy that they can read."""
        ...

    def copied_tensor(self, tensor: Tensor) -> Tensor:
        """A new tensor with the values of a result."""
        ...

    def why_not_written(self, tensor: Any) -> str | None:
        """Why a result cannot be written to a tensor of TVM or PyTorch that the caller gives, or None."""
        ...

    def write(self, result: Tensor, tensor: Tensor) -> None:
        """Write a result to a contiguous tensor of its type and shape."""
        ...

    def stream_of(self, *values: Any) -> AbstractContextManager[Any]:
        """A context in which kernels run where the caller's own work on ``values`` runs."""
        ...


class HostMemory:
    """That of the CPU."""

    tensor_of_array = staticmethod(tensors.tensor_of_array)
    exchanged = staticmethod(tensors.exchanged)
    readable = staticmethod(tensors.readable)
    copied_tensor = staticmethod(tensors.copied_tensor)

    def why_not_written(self, tensor: Any) -> str | None:
        if str(tensor.device).startswith(CPU):
            return None
        return f"the tensor is on {tensor.device}, and this program runs on the CPU: give one on the CPU"

    def write(self, result: Tensor, tensor: Tensor) -> None:
        tensors.copy_bytes(result, tensor)

    def stream_of(self, *values: Any) -> AbstractContextManager[None]:
        del values
        return nullcontext()


class NumberedHostMemory(HostMemory):
    """That of a device of the kind ``cpu`` with another number than 0: kernels check the number of each tensor.

    Tensors on other devices are copied.
    """

    def __init__(self, number: int):
        self._place = (tensors.CPU[0], number)

    def tensor_of_array(self, array: np.ndarray) -> Tensor:
        return self.copied_tensor(tensors.tensor_of_array(array))

    def exchanged(self, value: Any) -> Tensor:
        return tensors.exchanged(value)

    def readable(self, tensor: Tensor) -> Tensor:
        if tensor.__dlpack_device__() != self._place:
            return self.copied_tensor(tensors.readable(tensor))
        if tensors.is_readable(tensor):
            return tensor
        return self.copied_tensor(tensor)

    def copied_tensor(self, tensor: Tensor) -> Tensor:
        if not tensor.is_contiguous():
            raise NotTaken(f"a {tensor.dtype} tensor that is not contiguous was given: make it contiguous")
        copy = tensors.empty(tensor.shape, str(tensor.dtype), self._place[1])
        tensors.copy_bytes(tensor, copy)
        return copy


HOST = HostMemory()


def memory_of(device: str) -> Memory:
    """The memory of ``device``, such as ``cpu`` or ``cpu:1``; raises CollageError for one that is not there."""
    kind, _, number = device.partition(":")
    if kind == CPU:
        return NumberedHostMemory(int(number)) if int(number or 0) else HOST
    if int(number or 0):
        raise CollageError(f"the program cannot run here: it needs {device}, and programs use cuda:0 alone")
    from ..runtime import cuda

    if reason := cuda.why_unavailable():
        raise CollageError(f"the program cannot run here: {reason}")
    cuda.load()
    from .device_memory import DeviceMemory  # in a process with a device

    return DeviceMemory()
