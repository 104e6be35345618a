from .schedule import SBlockRV as SBlockRV
from .schedule import Schedule as Schedule
from .schedule import ScheduleError as ScheduleError
from .trace import Trace as Trace
