"""Which family of schedules writes the loops of which stages: a fixed table, tried in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.tirx.stmt import Stmt

from . import bands, build, injective, lanes, rows, tile
from .cpu import CpuTraits
from .stage import Buffer, Expr, Stage, Var

_TILED_IN_ONE = 8
"""How many steps of a reduction in register tiles take as long as one element-wise operation with its memory accesses.
Measured: products of 32k steps are faster on one core than on two, and products of 64k steps equally fast."""

Family = Callable[[Sequence[Stage], CpuTraits], "tuple[Stmt, int] | str"]
"""Takes the stages that are not written yet.

Returns the loops for the first few of them and their number, or the reason why the family does not apply.
"""


def emit(stages: Sequence[Stage], cpu: CpuTraits) -> Stmt:
    """Loops for all stages in order."""
    parts: list[Stmt] = []
    while stages:
        statement, taken = _first(stages, cpu)
        parts.append(statement)
        stages = stages[taken:]
    return build.seq(*parts)


def _first(stages: Sequence[Stage], cpu: CpuTraits) -> tuple[Stmt, int]:
    _, statement, taken = _first_family(stages, cpu)
    return statement, taken


def _first_family(stages: Sequence[Stage], cpu: CpuTraits) -> tuple[Family | None, Stmt, int]:
    """The first family that applies, its loops, and the number of stages; None if the stage keeps its loops."""
    for family in FAMILIES:
        found = family(stages, cpu)
        if not isinstance(found, str):
            return family, *found
    return None, _as_written(stages[0]), 1


def by_tiles(stages: Sequence[Stage], cpu: CpuTraits) -> list[tuple[Stage, Stage]]:
    """The reductions that are computed in register tiles, each with the stage that writes its result."""
    found: list[tuple[Stage, Stage]] = []
    while stages:
        family, _, taken = _first_family(stages, cpu)
        if family in (_tile_by_tile, _band_by_band):
            own = stages[int(family is _band_by_band) : taken]
            pair = tile.paired(own[0], own[1] if len(own) == 2 else None)
            found += [] if isinstance(pair, str) else [pair]
        stages = stages[taken:]
    return found


def _row_by_row(stages: Sequence[Stage], cpu: CpuTraits) -> tuple[Stmt, int] | str:
    """As many stages as can be computed row by row: softmax, layer norm."""
    for count in range(len(stages), 2, -1):
        if sum(stage.init is not None for stage in stages[:count]) >= 2:
            found = _row_loops(stages, count, cpu)
            if not isinstance(found, str):
                return found, count
    return "no two reductions have the same rows"


def _element_by_element(stages: Sequence[Stage], cpu: CpuTraits) -> tuple[Stmt, int] | str:
    stage = stages[0]
    if stage.init is not None or stage.reduction:
        return "it reduces"
    return _by_work([stage], cpu, lambda threads: injective.emit(stage, cpu, threads)), 1


def _tile_by_tile(stages: Sequence[Stage], cpu: CpuTraits) -> tuple[Stmt, int] | str:
    """A product, a convolution or a pooling, with the element-wise stage that follows it, if there is one."""
    threads = _threads(stages[:1], cpu, _TILED_IN_ONE)
    if why_not_epilogue(stages) is None:
        found = tile.emit(stages[0], stages[1], cpu, threads)
        if not isinstance(found, str):
            return found, 2
    found = tile.emit(stages[0], None, cpu, threads)
    return found if isinstance(found, str) else (found, 1)


def _band_by_band(stages: Sequence[Stage], cpu: CpuTraits) -> tuple[Stmt, int] | str:
    """A product with the element-wise stage before it, and the element-wise stage that follows it."""
    if len(stages) < 2 or any(stage.reads(stages[0]) for stage in stages[2:]):
        return "its only reader is not a reduction"
    if any(stages[0].reads(stage) for stage in stages[1:3]):
        return "a stage behind it replaces what it reads"
    threads = _threads(stages[1:2], cpu, _TILED_IN_ONE)
    follows = why_not_epilogue(stages[1:]) is None
    found = bands.emit(stages[0], stages[1], stages[2] if follows else None, cpu, threads)
    return found if isinstance(found, str) else (found, 3 if follows else 2)


def _one_reduction(stages: Sequence[Stage], cpu: CpuTraits) -> tuple[Stmt, int] | str:
    """A reduction of rows that are contiguous in memory, with the element-wise stage that follows it."""
    taken = 2 if why_not_epilogue(stages) is None else 1
    for count in range(taken, 0, -1):
        found = _row_loops(stages, count, cpu)
        if not isinstance(found, str):
            return found, count
    return "the result has no axis"


def _one_number(stages: Sequence[Stage], cpu: CpuTraits) -> tuple[Stmt, int] | str:
    """A reduction of a whole tensor to one number, on one core."""
    stage = stages[0]
    if any(it.size != 1 for it in stage.spatial):
        return "it has many results"
    only = {it.var: tirx.const(0, it.var.expr_ty().dtype) for it in stage.spatial}
    return lanes.emit(stage.substituted(only, stage.reduction), cpu), 1


def why_not_epilogue(stages: Sequence[Stage]) -> str | None:
    """Why the second stage cannot be computed from the registers of the first, or None."""
    if len(stages) < 2 or stages[1].init is not None:
        return "no element-wise stage follows"
    if stages[0].reads(stages[1]):
        return "the stage that follows replaces what it reads"
    written = [store.buffer for store in stages[0].stores]
    readers = [
        any(load.source.same_as(own) for load in stage.loads for own in written) for stage in stages[1:]
    ]
    if not readers[0] or any(readers[1:]):
        return "the result is read elsewhere"
    return None if stages[0].temporary else "the result is an output"


def _as_written(stage: Stage) -> Stmt:
    """The original loops of the stage."""

    def body(values: dict[Var, Expr]) -> Stmt:
        return lanes.serial(stage.substituted(values, stage.reduction))

    return build.nest(stage.spatial, body)


def _row_loops(stages: Sequence[Stage], count: int, cpu: CpuTraits) -> Stmt | str:
    """The loops of :mod:`.rows` over the first ``count`` stages."""
    some, later = stages[:count], stages[count:]
    found = rows.emit(some, cpu, True, later)
    if isinstance(found, str):
        return found

    def write(threads: bool) -> Stmt:
        made = found if threads else rows.emit(some, cpu, False, later)
        assert not isinstance(made, str)
        return made

    return _by_work(some, cpu, write, rows.of_one_thread(some, later))


def _by_work(
    stages: Sequence[Stage], cpu: CpuTraits, write: Callable[[bool], Stmt], own: Sequence[Buffer] = ()
) -> Stmt:
    """What ``write`` returns, with parallel loops if they pay: decided when the kernel runs, where sizes are free.

    The two cases do not share the temporaries ``own``. So all uses of each are in one loop, and TVM puts it into that
    loop: into the memory of one thread.
    """
    work = injective.work_of(stages)
    if cpu.cores < 2 or isinstance(work, int):
        return write(_threads(stages, cpu))
    alone = build.with_own_buffers(own, write(False), "alone")
    return tirx.IfThenElse(work < injective.PARALLEL_WORK, alone, write(True))


def _threads(stages: Sequence[Stage], cpu: CpuTraits, in_one: int = 1) -> bool:
    """Whether the stages are worth a parallel loop; ``in_one`` of their operations take as long as one element-wise."""
    work = injective.work_of(stages)
    return injective.worth_threads(work // in_one if isinstance(work, int) else None, cpu)


FAMILIES: tuple[Family, ...] = (
    _row_by_row,
    _band_by_band,
    _element_by_element,
    _tile_by_tile,
    _one_reduction,
    _one_number,
)
