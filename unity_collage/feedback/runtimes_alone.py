"""Programs of inference runtimes that are named without other backends: tried once, and timed in turns if several."""

from __future__ import annotations

from collections.abc import Iterable
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
from .whole_models import Entrant, WholeModels, planned


def fastest_runtime(
    whole_models: WholeModels,
    imported: IRModule,
    target: Target,
    settings: Refinement,
    tell: Tell,
    why_not_tried: str | None,
) -> Refined:
    """The program of the fastest of ``whole_models``.

    It is the first one that takes the model, with a remark, where programs cannot be tried. Raises CollageError, with
    the reason of each, where none runs the model.
    """
    builder = ProgramBuilder(imported, imported, target, _as_it_is, _as_it_is, whole_models)
    if why_not_tried is not None:
        return _first_that_takes_it(builder, why_not_tried)
    with ProgramWorker(input_sets(imported), runtime.num_threads(), model=imported) as worker:
        comparison = Comparison(builder, settings, worker, tell)
        running = [
            name for name in whole_models if comparison.add_built(name, None, partial(builder.whole, name))
        ]
        left_out = tuple(
            _left_out(entrant, comparison.programs[name].reason)
            for name, entrant in whole_models.items()
            if name not in running
        )
        if not running:
            raise _none_runs(left_out)
        if len(running) > 1:
            name, _ = confirmed(comparison, comparison.finish())
            best = comparison.result(name)
            return replace(best, mod=planned(best.mod, whole_models[name], best.report), remarks=left_out)
        built = comparison.programs[running[0]].built
        assert built is not None
        return Refined(planned(built[0], whole_models[running[0]]), built[1], remarks=left_out)


def _first_that_takes_it(builder: ProgramBuilder, why_not_tried: str) -> Refined:
    """The first program that can be made, with why the ones before it cannot."""
    remarks: list[str] = []
    for name, entrant in builder.whole_models.items():
        try:
            mod, executable = builder.whole(name)
        except CollageError as error:
            remarks.append(_left_out(entrant, str(error)))
            continue
        remarks.append(f"the program was not tried: {why_not_tried}")
        return Refined(planned(mod, entrant), executable, remarks=tuple(remarks))
    raise _none_runs(remarks)


def _left_out(entrant: Entrant, reason: str) -> str:
    return f"{entrant.title} was left out: {reason}"


def _none_runs(left_out: Iterable[str]) -> CollageError:
    return CollageError(f"no named runtime runs the model: {'; '.join(left_out)}")


def _as_it_is(mod: IRModule) -> IRModule:
    return mod
