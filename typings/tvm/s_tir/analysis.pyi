from collections.abc import Mapping

from tvm.tirx import PrimFunc

def verify_gpu_code(func: PrimFunc, constraints: Mapping[str, int]) -> bool: ...
