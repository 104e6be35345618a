from collections.abc import Callable
from typing import Any

import tvm_ffi

from .base import Node
from .expr import Expr

class ArgumentInfo(Node):
    name: str
    description: str

class Op(Expr):
    name: str
    description: str
    arguments: tvm_ffi.Array[ArgumentInfo]
    attrs_type_key: str
    num_inputs: int
    support_level: int
    @staticmethod
    def get(op_name: str) -> Op: ...
    @staticmethod
    def list_op_names() -> tvm_ffi.Array[str]: ...
    def get_attr(self, attr_name: str) -> Any: ...
    def has_attr(self, attr_name: str) -> bool: ...
    def reset_attr(self, attr_name: str) -> None: ...

def register_op_attr(
    op_name: str, attr_key: str, value: Any = None, level: int = 10
) -> Callable[[Any], Any]: ...
