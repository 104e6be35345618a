from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from .device import Device

class Tensor(tvm_ffi.Tensor):
    @property
    def dtype(self) -> tvm_ffi.dtype: ...
    def __setitem__(self, in_slice: slice, value: Tensor | npt.NDArray[Any] | np.generic) -> None: ...
    def numpy(self) -> npt.NDArray[Any]: ...
    def copyto(self, target: tvm_ffi.Device | Tensor, mem_scope: str | None = None) -> Tensor: ...

def cpu(dev_id: int = 0) -> Device: ...
def cuda(dev_id: int = 0) -> Device: ...
def empty(
    shape: Sequence[int],
    dtype: str | npt.DTypeLike = "float32",
    device: tvm_ffi.Device | None = None,
    mem_scope: str | None = None,
) -> Tensor: ...
def tensor(
    arr: Tensor | npt.ArrayLike, device: tvm_ffi.Device | None = None, mem_scope: str | None = None
) -> Tensor: ...
