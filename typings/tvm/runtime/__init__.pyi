"""What runs: tensors, devices, modules and the virtual machine."""

from tvm_ffi import DLDeviceType as DLDeviceType
from tvm_ffi import Object as Object
from tvm_ffi import convert as convert
from tvm_ffi import dtype

from . import vm as vm
from ._tensor import Tensor as Tensor
from ._tensor import cpu as cpu
from ._tensor import cuda as cuda
from ._tensor import empty as empty
from ._tensor import tensor as tensor
from .device import Device as Device
from .executable import Executable as Executable
from .module import Module as Module
from .module import load_module as load_module
from .params import load_param_dict as load_param_dict
from .params import save_param_dict as save_param_dict
from .script_printer import Scriptable as Scriptable

DataType = dtype
