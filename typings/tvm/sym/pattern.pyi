from collections.abc import Sequence

import tvm_ffi
from tvm.ir import Expr, Var

def detect_linear_equation(expr: Expr, var_list: Sequence[Var]) -> tvm_ffi.Array[Expr]: ...
