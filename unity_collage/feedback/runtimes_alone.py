"""Programs of inference runtimes that are named without other backends: tried once, and timed in turns if several."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tvm.ir import IRModule
from tvm.target import Target

from .. import runtime
from ..errors import CollageError
from ..profile.inputs import input_sets
from ..profile.programs import ProgramWorker
from .between import confirmed
from .builder import ProgramBuilder
from .comparison import Comparison
from .settings import Refined, Refinement, Tell
from .whole_models import WholeModels, planned


def fastest_runtime(
    whole_models: WholeModels,
    imported: IRModule,
    target: Target,
    settings: Refinement,
    tell: Tell,
    why_not_tried: str | None,
) -> Refined:
    """The program of the fastest of ``whole_models``; of the first one, with a remark, where they cannot be tried.

    Raises CollageError, with the reason of each, where none runs the model.
    """
    builder = ProgramBuilder(imported, imported, target, _as_it_is, _as_it_is, whole_models)
    first = next(iter(whole_models))
    if why_not_tried is not None:
        mod, executable = builder.whole(first)
        remark = f"the program was not tried: {why_not_tried}"
        return Refined(planned(mod, whole_models[first]), executable, remarks=(remark,))
    with ProgramWorker(input_sets(imported), runtime.num_threads(), model=imported) as worker:
        comparison = Comparison(builder, settings, worker, tell)
        running = [
            name for name in whole_models if comparison.add_built(name, None, partial(builder.whole, name))
        ]
        left_out = tuple(
            f"{entrant.title} was left out: {comparison.programs[name].reason}"
            for name, entrant in whole_models.items()
            if name not in running
        )
        if not running:
            raise CollageError(f"no named runtime runs the model: {'; '.join(left_out)}")
        if len(running) > 1:
            name, _ = confirmed(comparison, comparison.finish())
            best = comparison.result(name)
            return replace(best, mod=planned(best.mod, whole_models[name], best.report), remarks=left_out)
        built = comparison.programs[running[0]].built
        assert built is not None
        return Refined(planned(built[0], whole_models[running[0]]), built[1], remarks=left_out)


def _as_it_is(mod: IRModule) -> IRModule:
    return mod
