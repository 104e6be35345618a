from typing import Any

import tvm_ffi

from .executable import Executable
from .module import Module

class VirtualMachine:
    module: Module
    def __init__(
        self,
        rt_mod: tvm_ffi.Module | Executable,
        device: tvm_ffi.Device | list[tvm_ffi.Device],
        memory_cfg: str | dict[tvm_ffi.Device, str] | None = None,
    ) -> None: ...
    def __getitem__(self, key: str) -> tvm_ffi.Function: ...
    def save_function(
        self, func_name: str, saved_name: str, *args: Any, include_return: bool = True, **kwargs: Any
    ) -> None: ...
