"""``compile``: the program of an earlier compile; else import, the passes, and the fastest of several programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from .annotations import DEVICE_PLANS, EXPLANATION, PLAN
from .backends import registry
from .calling.binding import Params, has_weights, with_constant_inputs, with_params
from .calling.describe import signature_of
from .cost import asking
from .cost.method import MEDIAN, Method
from .cost.model import CostModel, Progress
from .database.costs import CostDatabase
from .defaults import BUDGET_SECONDS, FLOAT32
from .devices.table import Named
from .errors import CollageError, warn
from .fastest import fastest
from .feedback.builder import built_by_tvm
from .feedback.settings import Refined, Refinement, Tell
from .feedback.whole_models import WholeModels, eager_entrant, entrants_of, runtimes_among
from .frontend.models import Imported, LastResorts, Model, import_model, read_model
from .frontend.opaque import remarks_of
from .frontend.sizes import Shapes
from .graph.devices import places_of, targets_in
from .keeping import digest_of_given, digest_of_imported, keeping_for
from .lowering.build import build
from .lowering.kernel_texts import with_sources
from .lowering.live_memory import held_by
from .lowering.object_store import ObjectStore, current_store, object_store, using
from .machine.environment import use_threads
from .machine.fingerprint import machine
from .measure.here import cost_model
from .measure.kernel_costs import KernelCosts
from .measure.measured import MeasuredCost
from .passes.annotate_candidates import WINOGRAD
from .pipeline import Pipeline
from .placing import devices_named, names_of, of_several, placed
from .plan import weighed
from .plan.explanation import Explanation
from .plan.memory import memory_goal
from .plan.plan import Plan
from .profile.in_place import profile
from .program import Program
from .progress import shown
from .runtime.custom_op_libraries import (
    CustomOpLibraries,
    CustomOpLibrary,
    files_of,
    libraries_at,
    why_another,
)
from .runtime.custom_ops import CustomOps
from .search.memory_bounded import MemoryGoal
from .sessions import RUNTIMES, InferenceRuntime, session_options
from .sizes.samples import free_dimensions
from .sizes.variants import in_order, one_plan, varied, with_like
from .specs import PartitionSpec
from .target import is_cuda, libs_of

_OF_THE_MODEL = ("model", "example_inputs", "shapes", "dims", "params")
"""The arguments of ``compile`` that an imported module does not need."""


def compile(
    model: Model,
    example_inputs: Any = None,
    *,
    target: Target | str | Sequence[Target | str] | None = None,
    backends: str | Sequence[str] | None = None,
    database: CostDatabase | str | Path | None = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    progress: Progress | bool | None = None,
    locked: bool = False,
    budget_seconds: float | None = BUDGET_SECONDS,
    remeasure: bool = False,
    recompile: bool = False,
    packs: bool = True,
    explain: bool = False,
    specs: Sequence[PartitionSpec] = (),
    allow_winograd: bool = True,
    search_layouts: bool = False,
    tune_trials: int = 0,
    refine: Refinement | None = None,
    tell: Tell = lambda _: None,
    precision: str = FLOAT32,
    estimator: CostModel | None = None,
    threads: int | None = None,
    params: Params = (),
    measure: bool = True,
    percentile: float = MEDIAN,
    custom_ops: CustomOps | None = None,
    custom_op_libraries: CustomOpLibraries = (),
    memory_limit: int | str | None = None,
    objective: Mapping[str, float] | None = None,
    devices: Sequence[Named] | None = None,
    eager: bool = True,
) -> Program:
    """Compile ``model`` to the fastest program that the ``backends`` make together, by measured cost.

    * ``model``: an ONNX model or the path of one, a ``torch.nn.Module`` with ``example_inputs``, a
      ``torch.export.ExportedProgram`` or the path of one (``.pt2``), or an IRModule. A module of TorchScript, or the
      path of one (``.pt``), needs ``example_inputs`` or the ``shapes`` of all its inputs.
    * ``shapes`` fixes sizes that the model leaves open: ``{"image": (1, 3, 640, 640)}`` fixes the shape of an input,
      ``{"batch": 1}`` a dimension by name. ``dims`` takes names of dimensions only. ``{"batch": [1, 8]}`` and
      ``{"length": range(1, 129)}`` leave a dimension open and name the sizes that may get a plan each. If no size is
      named, likely sizes are used; with ``{"batch": []}`` none gets a plan. ``{"length": {16: 0.7, 512: 0.3}}`` also
      gives the weight of each size (docs/models.md).
    * ``target``: the processor to compile for. By default the host, or the machine of the ``estimator``. ``"cuda"`` is
      the NVIDIA GPU of this machine (docs/cuda.md). A list of targets names backends too: ``"llvm -libs=onednn"``
      names oneDNN, which is preferred to the backends of later targets. A target without ``libs`` names TVM
      (docs/models.md).
    * ``backends``: names in preference order; by default all that are available. Without ``"tvm"`` among them TVM gets
      only what no other backend takes. ``"onnxruntime"`` and ``"openvino"`` take a whole model; where nothing else is
      named, the first of them makes the program. Named beside others they also make regions (docs/whole_models.md).
      ``"torch"`` makes kernels only where it is named: its programs need Python and PyTorch where they run. Options of
      a library stand behind its name: ``"openvino:NUM_STREAMS=1"``.
    * ``database``: the database of costs, a path or a ``postgresql://`` URL; by default a file in the user's cache
      directory. When it is ``locked`` nothing is measured or written, and a missing cost is an error.
    * ``progress`` is called with what is being measured and ``tell`` with the name of any other step. With
      ``progress=True`` both are shown on standard error.
    * ``budget_seconds``: the limit for measuring kernels; None is no limit. The most important kernels are measured
      first, and the plan is the best one for the costs that are known by then. With a limit, a compile continues
      where an earlier one ended.
    * ``remeasure``: measure known costs again too.
    * ``recompile``: compile even if the program of an earlier compile is kept. Otherwise a kept program is returned
      if it has the same model, options, versions and machine, and its costs still hold (docs/costs.md).
    * ``packs``: use packs of costs for this processor's family, if a sample of them agrees with measurements made here.
    * ``explain``: fill ``program.explanation``, which says for every candidate why it was chosen or not.
    * ``specs``: partition rules of your own.
    * ``allow_winograd``: let convolutions use Winograd's algorithm, which rounds differently.
    * ``search_layouts``: let the search choose the layout of each image between two kernels, channels last or first.
      Twice as many kernels are measured. Channels last is the best layout for nearly all images.
    * ``tune_trials``: how many schedules MetaSchedule tries for each TVM kernel that could still be in the plan;
      for CPUs only.
    * ``refine``: how candidate programs are compared. By default these are timed in turns: ours, that of a greedy
      partitioner, those of each backend alone, and the fastest one of an earlier compile. With ``Refinement()`` costs
      that do not hold in the running program are also corrected, and a program of TVM alone is compared too. The
      fastest program is the result, and the plan of ``main`` has the ``comparison``. Programs for a GPU are not
      compared.
    * ``precision``: with ``"bf16"`` convolutions and products read bfloat16, and values between them are stored in it.
      Inputs, outputs and all other arithmetic stay float32. ``"f16"`` is for the target ``cuda``: there all values
      inside that are safe in 16 bits are float16, and inputs and outputs keep their types (docs/precision.md). There
      ``"tf32"`` lets convolutions and products round their float32 operands to TensorFloat-32.
    * ``estimator``: the source of costs, such as :class:`unity_collage.measure.remote.RemoteCost`. It has its own
      database, progress and budget; those given here are not used.
    * ``threads``: how many threads kernels are measured and compiled for. The process uses them from now on, as after
      :func:`unity_collage.set_num_threads`. Kernels for a GPU do not depend on it.
    * ``params``: weights that are parameters of the model, by name, or those behind ``num_input`` in order. Copies of
      them become constants, which are packed once and are not inputs any more. For an ONNX model any input may be
      given: with ``{"sr": 16000}`` only one branch of an ``If`` on ``sr`` is imported.
    * ``measure``: with False kernels are chosen by rule, in the order of ``backends``, and grouped as TVM does. Nothing
      is measured, and no database is opened. So it is for a target whose kernels do not run on this machine.
    * ``percentile``: which percentile of the runs of a kernel is its cost. With 90 or 99 far more runs are timed.
    * ``custom_ops``: Python functions for operators of an ONNX model that have no converter here, such as
      ``{"my.ops::Foo": foo}``. They take and return numpy arrays, attributes are keyword arguments. Such a program
      needs the function where it runs. Other operators without a converter are left to ONNX Runtime, and those of a
      PyTorch model to PyTorch (``"torch"``). That library must be installed and among the ``backends``. Remarks of the
      plan name the operators.
    * ``custom_op_libraries``: paths of shared libraries with operators of an ONNX model, which ONNX Runtime registers
      (``RegisterCustomOps``). ONNX Runtime computes these operators. Such a program needs the same files where it runs
      (docs/whole_models.md).
    * ``memory_limit``: the most bytes that weights, intermediates and results may take on a device, such as
      ``"200MB"``. The search finds the fastest plan under the limit. Every candidate is measured, and programs are
      not compared. It is an error if none is found, or if the program that is built takes more (docs/costs.md).
    * ``objective``: ``{"latency": 1, "memory": w}`` minimises seconds and ``w`` times the bytes of the peak.
    * ``devices``: devices such as ``["cpu:0", "cpu:1"]``. The search chooses a place for each value that no
      annotation places; copies between them are measured. Inputs and results without a place are on the first one
      (docs/devices.md). The model must have fixed sizes.
    * ``eager``: whether PyTorch itself takes part in the comparison of programs, for a model of PyTorch. It does so by
      default, and where ``"torch"`` is among the ``backends`` (docs/whole_models.md).
    """
    if isinstance(target, (list, tuple)):
        target, backends = of_several(target, backends, model)
    assert target is None or isinstance(target, (Target, str))
    options = {name: value for name, value in locals().items() if name not in _OF_THE_MODEL}
    custom_libraries = libraries_at(custom_op_libraries)
    options["custom_op_libraries"] = [library["path"] for library in custom_libraries]
    use_threads(threads)
    goal = memory_goal(memory_limit, objective)
    needing = {
        "refine": refine,
        "tune_trials": tune_trials,
        "search_layouts": search_layouts,
        "explain": explain,
        "the choice of devices": devices,
    }
    _check_options(measure, percentile, estimator, goal, needing)
    with shown() if progress is True else nullcontext(progress or None) as report:
        asked = target or (None if estimator is None else estimator.target())
        chosen = devices_named(devices, model, asked)
        model, scope = placed(model, asked, measure and estimator is None, chosen)
        costs = estimator or (
            cost_model(database, report, locked, budget_seconds, remeasure, packs, scope, percentile)
            if measure
            else MeasuredCost()
        )
        unmeasured = why_unmeasured(costs, scope) if measure else None
        if unmeasured is not None:
            _check_unmeasured(unmeasured, percentile, goal, needing)
        names, runtimes = runtimes_among(names_of(backends), libs_of(scope))
        pipeline = Pipeline(
            backends=names,
            model=costs,
            specs=tuple(specs),
            without=() if allow_winograd else WINOGRAD,
            precision=precision,
            layouts=search_layouts,
            tune_trials=tune_trials,
            explain=explain,
            measure=measure and unmeasured is None,
            unmeasured=unmeasured,
            only_choices=not explain and refine is None,
            memory=goal,
            devices=chosen,
        )
        said = partial(report, 0, 0) if report is not None and progress is True else tell
        of_import = {"shapes": shapes, "dims": dims, "custom_op_libraries": custom_libraries}
        keeping = keeping_for(costs, asked, {**options, **of_import})
        is_told = not params and example_inputs is None and keeping.place is not None
        digest = digest_of_given(model) if is_told else None
        program = keeping.find(digest, model)
        if program is None:
            said("importing the model")
            given = read_model(Path(model)) if isinstance(model, (str, Path)) else model
            last_resorts = last_resorts_for(custom_ops or {}, runtimes, names, scope, custom_libraries)
            given, unbound = with_constant_inputs(given, params)
            source = with_params(import_model(given, example_inputs, shapes, dims, last_resorts), unbound)
            source = source if eager else replace(source, eager=None)
            if digest is None and keeping.place is not None:
                digest = digest_of_imported(model, source)
                program = keeping.find(digest, model)
            if program is None:
                said("looking for kernels")
                with using(_objects(costs)), keeping.noting() as answers:
                    program = _made(pipeline, source, scope, refine, said, params, runtimes)
                asking.forget()
                weighed.forget()
                said("keeping the program")
                keeping.keep(digest, model, given, program, answers, costs)
            if has_weights(source) and not any(map(len, source.samples.values())):
                program.let_bind(partial(compile, source.mod, **options))
        if program.kept_since is not None:
            of_model = {"shapes": shapes, "dims": dims, "params": params}
            # From the costs that are known by now: other costs could give another plan.
            again = {**options, **of_model, "recompile": True, "budget_seconds": 0.0}
            program.let_compile_again(partial(compile, model, example_inputs, **again))
        known, store = costs.database_and_lock()[0], _objects(costs)
        program.let_profile(partial(profile, target=scope, database=known, store=store))
    _tell_of_what_is_not_kept(costs)
    return program


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


def _made(
    pipeline: Pipeline,
    source: Imported,
    target: Target,
    refine: Refinement | None,
    tell: Tell,
    params: Params,
    runtimes: Sequence[InferenceRuntime],
) -> Program:
    """The program of an imported model."""
    if pipeline.devices and (any(map(len, source.samples.values())) or free_dimensions(source.mod["main"])):
        raise CollageError("devices are chosen by cost for fixed sizes: fix them with shapes or dims")
    by_size, remarks = with_sizes(source, target, params)
    whole = _other_programs(pipeline, source, target, runtimes)
    if pipeline.backends is not None and not pipeline.backends and not whole:
        raise CollageError(f"{runtimes[0].title} takes models as they are, for CPUs: name other backends")
    best = fastest(pipeline, by_size, target, refine, tell, whole)
    missing = registry.missing(pipeline.backends, target)
    without = (f"compiled without the backend {name}: {reason}" for name, reason in missing.items())
    return _finished(source, target, replace(best, remarks=(*without, *remarks, *best.remarks)))


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
        liked = with_like(source.mod)
        return liked, (*opaque, one_plan(liked, "it has opaque calls"))
    if opaque:
        return source.mod, opaque
    at = source.at
    return varied(source.mod, source.samples, at and (lambda sizes: with_params(at(sizes), params).mod))


def _objects(costs: CostModel) -> ObjectStore:
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
    is_stock = best.mod is source.mod
    relink = partial(_built, current_store(), built_by_tvm if is_stock else build, best.mod, target)
    program = _program(best.executable, source, best.mod, target, relink)
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


def _check_options(
    measure: bool,
    percentile: float,
    estimator: CostModel | None,
    goal: MemoryGoal | None,
    needing: Mapping[str, Any],
) -> None:
    """Raises CollageError for options that contradict each other; ``needing``: others that need costs, by name."""
    if not measure:
        reason = "nothing is measured: leave one of the two out"
        _check_unmeasured(reason, percentile, goal, needing)
    if goal is not None and needing["refine"] is not None:
        raise CollageError(
            "a memory limit is for the plan of the search, and refine compares others: leave one out"
        )
    Method.of(percentile)
    if percentile != MEDIAN and estimator is not None:
        raise CollageError(
            "a percentile and an estimator: give MeasuredCost(method=Method.of(percentile)) alone"
        )


def why_unmeasured(costs: CostModel, target: Target) -> str | None:
    """Why no kernel for ``target`` gets a cost, or None. A locked database says itself what it lacks."""
    if not isinstance(costs, KernelCosts) or costs.locked:
        return None
    return costs.why_not_measured(target)


def _check_unmeasured(
    reason: str, percentile: float, goal: MemoryGoal | None, needing: Mapping[str, Any]
) -> None:
    """Raises CollageError for an option that needs costs, since there are none for this reason."""
    needing = {**needing, "percentile": percentile != MEDIAN, "a memory limit": goal}
    if asked := [name for name, value in needing.items() if value]:
        raise CollageError(f"{asked[0]} needs costs, and {reason}")


def _tell_of_what_is_not_kept(costs: CostModel) -> None:
    database, _ = costs.database_and_lock()
    if database is not None and database.not_kept:
        warn(f"{database.not_kept} measured facts are lost with this process: {database.why_not_kept}")


def explain(
    model: Model,
    pipeline: Pipeline,
    *,
    target: Target | str | None = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    check: Callable[[IRModule], None] = lambda _: None,
    ranges: Callable[[Plan], None] = lambda _: None,
) -> dict[str, Explanation]:
    """Why each candidate of each function was chosen or not; nothing is built.

    The names of variables are those of the values in the ONNX model. ``check`` is called with the module that has the
    candidates, before anything is measured; it may raise CollageError. ``ranges`` is called with the plan of ``main``
    if that chooses between plans by the sizes of its inputs. Raises CollageError for a target whose kernels cannot run
    here: they have no costs.
    """
    model, scope = placed(model, target or pipeline.model.target(), True)
    if reason := why_unmeasured(pipeline.model, scope):
        raise CollageError(reason)
    _, imported = imported_for(model, pipeline, scope, shapes, dims)
    explaining = replace(pipeline, explain=True)
    with scope:
        prepared = tvm.transform.Sequential(explaining.until_candidates())(imported)
        check(prepared)
        searched = tvm.transform.Sequential([*explaining.costs(), explaining.search()])(prepared)
        chosen = PLAN.by_function(explaining.choice()(searched))
    if "main" in chosen and chosen["main"].range is not None:
        ranges(chosen["main"])
    return EXPLANATION.by_function(searched)


def compile_with(passes: tvm.transform.Pass, model: Model, target: Target | str | None = None) -> Program:
    """:func:`compile` with other ``passes`` than ours: with a cost model, a backend or a pass of your own."""
    model, scope = placed(model, target, False)
    source = import_model(model)
    with scope:
        partitioned = passes(source.mod)
    program = _program(
        build(partitioned, scope), source, partitioned, scope, partial(build, partitioned, scope)
    )
    program.let_profile(partial(profile, target=scope))
    return program


def _program(
    executable: relax.VMExecutable,
    source: Imported,
    final: IRModule,
    target: Target,
    relink: Callable[[], relax.VMExecutable],
) -> Program:
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
