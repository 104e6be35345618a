from tvm.ir import IRModule
from tvm.tirx import PrimFunc

def _normalize_mod(mod: PrimFunc | IRModule) -> IRModule: ...
