"""The words of tensor programs in TVMScript: they are parsed and never run, so that their types tell nothing."""

from typing import Any

axis: Any
Buffer: Any
alloc_buffer: Any
broadcast: Any
call_llvm_pure_intrin: Any
cast: Any
float32: Any
func_attr: Any
grid: Any
if_then_else: Any
int32: Any
llvm_lookup_intrinsic_id: Any
ramp: Any
reads: Any
reinterpret: Any
sblock: Any
writes: Any

def prim_func(
    func: Any = None, *, private: bool = False, check_well_formed: bool = True, s_tir: bool = False
) -> Any: ...
