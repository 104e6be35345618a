"""Chains of kernels in which two backends alternate or not, for :mod:`.transitions`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

from .. import runtime
from ..annotations import CANDIDATES
from ..backends.base import Backend
from ..errors import last_line
from ..graph import DataflowGraph
from ..index_set import first_n, members
from ..lowering.apply import applied_module
from ..lowering.build import EXTERNAL_MODS, finish, lower
from ..lowering.fuse import fused
from ..lowering.offload import CONSTANTS, offloaded_module
from ..plan.candidate import Candidate, CompositePart
from ..rules import Found

SIZES = (4 << 10, 256 << 10, 8 << 20)
"""Bytes of the values that cross.

For the first size a call takes longer than the kernel; the second fits into the cores' own caches; the third does
not.
"""
_CHANNELS = 16
_SECONDS = 2e-3
"""For how long each of two chains runs in a round; three times at least."""

_PROBES = (("abs",), ("relu",), ("matmul",), ("convolution",), ("matmul", "relu"), ("convolution", "relu"))
"""Chains of operators that keep the shape of a value; a backend's probe is the first that it makes one kernel of."""

Chains = Callable[[], tuple[float, float]]
"""The seconds of a run of both chains: ``a b a b``, and ``a a b b``."""


def probes(target: Target, backends: Sequence[Backend]) -> tuple[dict[str, IRModule], dict[str, str]]:
    """For each backend a module with one kernel for each size, as function ``<backend>_<size>``; or a reason."""
    made: dict[str, IRModule] = {}
    unknown: dict[str, str] = {}
    for backend in backends:
        try:
            ops = next(filter(lambda ops: _proposal(backend, target, ops) is not None, _PROBES), None)
            if ops is None:
                unknown[backend.name] = "it makes no kernel of any of the operators that are tried"
            else:
                made[backend.name] = _probe(backend, target, ops)
        except Exception as error:  # a foreign rule or compiler failed
            unknown[backend.name] = f"its probe cannot be built: {last_line(error)}"
    return made, unknown


def _proposal(backend: Backend, target: Target, ops: Sequence[str], size: int = SIZES[0]) -> Found | None:
    """The backend's kernel for all of ``ops``, or None."""
    graph = DataflowGraph(_ops({"main": size}, ops)["main"])
    with target:
        found = (answer for answer in backend.rule(target).apply(graph) if isinstance(answer, Found))
        return next((f for f in found if f.inside == first_n(len(ops)) and not f.hidden), None)


def _probe(backend: Backend, target: Target, ops: Sequence[str]) -> IRModule:
    """The kernels of one backend, as private functions that call them."""
    named = {f"{backend.name}_{size}": size for size in SIZES}
    functions: dict[relax.GlobalVar, relax.Function] = {}
    for gvar, func in _ops(named, ops).functions_items():
        proposal = _proposal(backend, target, ops, named[gvar.name_hint])
        assert proposal is not None and isinstance(func, relax.Function)
        functions[gvar] = CANDIDATES.write(func, (_candidate(backend.name, proposal, len(ops)),))
    with target:
        applied = applied_module(IRModule(functions), dict.fromkeys(named, (0,)))
        made = fused(offloaded_module(applied), target)
    private = {
        gvar: func.without_attr("global_symbol") if gvar.name_hint in named else func
        for gvar, func in made.functions_items()
    }
    return IRModule(private, attrs=made.attrs)


def _candidate(backend: str, proposal: Found, count: int) -> Candidate:
    parts = tuple(CompositePart(part.label, tuple(members(part.inside))) for part in proposal.nested)
    return Candidate(0, backend, proposal.rule, proposal.label, tuple(range(count)), composites=parts)


def _ops(functions: Mapping[str, int], ops: Sequence[str]) -> IRModule:
    """For each name a function of ``ops`` for values of that many bytes; the functions do not change the values."""
    builder = relax.BlockBuilder()
    for name, size in functions.items():
        x = relax.Var("x", relax.TensorType(_shape(size), "float32"))
        with builder.function(name, [x]):
            with builder.dataflow():
                value: relax.Expr = x
                for op in ops:
                    value = builder.emit(_call(op, value))
                value = builder.emit_output(value)
            builder.emit_func_output(value)
    return builder.get()


