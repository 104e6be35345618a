from tvm.ir.transform import Pass

from . import _ffi_api as _ffi_api
from . import cpu_generic as cpu_generic
from . import cuda as cuda
from .pattern_registry import get_pattern as get_pattern
from .pattern_registry import get_patterns_with_prefix as get_patterns_with_prefix

def DispatchSortScan() -> Pass: ...
