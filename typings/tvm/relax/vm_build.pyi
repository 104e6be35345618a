from tvm.ir import IRModule
from tvm.ir.transform import Pass
from tvm.runtime import Executable
from tvm.target import Target

class VMExecutable(Executable): ...

def build(
    mod: IRModule,
    target: str | Target | None = None,
    params: dict[str, list[object]] | None = None,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: str | Pass | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> VMExecutable: ...
