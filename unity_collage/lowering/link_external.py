"""Lets the compiled functions of an executable call the libraries that ``relax.build`` has linked next to them."""

from __future__ import annotations

from typing import TypeVar

from tvm.runtime import Executable

from ..errors import CollageError

E = TypeVar("E", bound=Executable)


def link_external(executable: E) -> E:
    """``executable`` with the modules of libraries imported by its generated code.

    With ``exec_mode="compiled"`` the virtual machine's functions look up kernels among the imports of the generated
    code, and ``relax.build`` links ``external_mods`` next to it. Call this before the executable runs or is exported.
    Bytecode runs with and without it. Raises CollageError for kernels in generated code of other modules, which no
    compiled function finds.
    """
    modules = list(executable.mod.imports)
    generated = next((module for module in modules if str(module.kind) == "llvm"), None)
    if generated is None:  # bytecode with kernels of libraries only
        return executable
    others = [module for module in modules if not module.same_as(generated)]
    if (code := next((module for module in others if module.is_compilation_exportable()), None)) is not None:
        raise CollageError(
            f"compiled functions do not find kernels in a module of kind {code.kind}: use exec_mode='bytecode'"
        )
    executable.mod.clear_imports()
    executable.mod.import_module(generated)
    for module in others:
        generated.import_module(module)
    return executable
