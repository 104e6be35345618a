from tvm.ir import IRModule
from tvm.s_tir.schedule import Trace
from tvm.target import Target
from tvm_ffi import Array, Object

class Workload(Object):
    mod: IRModule

class TuningRecord(Object):
    trace: Trace
    workload: Workload
    run_secs: Array[float] | None
    target: Target | None

class Database(Object):
    def __len__(self) -> int: ...
    def commit_workload(self, mod: IRModule) -> Workload: ...
    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]: ...