def _shape(size: int) -> tuple[int, ...]:
    """An image of ``size`` bytes, channels innermost."""
    rows = 1
    while rows * rows * _CHANNELS * 4 < size:
        rows *= 2
    return 1, rows, size // (rows * _CHANNELS * 4), _CHANNELS


def _call(op: str, value: relax.Expr) -> relax.Expr:
    if op == "abs":
        return R.abs(value)
    if op == "relu":
        return R.nn.relu(value)
    if op == "matmul":
        return R.matmul(value, relax.const(np.eye(_CHANNELS, dtype=np.float32)))
    filters = np.zeros((3, 3, 2, _CHANNELS), np.float32)
    filters[1, 1, np.arange(_CHANNELS) % 2, np.arange(_CHANNELS)] = 1.0
    return R.nn.conv2d(
        value,
        relax.const(filters),
        padding=1,
        groups=_CHANNELS // 2,
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_layout="NHWC",
    )


def chains(
    kernels: Mapping[str, IRModule], pairs: Sequence[tuple[str, str]], target: Target
) -> dict[tuple[str, str, int], Chains]:
    """Both chains of each pair and size, built as one program."""
    if not pairs:
        return {}
    lowered = lower(_program(kernels, pairs), target)
    # Bytecode: both chains have the same calls, and to compile them takes longer than to run them.
    executable = relax.build(lowered, target, relax_pipeline=finish(lowered, target), exec_mode="bytecode")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    found: dict[tuple[str, str, int], Chains] = {}
    for one, other in pairs:
        for size in SIZES:
            x = tvm.runtime.tensor(np.ones(_shape(size), np.float32))
            mixed, apart = (_run(machine, name, x) for name in _names(one, other, size))
            found[one, other, size] = _timed(mixed, apart)
    return found


def _names(one: str, other: str, size: int) -> tuple[str, str]:
    return f"mixed_{one}_{other}_{size}", f"apart_{one}_{other}_{size}"


def _run(machine: relax.VirtualMachine, name: str, x: tvm.runtime.Tensor) -> tvm_ffi.Function:
    machine.save_function(name, f"run_{name}", x)
    return machine[f"run_{name}"]


def _timed(mixed: tvm_ffi.Function, apart: tvm_ffi.Function) -> Chains:
    def seconds(chain: tvm_ffi.Function) -> float:
        runs = runtime.measure(
            chain, [], warmup_seconds=_SECONDS / 4, min_runs=3, max_runs=1000, min_seconds=_SECONDS
        )
        return statistics.median(runs)

    return lambda: (seconds(mixed), seconds(apart))


def _program(kernels: Mapping[str, IRModule], pairs: Sequence[tuple[str, str]]) -> IRModule:
    """One module with the kernels of all backends, and a function for each chain."""
    builder = relax.BlockBuilder()
    functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    external: list[Any] = []
    constants: dict[str, Any] = {}
    for module in kernels.values():
        functions |= dict(module.functions_items())
        attrs = module.attrs or {}
        external += attrs.get(EXTERNAL_MODS, [])
        constants |= dict(attrs.get(CONSTANTS, {}))
    by_name = {gvar.name_hint: gvar for gvar in functions}
    for name, size, order in _orders(pairs):
        x = relax.Var("x", relax.TensorType(_shape(size), "float32"))
        with builder.function(name, [x]):
            value: relax.Expr = x
            for backend in order:
                value = builder.emit(relax.Call(by_name[f"{backend}_{size}"], [value]))
            builder.emit_func_output(value)
    made = dict(builder.get().functions_items())
    whole = relax.transform.InlinePrivateFunctions()(IRModule({**functions, **made}))
    if constants:
        whole = whole.with_attr(CONSTANTS, constants)
    return whole.with_attr(EXTERNAL_MODS, external) if external else whole


def _orders(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Each chain: its name, the bytes of its values, and the backends of its kernels."""
    for one, other in pairs:
        for size in SIZES:
            mixed, apart = _names(one, other, size)
            yield mixed, size, (one, other, one, other)
            yield apart, size, (one, one, other, other)
