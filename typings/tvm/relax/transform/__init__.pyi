from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.runtime import Tensor
from tvm_ffi import Array, Map, Object

from ..block_builder import BlockBuilder
from ..dpl import DFPattern
from ..expr import Expr, Var

class PatternCheckContext(Object):
    matched_expr: Expr
    annotated_expr: Map[str, Expr]
    matched_bindings: Map[Var, Expr]
    var_usages: Map[Var, Array[Var]]
    value_to_bound_var: Map[Expr, Var]

class FusionPattern(Object):
    name: str
    pattern: DFPattern
    annotation_patterns: Map[str, DFPattern]
    check: Callable[[PatternCheckContext], bool] | None
    attrs_getter: Callable[[Mapping[str, Expr]], Mapping[str, Any]] | None
    def __init__(
        self,
        name: str,
        pattern: DFPattern,
        annotation_patterns: Mapping[str, DFPattern] | None = None,
        check: Callable[[PatternCheckContext], bool] | None = None,
        attrs_getter: Callable[[Mapping[str, Expr]], Mapping[str, Any]] | None = None,
    ) -> None: ...

def AnnotateTIROpPattern() -> Pass: ...
def BindParams(func_name: str, params: Mapping[Any, Tensor | np.ndarray[Any, Any]]) -> Pass: ...
def CanonicalizeBindings() -> Pass: ...
def ConvertToDataflow(min_size: int = 2) -> Pass: ...
def ToNonDataflow() -> Pass: ...
def FoldConstant() -> Pass: ...
def DeadCodeElimination(entry_functions: Sequence[str] | None = None) -> Pass: ...
def DecomposeOpsForInference(func_name: str | None = None) -> Pass: ...
def FuseOps(fuse_opt_level: int = -1) -> Pass: ...
def FuseTIR() -> Pass: ...
def LegalizeOps(
    customize_legalize_map: Mapping[str, Callable[[BlockBuilder, Call], Expr]] | None = None,
    skip_ops: Sequence[str] | None = None,
    enable_warning: bool = False,
) -> Pass: ...
def InlinePrivateFunctions() -> Pass: ...
def Normalize() -> Pass: ...
def RewriteDataflowReshape() -> Pass: ...
def BindSymbolicVars(binding_map: Mapping[Any, Any], func_name: str | None = None) -> Pass: ...
