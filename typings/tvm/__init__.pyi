"""Types of the part of TVM 0.27 that this project uses.

TVM builds its nodes by reflection, so a type checker sees neither their fields nor what its C++ functions return.
The fields here are those that ``tvm_ffi`` reports for each class.
"""

from collections.abc import Callable

from tvm_ffi import Object as Object
from tvm_ffi import get_global_func as get_global_func
from tvm_ffi import register_global_func as register_global_func

from . import ir as ir
from . import relax as relax
from . import rpc as rpc
from . import runtime as runtime
from . import s_tir as s_tir
from . import script as script
from . import sym as sym
from . import target as target
from . import te as te
from . import tirx as tirx
from . import topi as topi
from .ir import IRModule as IRModule
from .ir import instrument as instrument
from .ir import transform as transform
from .runtime import DataType as DataType
from .runtime import Device as Device
from .runtime import Executable
from .runtime import cpu as cpu
from .runtime import cuda as cuda
from .target import Target

__version__: str

def compile(
    mod: tirx.PrimFunc | IRModule,
    target: Target | str | None = None,
    *,
    relax_pipeline: transform.Pass | Callable[[IRModule], IRModule] | str | None = "default",
    tir_pipeline: transform.Pass | Callable[[IRModule], IRModule] | str | None = "default",
) -> Executable: ...
