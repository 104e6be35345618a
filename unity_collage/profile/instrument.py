"""Ticks: a program that reads a clock between its kernels, so that each is timed where it stands.

A kernel timed alone finds its inputs where the harness has put them; in the program it finds them where its neighbours
have left them. The difference, summed over a plan, is the additive error of its price.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

TICK = "collage.ticks.tick"


@tvm.transform.module_pass(opt_level=0, name="contest.InsertTicks")
class InsertTicks:
    """Two ticks first, and one behind each kernel call of ``main``: between the first two lies what a tick costs.

    It runs where all calls have their destinations, on what TVM itself no longer holds for well-formed: it is not one
    of ``passes``.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = dict(mod.functions_items())
        gvar = mod.get_global_var("main")
        functions[gvar] = _ticking(mod["main"])
        return IRModule(functions, attrs=mod.attrs)


def ticked_kernels(func: relax.Function) -> list[str]:
    """The names of the kernels that ``main`` calls, in order; equal to the gaps between its ticks."""
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


def _ticking(func: relax.Function) -> relax.Function:
    def tick() -> relax.Binding:
        call = relax.Call(relax.ExternFunc(TICK), [], ty_args=[relax.TupleType([])])
        return relax.VarBinding(relax.Var("tick", relax.TupleType([])), call)

    blocks: list[relax.BindingBlock] = [relax.BindingBlock([tick(), tick()])]
    for block in func.body.blocks:
        bindings: list[relax.Binding] = []
        for binding in block.bindings:
            bindings.append(binding)
            if kernel_name(binding.value) is not None:
                bindings.append(tick())
        blocks.append(relax.BindingBlock(bindings))
    body = relax.SeqExpr(blocks, func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def seconds_between(run: Callable[[], object], gaps: int, rounds: int) -> list[float]:
    """The median seconds of each of so many kernels over ``rounds`` runs, without what a tick costs."""
    start, read = (tvm_ffi.get_global_func(f"collage.ticks.{name}") for name in ("start", "read"))
    run()
    ticks = gaps + 2
    start(rounds * ticks)
    for _ in range(rounds):
        run()
    found = [float(value) for value in read()]
    # Between the last tick of a run and the first of the next lies the caller: that gap is dropped.
    tick, *kernels = (statistics.median(found[gap::ticks]) for gap in range(gaps + 1))
    return [max(0.0, seconds - tick) for seconds in kernels]
