"""Loops bound to the threads of a GPU: the rules of TVM's dlight, tried until one gives a kernel that can be built.

A kernel without thread bindings cannot be built, and TVM would give up the whole module for it. So each result is
lowered alone before it is taken. A kernel that no rule schedules runs in one thread, and ``UNSCHEDULED`` has the
reason.
"""

from __future__ import annotations

import json
import logging
import math
from functools import cache
from typing import Any

from tvm import IRModule, ir, s_tir, tirx
from tvm.ir import transform
from tvm.s_tir import dlight
from tvm.target import Target
from tvm.tirx.stmt import Stmt
from tvm_ffi import structural_map, structural_walk

from ..annotations import UNSCHEDULED
from ..errors import first_line
from .gpu_reductions import SmallReduction, row_length
from .gpu_vectors import Vectors
from .stage import Func, nodes

LOGGER = logging.getLogger("unity_collage.schedule")
"""At level DEBUG it logs why a rule does not schedule a kernel."""

GPU_SCHEDULE_VERSION = 11
"""The version of the loops that are made here.

Raise it when a kernel gets other loops, since costs hold for one version.
"""

Rule = dlight.ScheduleRule | SmallReduction | Vectors

_RULES: tuple[Rule, ...] = (
    dlight.gpu.Matmul(),
    dlight.gpu.GEMV(),
    Vectors(),
    SmallReduction(),
    dlight.gpu.Reduction(),
    dlight.gpu.GeneralReduction(),
    dlight.gpu.Transpose(),
    dlight.gpu.Fallback(),
)
"""In the order of TVM's own pipeline, with two of ours. The last one takes nearly every kernel, with one thread for
each element."""

_STATIC_SHARED_BYTES = 48 * 1024
"""The limit of a block's statically allocated shared memory, in CUDA on every GPU."""

_FOR_TUNERS = "layout_free_placeholders"
"""Annotation of a block: operands whose layout a tuner may choose."""

_NO_MATRIX_UNITS = "sm_61"

_SHORT_ROW = 256
"""The longest row that 64 threads reduce in place of 256. A softmax of 24,576 rows of 128 took an H200 34 us with 256,
most of it for threads without an element."""

_DEVICE_KERNEL = 2
"""Calling convention of the part of a kernel that runs on the GPU."""


def scheduled_on_gpu(func: Func, target: Target, name: str) -> Func:
    """``func`` bound to the threads of ``target``; ``name`` is for the log.

    A kernel that binds threads itself (a sort, a scan) keeps its loops.
    """
    if launches_threads(func) and why_not_built(func, target) is None:
        return func
    failures: list[str] = []
    for rule in _RULES:
        found = _by_rule(rule, func, target)
        if isinstance(found, tirx.PrimFunc):
            return found
        if found is not None:
            failures.append(f"{type(rule).__name__}: {found}")
            LOGGER.debug("%s: %s", name, failures[-1])
    reason = "one thread runs it, since no rule of dlight takes it"
    return in_one_thread(func).with_attr(UNSCHEDULED, "; ".join([reason, *failures]))


def readable(func: Func) -> Func:
    """``func`` in a form that its script parses back to: launches have a range, and blocks no annotation that only
    TVM's tuner reads."""

    def launch(attr: tirx.AttrStmt) -> tirx.AttrStmt:
        it = attr.node
        if isinstance(it, tirx.IntImm):
            return tirx.AttrStmt(int(it), attr.attr_key, attr.value, attr.body)
        if not isinstance(it, tirx.IterVar) or it.dom is not None:
            return attr
        whole = ir.Range(tirx.const(0, attr.value.expr_ty().dtype), attr.value)
        known = tirx.IterVar(whole, it.var, it.iter_type, it.thread_tag)
        return tirx.AttrStmt(known, attr.attr_key, attr.value, attr.body)

    def block(found: s_tir.SBlock) -> s_tir.SBlock:
        if _FOR_TUNERS not in found.annotations:
            return found
        kept = {key: value for key, value in found.annotations.items() if key != _FOR_TUNERS}
        return s_tir.SBlock(
            found.iter_vars, found.reads, found.writes, found.name_hint, found.body, found.init,
            found.alloc_buffers, found.match_buffers, kept,
        )  # fmt: skip

    return structural_map(func, [(tirx.AttrStmt, launch), (s_tir.SBlock, block)])


