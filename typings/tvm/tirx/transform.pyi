from tvm.ir.transform import Pass
from tvm.target import Target

def BindTarget(target: Target) -> Pass: ...
