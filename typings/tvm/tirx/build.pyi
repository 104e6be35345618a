from tvm.ir import IRModule
from tvm.ir.transform import Pass
from tvm.runtime import Module
from tvm.target import Target

def build(
    mod: IRModule, target: str | Target | None = None, pipeline: str | Pass | None = None
) -> Module: ...
