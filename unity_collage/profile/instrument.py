"""Instruments programs: a clock is read between kernels, so that each kernel is timed in the running program.

The measuring process chooses where the inputs of a kernel are in memory and in the caches; in a program the kernels
before it do. The difference, summed over a plan, is the additive error of its cost.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

MARK = "collage.profile.mark"


def instrumented(lowered: IRModule) -> IRModule:
    """``lowered`` with two readings of the clock first, and one after each kernel call of ``main``.

    The first two readings measure the cost of a reading. ``lowered`` comes from
    :func:`unity_collage.lowering.build.lower`, where all calls have destinations; TVM does not count such a module as
    well-formed.
    """
    functions = dict(lowered.functions_items())
    functions[lowered.get_global_var("main")] = _instrumented(lowered["main"])
    return IRModule(functions, attrs=lowered.attrs, global_infos=lowered.global_infos)


def called_kernels(func: relax.Function) -> list[str]:
    """The names of the kernels that a lowered ``main`` calls, in order: one for each interval between readings."""
    return [
        name
        for block in func.body.blocks
        for binding in block.bindings
        if (name := kernel_name(binding.value)) is not None
    ]


def kernel_name(value: relax.Expr) -> str | None:
    """The kernel that a lowered call runs, or None if it does not run a kernel."""
    if not isinstance(value, relax.Call):
        return None
    if isinstance(value.op, relax.GlobalVar):
        return str(value.op.name_hint)
    if isinstance(value.op, relax.ExternFunc):
        name = str(value.op.global_symbol)
        return None if name.startswith(("vm.", "relax.", "collage.")) else name
    return None


def _instrumented(func: relax.Function) -> relax.Function:
    def reading() -> relax.Binding:
        call = relax.Call(relax.ExternFunc(MARK), [], ty_args=[relax.TupleType([])])
        return relax.VarBinding(relax.Var("clock", relax.TupleType([])), call)

    blocks: list[relax.BindingBlock] = [relax.BindingBlock([reading(), reading()])]
    for block in func.body.blocks:
        bindings: list[relax.Binding] = []
        for binding in block.bindings:
            bindings.append(binding)
            if kernel_name(binding.value) is not None:
                bindings.append(reading())
        blocks.append(relax.BindingBlock(bindings))
    body = relax.SeqExpr(blocks, func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def kernel_seconds(run: Callable[[], object], kernels: int, rounds: int) -> list[float]:
    """The median seconds of each kernel over ``rounds`` runs, without the cost of reading the clock."""
    start, read = (tvm_ffi.get_global_func(f"collage.profile.{name}") for name in ("start", "read"))
    run()
    readings = kernels + 2
    start(rounds * readings)
    for _ in range(rounds):
        run()
    found = [float(value) for value in read()]
    # The interval between the last reading of a run and the first of the next belongs to the caller, and is dropped.
    reading, *gaps = (statistics.median(found[gap::readings]) for gap in range(kernels + 1))
    return [max(0.0, seconds - reading) for seconds in gaps]
