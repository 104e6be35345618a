"""Tensor programs with blocks, and their schedules."""

from tvm.tirx import PrimFunc

from . import analysis as analysis
from . import dlight as dlight
from . import meta_schedule as meta_schedule
from . import schedule as schedule
from . import transform as transform
from ._tensor_intrin import TensorIntrin as TensorIntrin
from .schedule import Schedule as Schedule
from .schedule import ScheduleError as ScheduleError
from .schedule import Trace as Trace
from .stmt import MatchBufferRegion as MatchBufferRegion
from .stmt import SBlock as SBlock
from .stmt import SBlockRealize as SBlockRealize

def renew_defs(func: PrimFunc) -> PrimFunc: ...
