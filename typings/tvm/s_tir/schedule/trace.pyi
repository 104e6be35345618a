from typing import Any

from tvm_ffi import Object

from .schedule import Schedule

class Trace(Object):
    def as_json(self, remove_postproc: bool = False) -> Any: ...
    @staticmethod
    def apply_json_to_schedule(json_obj: Any, sch: Schedule) -> None: ...
