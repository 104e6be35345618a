"""``dry_run``: what a compile of a model would measure, and for how long; nothing is measured and nothing is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from ..annotations import CANDIDATES, DECLINED
from ..backends.registry import select
from ..calling.binding import Params, with_constant_inputs, with_params
from ..cost.asking import workloads
from ..cost.fingerprint import cost_fingerprint
from ..cost.method import MEDIAN, Method
from ..cost.model import Workload
from ..database.costs import CostDatabase
from ..database.location import default_path, is_url, shown
from ..database.pace import Pace, pace
from ..database.rows import digest
from ..defaults import BUDGET_SECONDS, FLOAT32
from ..errors import CollageError
from ..feedback.whole_models import runtimes_among
from ..frontend.models import Model, import_model
from ..frontend.sizes import Shapes
from ..machine.environment import use_threads
from ..making import last_resorts_for, with_sizes
from ..measure.choices import why_costs_matter
from ..measure.here import cost_model
from ..measure.kernel_costs import KernelCosts
from ..measure.runnable import why_not_measured
from ..passes.annotate_candidates import WINOGRAD
from ..pipeline import Pipeline
from ..placing import names_of, placed
from ..plan.candidate import VIEW, Candidate, DeclinedBinding
from ..runtime.custom_op_libraries import CustomOpLibraries, libraries_at
from ..scratch import Scratch
from ..specs import PartitionSpec
from ..target import is_cuda, libs_of


@dataclass(frozen=True, slots=True)
class OfRule:
    """The candidates of one backend that one rule has proposed."""

    backend: str
    rule: str
    candidates: int
    kernels: int
    """How many of them are distinct: equal layers share a kernel."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """What one backend has refused."""

    backend: str
    bindings: int
    """How many distinct bindings."""
    reasons: tuple[tuple[str, int], ...]
    """Each reason and how often it was given, the most frequent first."""


@dataclass(frozen=True, slots=True)
class FunctionDryRun:
    """The candidates of one function, and what was declined."""

    bindings: int
    rules: tuple[OfRule, ...]
    declined: tuple[Refusals, ...]
    choice: str | None
    """Why something has to be measured; None: only one plan is possible, and ``compile`` measures nothing."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """What :func:`unity_collage.compile` would measure."""

    functions: Mapping[str, FunctionDryRun]
    known: int
    """How many distinct kernels have a cost, or a reason for none, in the database."""
    unknown: int
    """How many have none. This is the most that is measured: kernels that cannot change the plan are not."""
    pace: Pace
    database: str
    budget_seconds: float | None
    """The limit for measuring; None: no limit."""

    @property
    def kernels(self) -> int:
        """How many distinct kernels there are."""
        return self.known + self.unknown

    @property
    def seconds(self) -> float:
        """About how long all unknown kernels take, without the budget."""
        return self.unknown * self.pace.seconds


def dry_run(
    model: Model,
    example_inputs: Any = None,
    *,
    target: Target | str | None = None,
    backends: str | Sequence[str] | None = None,
    database: CostDatabase | str | Path | None = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    budget_seconds: float | None = BUDGET_SECONDS,
    packs: bool = True,
    specs: Sequence[PartitionSpec] = (),
    allow_winograd: bool = True,
    search_layouts: bool = False,
    precision: str = FLOAT32,
    threads: int | None = None,
    params: Params = (),
    percentile: float = MEDIAN,
    custom_op_libraries: CustomOpLibraries = (),
) -> DryRun:
    """What :func:`unity_collage.compile` with these options would measure; nothing is measured, built or written.

    A database that does not exist is an empty one. Kernels that later passes add are not counted: variants on one
    thread, and adjacent kernels in one call.
    """
    use_threads(threads)
    model, scope = placed(model, target, False)
    if not is_cuda(scope) and (reason := why_not_measured(scope)):
        raise CollageError(f"{reason}: its kernels are chosen by rule, and nothing is measured")
    names, runtimes = runtimes_among(names_of(backends), libs_of(scope))
    libraries = libraries_at(custom_op_libraries)
    last_resorts = last_resorts_for({}, runtimes, names, scope, libraries)
    model, unbound = with_constant_inputs(model, params)
    source = with_params(import_model(model, example_inputs, shapes, dims, last_resorts), unbound)
    without = () if allow_winograd else WINOGRAD
    with _opened(database) as opened, scope:
        costs = cost_model(opened, None, True, budget_seconds, False, packs, scope, percentile)
        pipeline = Pipeline(
            backends=names, model=costs, specs=tuple(specs), without=without,
            precision=precision, layouts=search_layouts,
        )  # fmt: skip
        mod = tvm.transform.Sequential(pipeline.until_candidates())(with_sizes(source, scope, params)[0])
        functions: dict[str, FunctionDryRun] = {}
        asked: dict[str, Workload] = {}
        for gvar, func in mod.functions_items():
            if isinstance(func, relax.Function) and CANDIDATES.on(func):
                of_function = workloads(func, costs, mod)
                choice = why_costs_matter(func, mod)
                functions[gvar.name_hint] = _described(func, of_function, choice)
                asked |= {workload.key: workload for workload in of_function.values()} if choice else {}
        known = costs.known(list(asked.values()))
        backends_used = [backend.name for backend in select(names, scope)]
        longer = costs.method.max_seconds - Method().max_seconds
        speed = pace(opened.costs(), _fingerprints(costs, backends_used, scope), longer)
        name = database.name if isinstance(database, CostDatabase) else shown(database or default_path())
        return DryRun(functions, len(known), len(asked) - len(known), speed, name, budget_seconds)


def _described(func: relax.Function, asked: Mapping[int, Workload], choice: str | None) -> FunctionDryRun:
    candidates = CANDIDATES.read(func)
    bindings = sum(len(block.bindings) for block in func.body.blocks)
    refused = DECLINED.read(func) if DECLINED.on(func) else ()
    return FunctionDryRun(bindings, tuple(_by_rule(candidates, asked)), tuple(_refusals(refused)), choice)


def _by_rule(candidates: Iterable[Candidate], asked: Mapping[int, Workload]) -> Iterator[OfRule]:
    groups: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in candidates:
        if candidate.backend != VIEW:
            groups.setdefault((candidate.backend, candidate.rule), []).append(candidate)
    for (backend, rule), group in groups.items():
        yield OfRule(backend, rule, len(group), len({asked[candidate.id].key for candidate in group}))


def _refusals(refused: Iterable[DeclinedBinding]) -> Iterator[Refusals]:
    groups: dict[str, list[DeclinedBinding]] = {}
    for each in refused:
        groups.setdefault(each.backend, []).append(each)
    for backend, group in groups.items():
        reasons = Counter(each.reason for each in group).most_common()
        yield Refusals(backend, len({each.index for each in group}), tuple(reasons))


def _fingerprints(costs: KernelCosts, backends: Iterable[str], target: Target) -> list[str]:
    return [digest(cost_fingerprint(name, target, costs.method)) for name in {*backends, "tvm"}]


@contextmanager
def _opened(database: CostDatabase | str | Path | None) -> Iterator[CostDatabase]:
    """The database, only to be read; an empty one where there is none."""
    if isinstance(database, CostDatabase):
        yield database
    elif _exists(database):
        with CostDatabase(database, read_only=True, create=False) as opened:
            yield opened
    else:
        with Scratch("dry-run") as folder, CostDatabase(Path(folder) / "empty.sqlite") as opened:
            yield opened


def _path(database: str | Path | None) -> Path:
    return default_path() if database is None else Path(database)


def _exists(database: str | Path | None) -> bool:
    if database is not None and is_url(database):
        return True
    try:
        return _path(database).exists()
    except OSError:  # what opens it says why that is not possible
        return True
