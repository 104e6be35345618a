from tvm.ir.transform import Pass
from tvm.target import Target

def get_default_tir_pipeline(target: Target) -> tuple[Pass, Pass, Pass]: ...
