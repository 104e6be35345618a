from collections.abc import Mapping
from typing import Any, overload

from typing_extensions import Self

from .attrs import DictAttrs
from .expr import ExprWithOp

class BaseFunc(ExprWithOp):
    @property
    def attrs(self) -> DictAttrs: ...
    @overload
    def with_attr(self, attr_key_or_dict: str, attr_value: Any) -> Self: ...
    @overload
    def with_attr(self, attr_key_or_dict: dict[str, Any]) -> Self: ...
    def with_attrs(self, attr_map: DictAttrs | Mapping[str, Any]) -> Self: ...
    def without_attr(self, attr_key: str) -> Self: ...
