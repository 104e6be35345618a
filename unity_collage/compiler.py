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

from .annotations import EXPLANATION, PLAN
from .calling.binding import Params, has_weights
from .cost import asking
from .cost.method import MEDIAN, Method
from .cost.model import CostModel, Progress
from .database.answers import Answers
from .database.costs import CostDatabase
from .defaults import BUDGET_SECONDS, FLOAT32
from .devices.table import Named
from .errors import CollageError, warn
from .feedback.settings import Refinement, Tell
from .feedback.whole_models import runtimes_among
from .frontend.models import Imported, Model, import_model
from .frontend.sizes import Shapes
from .keeping import Keeping, digest_of_imported, keeping_for
from .lowering.build import build
from .lowering.object_store import using
from .machine.environment import use_threads
from .making import GivenModel, Making, imported_for, objects_of, program_of
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
from .runtime.custom_op_libraries import CustomOpLibraries, libraries_at
from .runtime.custom_ops import CustomOps
from .search.memory_bounded import MemoryGoal
from .sessions import InferenceRuntime
from .specs import PartitionSpec
from .target import libs_of

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
      only what no other backend takes. ``"onnxruntime"``, ``"openvino"`` and ``"mnn"`` take a whole model; where
      nothing else is named, the fastest makes the program. The first two also make regions if they are named beside
      others (docs/whole_models.md).
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
    libraries = libraries_at(custom_op_libraries)
    options["custom_op_libraries"] = [library["path"] for library in libraries]
    use_threads(threads)
    goal = memory_goal(memory_limit, objective)
    _check_options(options, goal)
    with shown() if progress is True else nullcontext(progress or None) as report:
        tell = partial(report, 0, 0) if report is not None and progress is True else tell
        asked = target or (None if estimator is None else estimator.target())
        chosen = devices_named(devices, model, asked)
        model, scope = placed(model, asked, measure and estimator is None, chosen)
        costs = estimator or _costs_here(options, report, scope)
        pipeline, runtimes = _pipeline(options, costs, scope, goal, chosen)
        of_import = {"shapes": shapes, "dims": dims, "custom_op_libraries": libraries}
        keeping = keeping_for(costs, asked, {**options, **of_import})
        given = GivenModel(model, example_inputs, shapes, dims, params, custom_ops or {}, libraries, eager)
        making = Making(pipeline, scope, runtimes, refine, tell)
        program, source = _kept_or_made(given, making, keeping)
        _let_compile_again(program, given, source, options)
        known, store = costs.database_and_lock()[0], objects_of(costs)
        program.let_profile(partial(profile, target=scope, database=known, store=store))
    tell_of_what_is_not_kept(costs)
    return program


def _costs_here(options: Mapping[str, Any], report: Progress | None, target: Target) -> CostModel:
    """The cost model of this machine; without measuring no database is opened."""
    if not options["measure"]:
        return MeasuredCost()
    return cost_model(
        options["database"],
        report,
        options["locked"],
        options["budget_seconds"],
        options["remeasure"],
        options["packs"],
        target,
        options["percentile"],
    )


def _pipeline(
    options: Mapping[str, Any],
    costs: CostModel,
    target: Target,
    goal: MemoryGoal | None,
    devices: Sequence[relax.VDevice],
) -> tuple[Pipeline, list[InferenceRuntime]]:
    """The passes that the options of ``compile`` ask for, and the inference runtimes that may run the whole model."""
    unmeasured = why_unmeasured(costs, target) if options["measure"] else None
    if unmeasured is not None:
        _check_unmeasured(unmeasured, options, goal)
    names, runtimes = runtimes_among(names_of(options["backends"]), libs_of(target))
    explain, refine = options["explain"], options["refine"]
    pipeline = Pipeline(
        backends=names,
        model=costs,
        specs=tuple(options["specs"]),
        without=() if options["allow_winograd"] else WINOGRAD,
        precision=options["precision"],
        layouts=options["search_layouts"],
        tune_trials=options["tune_trials"],
        explain=explain,
        measure=options["measure"] and unmeasured is None,
        unmeasured=unmeasured,
        only_choices=not explain and refine is None,
        memory=goal,
        devices=tuple(devices),
    )
    return pipeline, runtimes


