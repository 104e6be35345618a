"""The private names of TVM that this package uses, each with the reason.

No other module of this package uses a name of TVM that begins with an underscore. tests/unit/test_tvm_private.py uses
each name, so it fails if an upgrade of TVM moves one. The native runtime knows where an executable has its constants
(``base/vm_constants.cc``), which tests/backend/test_weights_in_files.py checks.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.target import Target


def register_operator(name: str, description: str) -> None:
    """A new operator. TVM registers operators in C++; ``register_op_attr`` alone does not make one."""
    ir._ffi_api.RegisterOp(name, description)


def give_type(gvar: ir.GlobalVar, ty: ir.Type) -> None:
    """The type of a global variable that no block builder has made: the public constructor takes none."""
    relax.expr._update_type(gvar, ty)


def vm_functions(builder: relax.ExecBuilder, mod: IRModule) -> dict[ir.GlobalVar, tirx.PrimFunc]:
    """The functions of the virtual machine for ``mod``: ``relax.build`` compiles them with all kernels at once."""
    made = relax.vm_build._ffi_api.VMTIRCodeGen(builder, mod)
    functions = {gvar: func for gvar, func in made.functions_items() if gvar not in mod.functions}
    return {gvar: func for gvar, func in functions.items() if isinstance(func, tirx.PrimFunc)}


def vm_link(builder: relax.ExecBuilder, target: Target, library: Any, constants: Mapping[str, Any]) -> Any:
    """The module of an executable that imports ``library``: ``relax.build`` takes no library that is there already."""
    return relax.vm_build._ffi_api.VMLink(builder, target, library, [], constants)


def tuning_workload(kernel: tirx.PrimFunc) -> IRModule:
    """``kernel`` as MetaSchedule's database names it: only the tuner itself calls this function, and its result is
    the key of records.
    """
    from tvm.s_tir.meta_schedule.tune_context import _normalize_mod  # takes long to import

    return cast(IRModule, _normalize_mod(kernel))


def remove_patterns(names: Sequence[str]) -> None:
    """Remove patterns from TVM's table: ``register_patterns`` has no public inverse."""
    relax.backend._ffi_api.RemovePatterns(list(names))


def end_open_blocks(builder: relax.BlockBuilder) -> None:
    """Close all open blocks of ``builder``: it prints a warning if it is destroyed with open blocks."""
    with suppress(Exception):  # until none is left
        while True:
            builder._end_block()


def abandon_function(builder: relax.BlockBuilder) -> None:
    """End the function that ``builder`` is in, without a result: its context manager leaves block and scope open."""
    builder._end_block()
    builder.end_scope()


def answer_sessions_with(serve: Callable[..., None]) -> None:
    """Let ``serve`` answer the sessions of RPC servers in this process. TVM's own function raises an
    error after an unclean end of one, which ends the thread that listens.

    ``serve`` gets the connection, the address of the client, options by name (``timeout`` in seconds), and the names
    of libraries to load or None.
    """
    from tvm.rpc import server

    server._serving = serve


def session_loop(connection: socket.socket, load_library: str | None, folder: Any) -> None:
    """Answer a client until it leaves: the loop that TVM runs in a process of the session. Files are in ``folder``."""
    from tvm.rpc import server

    server._serve_loop(connection, load_library, folder)
