from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, overload

from tvm_ffi import Array, Device, Map, Object
from typing_extensions import Self

class TargetKind(Object):
    name: str

class Target(Object):
    """A target, whose options are attributes too."""

    kind: TargetKind
    tag: str
    keys: Array[str]
    attrs: Map[str, Any]
    host: Target | None
    def __init__(
        self,
        target: Target | str | Mapping[str, Any],
        host: Target | str | Mapping[str, Any] | None = None,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, ptype: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @staticmethod
    def from_device(device: str | Device) -> Target: ...
    def export(self) -> Map[str, Any]: ...
    @overload
    @staticmethod
    def current(allow_none: Literal[False]) -> Target: ...
    @overload
    @staticmethod
    def current(allow_none: bool = True) -> Target | None: ...
