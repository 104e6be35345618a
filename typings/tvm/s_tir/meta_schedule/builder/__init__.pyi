from collections.abc import Callable
from typing import Any

from tvm.ir import IRModule
from tvm.target import Target
from tvm_ffi import Object

class Builder(Object): ...

class LocalBuilder(Builder):
    def __init__(
        self,
        *,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: str | Callable[[IRModule, Target, Any], Any] | None = None,
        f_export: str | Callable[[Any], str] | None = None,
        initializer: Callable[[], None] | None = None,
    ) -> None: ...
