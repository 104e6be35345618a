from collections.abc import Mapping, Sequence

from tvm.ir import IRModule
from tvm.ir.transform import Pass
from tvm.runtime import Executable, Module
from tvm.target import Target

from .exec_builder import ExecBuilder

class VMExecutable(Executable): ...

class _ffi_api:
    @staticmethod
    def VMTIRCodeGen(builder: ExecBuilder, mod: IRModule) -> IRModule: ...
    @staticmethod
    def VMLink(
        builder: ExecBuilder,
        target: Target | None,
        lib: Module | None,
        ext_libs: Sequence[Module],
        params: Mapping[str, object],
    ) -> Module: ...

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
