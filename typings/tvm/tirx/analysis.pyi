import tvm_ffi
from tvm.ir import Expr

from .expr import Var

def undefined_vars(node: Expr, defs: list[Var] | None = None) -> tvm_ffi.Array[Var]: ...
