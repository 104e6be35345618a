from collections.abc import Callable
from os import PathLike
from typing import Any

import tvm_ffi

from .module import Module

class Executable:
    mod: Module
    def __init__(self, mod: tvm_ffi.Module) -> None: ...
    def __getitem__(self, name: str) -> tvm_ffi.Function: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def export_library(
        self,
        file_name: str | PathLike[str],
        *,
        fcompile: Callable[..., Any] | None = None,
        workspace_dir: str | None = None,
        **kwargs: Any,
    ) -> Any: ...
