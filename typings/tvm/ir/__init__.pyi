"""Nodes that every dialect shares."""

from . import _ffi_api as _ffi_api
from . import expr as expr
from . import instrument as instrument
from . import prim as prim
from . import transform as transform
from .attrs import *
from .base import *
from .expr import *
from .function import *
from .global_info import *
from .module import *
from .op import *
from .type import *