def _kept_or_made(given: GivenModel, making: Making, keeping: Keeping) -> tuple[Program, Imported | None]:
    """The program of an earlier compile, or a new one, which is kept; also the imported model, if it was needed."""
    digest = None if keeping.place is None else given.digest()
    program = keeping.find(digest, given.model)
    if program is not None:
        return program, None
    making.tell("importing the model")
    read, source = given.imported(making)
    if digest is None and keeping.place is not None:
        digest = digest_of_imported(given.model, source)
        program = keeping.find(digest, given.model)
    if program is None:
        program, answers = _made(making, source, given.params, keeping)
        making.tell("keeping the program")
        keeping.keep(digest, given.model, read, program, answers, making.pipeline.model)
    return program, source


def _made(making: Making, source: Imported, params: Params, keeping: Keeping) -> tuple[Program, Answers]:
    """A new program, and what the database was asked for it."""
    making.tell("looking for kernels")
    with using(objects_of(making.pipeline.model)), keeping.noting() as answers:
        program = making.program(source, params)
    asking.forget()
    weighed.forget()
    return program, answers


def _let_compile_again(
    program: Program, given: GivenModel, source: Imported | None, options: Mapping[str, Any]
) -> None:
    """Let a program bind weights, and one that was kept say what its module is; both compile the model again."""
    if source is not None and has_weights(source) and not any(map(len, source.samples.values())):
        program.let_bind(partial(compile, source.mod, **options))
    if program.kept_since is not None:
        of_model = {"shapes": given.shapes, "dims": given.dims, "params": given.params}
        # From the costs that are known by now: other costs could give another plan.
        again = {**options, **of_model, "recompile": True, "budget_seconds": 0.0}
        program.let_compile_again(partial(compile, given.model, given.example_inputs, **again))


def _check_options(options: Mapping[str, Any], goal: MemoryGoal | None) -> None:
    """Raises CollageError for options of ``compile`` that contradict each other."""
    if not options["measure"]:
        _check_unmeasured("nothing is measured: leave one of the two out", options, goal)
    if goal is not None and options["refine"] is not None:
        raise CollageError(
            "a memory limit is for the plan of the search, and refine compares others: leave one out"
        )
    Method.of(options["percentile"])
    if options["percentile"] != MEDIAN and options["estimator"] is not None:
        raise CollageError(
            "a percentile and an estimator: give MeasuredCost(method=Method.of(percentile)) alone"
        )


def _check_unmeasured(reason: str, options: Mapping[str, Any], goal: MemoryGoal | None) -> None:
    """Raises CollageError for an option that needs costs, since there are none for this reason."""
    needing = {
        **{name: options[name] for name in ("refine", "tune_trials", "search_layouts", "explain")},
        "the choice of devices": options["devices"],
        "percentile": options["percentile"] != MEDIAN,
        "a memory limit": goal,
    }
    if asked := [name for name, value in needing.items() if value]:
        raise CollageError(f"{asked[0]} needs costs, and {reason}")


def why_unmeasured(costs: CostModel, target: Target) -> str | None:
    """Why no kernel for ``target`` gets a cost, or None. A locked database says itself what it lacks."""
    if not isinstance(costs, KernelCosts) or costs.locked:
        return None
    return costs.why_not_measured(target)


def tell_of_what_is_not_kept(costs: CostModel) -> None:
    """Warn if something that was measured could not be stored."""
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
    tell_of_what_is_not_kept(pipeline.model)
    if "main" in chosen and chosen["main"].range is not None:
        ranges(chosen["main"])
    return EXPLANATION.by_function(searched)


def compile_with(passes: tvm.transform.Pass, model: Model, target: Target | str | None = None) -> Program:
    """:func:`compile` with other ``passes`` than ours: with a cost model, a backend or a pass of your own."""
    model, scope = placed(model, target, False)
    source = import_model(model)
    with scope:
        partitioned = passes(source.mod)
    program = program_of(
        build(partitioned, scope), source, partitioned, scope, partial(build, partitioned, scope)
    )
    program.let_profile(partial(profile, target=scope))
    return program
