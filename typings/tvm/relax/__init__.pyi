"""Relax: graphs of operators on tensors."""

from tvm.ir import Call as Call
from tvm.runtime.vm import VirtualMachine as VirtualMachine

from . import analysis as analysis
from . import backend as backend
from . import dpl as dpl
from . import expr as expr
from . import expr_functor as expr_functor
from . import frontend as frontend
from . import op as op
from . import script as script
from . import transform as transform
from . import utils as utils
from . import vm_build as vm_build
from .block_builder import *
from .exec_builder import ExecBuilder as ExecBuilder
from .expr import *
from .expr_functor import PyExprMutator as PyExprMutator
from .global_info import *
from .op import call_dps_packed as call_dps_packed
from .op import call_pure_packed as call_pure_packed
from .op import call_tir as call_tir
from .type import *
from .vm_build import *
