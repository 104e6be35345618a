from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import tvm_ffi

class Module(tvm_ffi.Module):
    def export_library(
        self,
        file_name: str | PathLike[str],
        *,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | None = None,
        **kwargs: Any,
    ) -> Any: ...

def load_module(path: str | PathLike[str]) -> Module: ...
