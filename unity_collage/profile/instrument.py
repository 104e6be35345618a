"""Instrumented programs: a clock is read between their kernels, so that each is timed where it stands.

A kernel timed alone finds its inputs where the harness has put them; in the program it finds them where its neighbours
have left them. The difference, summed over a plan, is the additive error of its cost.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

_MARK = "collage.profile.mark"


def instrumented(lowered: IRModule) -> IRModule:
    """``lowered`` with two readings of the clock first, and one behind each kernel call of ``main``.

    Between the first two lies what a reading costs. It works on what :func:`unity_collage.lowering.build.lower` returns,
    where all calls have their destinations; TVM itself no longer takes that for well-formed.
    """
    functions = dict(lowered.functions_items())
    functions[lowered.get_global_var("main")] = _instrumented(lowered["main"])
    return IRModule(functions, attrs=lowered.attrs)


def called_kernels(func: relax.Function) -> list[str]:
    """The names of the kernels that a lowered ``main`` calls, in order; one for each gap between readings of the clock."""
    return [
        name
        for block in func.body.blocks
        for binding in block.bindings
        if (name := kernel_name(binding.value)) is not None
    ]


def kernel_name(value: relax.Expr) -> str | None:
    """The kernel that a lowered call runs, or None if it is none of ours."""
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
        call = relax.Call(relax.ExternFunc(_MARK), [], ty_args=[relax.TupleType([])])
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
    """The median seconds of each kernel over ``rounds`` runs, without what reading the clock costs."""
    start, read = (tvm_ffi.get_global_func(f"collage.profile.{name}") for name in ("start", "read"))
    run()
    readings = kernels + 2
    start(rounds * readings)
    for _ in range(rounds):
        run()
    found = [float(value) for value in read()]
    # Between the last reading of a run and the first of the next lies the caller: that gap is dropped.
    reading, *gaps = (statistics.median(found[gap::readings]) for gap in range(kernels + 1))
    return [max(0.0, seconds - reading) for seconds in gaps]
