"""Programs in which another runtime computes the whole model: what a user could run in place of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

from tvm import relax
from tvm.ir import IRModule

from ..annotations import PLAN
from ..backends.options import split
from ..errors import CollageError, UnavailableBackend
from ..frontend.eager import EagerModel, eager_module
from ..graph.calls import calls
from ..graph.shapes import dtype_of
from ..plan.comparison import DIFFERS, ProgramComparison
from ..plan.plan import Plan, PlannedKernel
from ..profile.inputs import tensors_in
from ..runtime import torch_calls
from ..sessions import RUNTIMES, WHOLE, InferenceRuntime, WholeModel, available, whole_model


@dataclass(frozen=True, slots=True)
class Entrant:
    """The program of one runtime."""

    backend: str
    title: str
    release: str
    """Such as ``ONNX Runtime 1.22.0``, with the options that it was given."""
    version: str
    """What a stored comparison with its program holds for, for the same module."""
    function: str
    """What its only kernel calls."""
    make: Callable[[], IRModule]
    narrowed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Element types that it computes in other ones, which have fewer digits."""

    @property
    def name(self) -> str:
        """Its name in comparisons."""
        return f"{self.backend}, {WHOLE}"

    def why_less_exact(self, imported: IRModule) -> str | None:
        """Why its results have fewer digits than those of a program that computes as ``imported`` says, or None."""
        functions = [func for func in imported.functions.values() if isinstance(func, relax.Function)]
        types = [call.ty for func in functions for call in calls(func)]
        computed = {dtype_of(ty) for ty in tensors_in(types)}
        narrowed = self.narrowed.items()
        return next(
            (f"{self.title} computes {wide} in {narrow}" for wide, narrow in narrowed if wide in computed),
            None,
        )


WholeModels = Mapping[str, Entrant]
"""Candidate programs by their names."""


def runtimes_among(
    names: Sequence[str] | None, libs: Sequence[str] = ()
) -> tuple[tuple[str, ...] | None, list[InferenceRuntime]]:
    """The ``names`` of backends for the search, and the inference runtimes among them; without names: all.

    ``libs``: the backends that the target names, which may have options for these runtimes.

    A runtime that is named with other backends makes regions too. Named alone it makes the program.
    Raises UnavailableBackend, with the reason, for a named runtime that cannot be used here.
    """
    if names is None:
        given = dict(map(split, libs))
        return None, [found.with_options(given.get(found.name, {})) for found in available()]
    if not names:
        raise CollageError("no backend is named: name one, or none at all for every one that is available")
    asked = [split(text) for text in names]
    for name in RUNTIMES:
        if sum(other == name for other, _ in asked) > 1:
            raise CollageError(f"backend {name} is named twice: name it once")
    named = [RUNTIMES[name].with_options(options) for name, options in asked if name in RUNTIMES]
    for found in named:
        if reason := found.why_unavailable():
            raise UnavailableBackend(f"backend {found.name} cannot be used here: {reason}")
    return (tuple(names) if any(name not in RUNTIMES for name, _ in asked) else ()), named


def entrants_of(
    model: WholeModel | None, imported: IRModule, runtimes: Sequence[InferenceRuntime], precision: str
) -> WholeModels:
    """A candidate program for each of ``runtimes``; none for a model that is not in their format."""
    if model is None:
        return {}
    once = replace(model, onnx=cache(model.onnx))  # files may have hundreds of megabytes
    digests = "".join(f" {library['digest']}" for library in model.libraries)
    made = [
        Entrant(
            each.name,
            each.title,
            release=each.version(),
            version=f"{each.version()} {dict(sorted(each.settings.items()))}{digests}",
            function=f"{each.name}_main",
            make=partial(whole_model, once, imported, each, precision),
            narrowed=each.narrowed,
        )
        for each in runtimes
    ]
    return {entrant.name: entrant for entrant in made}


def eager_entrant(model: EagerModel | None, imported: IRModule) -> WholeModels:
    """A candidate program that calls PyTorch for all of ``model``; none without one."""
    if model is None:
        return {}
    entrant = Entrant(
        "torch",
        "PyTorch",
        release=model.release,
        version=model.version,
        function=torch_calls.symbol_of(torch_calls.WHOLE_MODEL),
        make=partial(eager_module, model, imported),
    )
    return {entrant.name: entrant}


def disagreements(report: ProgramComparison, whole_models: WholeModels) -> list[str]:
    """A line for each runtime with results that differ from ours, unless another runtime agrees with ours.

    It is not known which one is wrong.
    """
    theirs = [each for each in report.programs if each.name in whole_models]
    if any(each.seconds is not None for each in theirs):
        return []
    return [
        f"{whole_models[each.name].title} computes something else: {each.reason}"
        for each in theirs
        if each.reason.startswith(DIFFERS)
    ]


def planned(mod: IRModule, entrant: Entrant, report: ProgramComparison | None = None) -> IRModule:
    """``mod`` with the plan of its one kernel; with the report of a comparison, at the cost that was measured there."""
    rounds = (
        next((each.rounds for each in report.programs if each.name == entrant.name), ()) if report else ()
    )
    seconds = report.measured if report is not None and report.measured is not None else 0.0
    main = mod["main"]
    kernel = PlannedKernel(
        candidate=0,
        backend=entrant.backend,
        label=WHOLE,
        function=entrant.function,
        bindings=tuple(binding.var.name for block in main.body.blocks for binding in block.bindings),
        seconds=seconds,
        interval=(min(rounds), max(rounds)) if rounds else None,
    )
    remark = (
        f"{entrant.release} computes the whole model, and is needed where the program runs; "
        "an explanation is that of our own plan"
    )
    plan = Plan((kernel,), seconds, algorithm=WHOLE, remarks=(remark,))
    functions = {**dict(mod.functions_items()), mod.get_global_var("main"): PLAN.write(main, plan)}
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
