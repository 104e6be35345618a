"""How a compile makes a program that is not kept: import, variants for sizes, the comparison of programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from .annotations import DEVICE_PLANS, EXPLANATION, PLAN
from .backends import registry
from .calling.binding import Params, with_constant_inputs, with_params
from .calling.describe import signature_of
from .cost.model import CostModel
from .errors import CollageError
from .fastest import fastest
from .feedback.builder import built_by_tvm
from .feedback.comparison import STOCK
from .feedback.settings import Refined, Refinement, Tell
from .feedback.whole_models import WholeModels, eager_entrant, entrants_of, runtimes_among
from .frontend.models import Imported, LastResorts, Model, import_model, read_model
from .frontend.opaque import remarks_of
from .frontend.sizes import Shapes
from .graph.devices import places_of, targets_in
from .keeping import digest_of_given
from .lowering.build import build
from .lowering.kernel_texts import with_sources
from .lowering.live_memory import held_by
from .lowering.object_store import ObjectStore, current_store, object_store, using
from .machine.fingerprint import machine
from .pipeline import Pipeline
from .program import Program
from .runtime.custom_op_libraries import CustomOpLibrary, files_of, libraries_at, why_another
from .runtime.custom_ops import CustomOps
from .sessions import RUNTIMES, InferenceRuntime, session_options
from .sizes.samples import free_dimensions
from .sizes.variants import in_order, one_plan, varied, with_like
from .target import is_cuda, libs_of


@dataclass(frozen=True, slots=True)
class GivenModel:
    """A model as it is given to ``compile``, and how it is imported."""

    model: Model
    example_inputs: Any
    shapes: Shapes | None
    dims: Mapping[str, int] | None
    params: Params
    custom_ops: CustomOps
    libraries: Sequence[CustomOpLibrary]
    eager: bool

    def digest(self) -> str | None:
        """The digest of the model; None where it has to be imported for that."""
        return None if self.params or self.example_inputs is not None else digest_of_given(self.model)

    def imported(self, making: Making) -> tuple[Model, Imported]:
        """The model as it is read, with its constant inputs, and as it is imported."""
        read = read_model(Path(self.model)) if isinstance(self.model, (str, Path)) else self.model
        names, target = making.pipeline.backends, making.target
        last_resorts = last_resorts_for(self.custom_ops, making.runtimes, names, target, self.libraries)
        read, unbound = with_constant_inputs(read, self.params)
        found = import_model(read, self.example_inputs, self.shapes, self.dims, last_resorts)
        source = with_params(found, unbound)
        return read, source if self.eager else replace(source, eager=None)


@dataclass(frozen=True, slots=True)
class Making:
    """How the program of a model is made."""

    pipeline: Pipeline
    target: Target
    runtimes: Sequence[InferenceRuntime]
    """Inference runtimes that may run the whole model."""
    refine: Refinement | None
    tell: Tell
    """Called with the name of each step."""

    def program(self, source: Imported, params: Params) -> Program:
        """The program of an imported model; ``params``: those that were bound."""
        pipeline, target = self.pipeline, self.target
        if pipeline.devices and (
            any(map(len, source.samples.values())) or free_dimensions(source.mod["main"])
        ):
            raise CollageError("devices are chosen by cost for fixed sizes: fix them with shapes or dims")
        by_size, remarks = with_sizes(source, target, params)
        whole = _other_programs(pipeline, source, target, self.runtimes)
        if pipeline.backends is not None and not pipeline.backends and not whole:
            title = self.runtimes[0].title
            raise CollageError(f"{title} takes models as they are, for CPUs: name other backends")
        best = fastest(pipeline, by_size, target, self.refine, self.tell, whole)
        missing = registry.missing(pipeline.backends, target)
        without = (f"compiled without the backend {name}: {reason}" for name, reason in missing.items())
        return _finished(source, target, replace(best, remarks=(*without, *remarks, *best.remarks)))


_TORCH = "torch"


def last_resorts_for(
    custom_ops: CustomOps,
    runtimes: Sequence[InferenceRuntime],
    names: Sequence[str] | None,
    target: Target,
    libraries: Sequence[CustomOpLibrary] = (),
) -> LastResorts:
    """What takes operators that have no converter here, only on CPUs; without ``names`` of backends PyTorch may.

    Raises CollageError for ``libraries`` that ONNX Runtime cannot register.
    """
    has_runtime = any(found.name == _ONNX_RUNTIME for found in runtimes)
    if libraries:
        if reason := _why_not_registered(libraries, has_runtime, target):
            raise CollageError(
                f"custom operators of {files_of(libraries)} are computed by ONNX Runtime: {reason}"
            )
        session_options(libraries)
    if is_cuda(target):
        return LastResorts()
    return LastResorts(custom_ops, has_runtime, names is None or _TORCH in names, libraries)


_ONNX_RUNTIME = "onnxruntime"


def _why_not_registered(
    libraries: Sequence[CustomOpLibrary], has_runtime: bool, target: Target
) -> str | None:
    """Why ONNX Runtime does not register ``libraries``; ``has_runtime``: whether it is among the backends."""
    if is_cuda(target):
        return "they are for CPUs, compile without the target cuda"
    if not has_runtime:
        return RUNTIMES[_ONNX_RUNTIME].why_unavailable() or f"name {_ONNX_RUNTIME} among the backends"
    return next(filter(None, (why_another(library["path"]) for library in libraries)), None)


def imported_for(
    model: Model, pipeline: Pipeline, target: Target, shapes: Shapes | None, dims: Mapping[str, int] | None
) -> tuple[Imported, IRModule]:
    """A model as ``compile`` imports it for a pipeline, and its module with variants for sizes that it leaves open."""
    _, runtimes = runtimes_among(pipeline.backends, libs_of(target))
    libraries = libraries_at(pipeline.custom_op_libraries)
    last_resorts = last_resorts_for({}, runtimes, pipeline.backends, target, libraries)
    source = import_model(model, shapes=shapes, dims=dims, last_resorts=last_resorts)
    return source, with_sizes(source, target)[0]


def _other_programs(
    pipeline: Pipeline, source: Imported, target: Target, runtimes: Sequence[InferenceRuntime]
) -> WholeModels:
    """The programs of whole models that are compared with ours, in the order in which they are built.

    PyTorch is first, since the model runs there already; but the first runtime is where only runtimes are named.
    """
    model = None if is_cuda(target) else source.whole
    compiled = entrants_of(model, source.mod, runtimes, pipeline.precision)
    eager = eager_entrant(source.eager, source.mod)
    return {**compiled, **eager} if pipeline.backends == () else {**eager, **compiled}


def with_sizes(source: Imported, target: Target, params: Params = ()) -> tuple[IRModule, tuple[str, ...]]:
    """The module of a model with variants for sizes that it leaves open, and remarks; raises CollageError for a GPU."""
    if is_cuda(target):
        if any(map(len, source.samples.values())):
            raise CollageError("sample sizes are for CPUs: on a GPU fix the sizes, then it runs a CUDA graph")
        return source.mod, ()
    opaque = remarks_of(source.mod)
    if opaque and free_dimensions(source.mod["main"]):
        # Each variant would need sessions of its own.
        liked = with_like(source.mod, source.samples)
        return liked, (*opaque, one_plan(liked, "it has opaque calls"))
    if opaque:
        return source.mod, opaque
    at = source.at
    return varied(source.mod, source.samples, at and (lambda sizes: with_params(at(sizes), params).mod))


def objects_of(costs: CostModel) -> ObjectStore:
    """The object code of kernels next to the costs."""
    database, locked = costs.database_and_lock()
    if database is None:
        return ObjectStore()
    return object_store(database.path, locked or database.read_only)


def _built(
    store: ObjectStore, how: Callable[[IRModule, Target], relax.VMExecutable], mod: IRModule, target: Target
) -> relax.VMExecutable:
    """What ``how`` builds, with the object code in ``store``."""
    with using(store):
        return how(mod, target)


def _finished(source: Imported, target: Target, best: Refined) -> Program:
    """The program of the final module that was chosen."""
    is_stock = best.report is not None and best.report.winner == STOCK
    relink = partial(_built, current_store(), built_by_tvm if is_stock else build, best.mod, target)
    program = program_of(best.executable, source, best.mod, target, relink)
    program.plan = in_order(program.plan or {}, best.mod)
    measured = None if best.report is None else best.report.measured
    more = {
        "measured_seconds": measured,
        "comparison": best.report,
        "memory": held_by(best.executable).get("main"),
    }
    chosen = tuple(plan.said() for plans in DEVICE_PLANS.by_function(best.mod).values() for plan in plans)
    program.add_to_plan("main", remarks=(*chosen, *best.remarks), **more)
    for name in program.plan or {}:
        program.add_to_plan(name, percentile=best.percentile)
    return program


def program_of(
    executable: relax.VMExecutable,
    source: Imported,
    final: IRModule,
    target: Target,
    relink: Callable[[], relax.VMExecutable],
) -> Program:
    """An ``executable`` as a program, with the plans and explanations of its ``final`` module.

    ``relink`` builds the executable again.
    """
    held = held_by(executable)
    plans = {name: replace(plan, memory=held.get(name)) for name, plan in PLAN.by_function(final).items()}
    explained = {
        name: with_sources(each, plans[name], final) if name in plans else each
        for name, each in EXPLANATION.by_function(final).items()
    }
    places = places_of(final)
    return Program(
        executable,
        source.inputs,
        final,
        plans,
        explained or None,
        relink,
        signature_of(source.mod, final, source.inputs, source.outputs),
        target,
        machine=machine(),
        devices=places,
        targets=targets_in(final),
    )