def _by_rule(rule: Rule, func: Func, target: Target) -> Func | str | None:
    """``func`` with the loops of a rule; None if the rule does not take it; or why it fails, as some of TVM's do."""
    seen = _seen_by(rule, func, target)
    try:
        with seen:
            schedule = rule.apply(func, seen, False)
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    if schedule is None:
        return None
    first = schedule[0] if isinstance(schedule, list) else schedule
    made = first if isinstance(first, tirx.PrimFunc) else first.mod["main"]
    return why_not_built(made, target) or made


def _seen_by(rule: Rule, func: Func, target: Target) -> Target:
    """The target that a rule of dlight chooses its loops for."""
    if isinstance(rule, dlight.gpu.Matmul):
        return _without_matrix_units(target)
    if isinstance(rule, dlight.gpu.GeneralReduction) and (row_length(func) or math.inf) <= _SHORT_ROW:
        return _with_small_blocks()
    return target


@cache
def _with_small_blocks() -> Target:
    """A target for which the rule of reductions gives each row 64 threads, as for all GPUs but NVIDIA's."""
    return Target({"kind": "vulkan"})


@cache
def _without_matrix_units(target: Target) -> Target:
    """``target`` as a GPU without tensor cores, for the rule of products.

    With them, the rule imports a module that takes each process 20 seconds. Its blocks also exceed the shared memory
    that a block may have by default.
    """
    fields: dict[str, Any] = json.loads(str(target))
    return Target({**fields, "arch": _NO_MATRIX_UNITS})


def launches_threads(func: Func) -> bool:
    """Whether a kernel binds threads itself, as TVM's sorts and scans for GPUs do."""
    found: list[Stmt] = []

    def bound(loop: tirx.For) -> None:
        if loop.thread_binding is not None:
            found.append(loop)

    def launched(attr: tirx.AttrStmt) -> None:
        if attr.attr_key == "thread_extent":
            found.append(attr)

    structural_walk(func.body, [(tirx.For, bound), (tirx.AttrStmt, launched)])
    return bool(found)


def why_not_built(func: Func, target: Target) -> str | None:
    """Why a kernel cannot be built for the GPU, or None if it can: it is lowered alone, up to the code generator."""
    alone = IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
    pipeline, _, _ = tirx.get_default_tir_pipeline(target)
    try:
        with transform.PassContext():
            lowered = pipeline(tirx.transform.BindTarget(target)(alone))
    except Exception as error:
        return f"it cannot be lowered: {type(error).__name__}: {first_line(error)}"
    parts = [part for part in lowered.functions.values() if isinstance(part, tirx.PrimFunc)]
    return next((reason for part in parts if (reason := _why_not_run(part, target))), None)


def _why_not_run(kernel: Func, target: Target) -> str | None:
    """Why a part of a lowered kernel does not run where it must, or None.

    TVM itself does not refuse loops without threads: they become a part for the host, which crashes.
    """
    if int((kernel.attrs or {}).get("calling_conv", 0)) != _DEVICE_KERNEL:
        return "a loop of it is not bound to threads" if nodes(kernel.body, tirx.BufferStore) else None
    if any(call.op == ir.Op.get("tirx.tvm_call_packed") for call in nodes(kernel.body, ir.Call)):
        return "it calls a function of the host"
    limits = {
        "max_threads_per_block": int(target.attrs.get("max_threads_per_block", 1024)),
        "max_shared_memory_per_block": _STATIC_SHARED_BYTES,
    }
    try:
        fits = s_tir.analysis.verify_gpu_code(kernel, limits)
    except RuntimeError:  # a launch whose size is a variable
        return None
    if fits:
        return None
    threads = limits["max_threads_per_block"]
    return f"its blocks exceed {threads} threads or {_STATIC_SHARED_BYTES} bytes of shared memory"


def in_one_thread(func: Func) -> Func:
    """``func`` where each statement at the top is a launch of one thread: slow, and possible for all loops."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func.with_body(_launched(func.body))
    root = func.body.block
    steps = root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]
    body = tirx.stmt_seq(*map(_launched, steps))
    block = s_tir.SBlock([], [], [], root.name_hint, body, alloc_buffers=root.alloc_buffers)
    return func.with_body(s_tir.SBlockRealize([], True, block))


def _launched(step: Stmt) -> Stmt:
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    thread = tirx.IterVar(None, tirx.Var("thread", "int32"), tirx.IterVar.ThreadIndex, "threadIdx.x")
    var = tirx.Var("thread", "int32")
    return tirx.For(var, zero, one, tirx.ForKind.THREAD_BINDING, step, thread_binding=thread)
