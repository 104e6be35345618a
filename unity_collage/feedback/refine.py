"""Refinement: candidate programs are compared, and costs observed in running programs improve the plan.

The plan of the search, and plans that a user could choose instead, are built, instrumented and run in turns. The times
of kernels there replace their costs, and the plan is searched again, until the search finds a known plan. Then all
these programs, the greedy one, each backend alone and stock TVM are timed in turns, and the user gets the fastest. A
program that cannot be built or run is dropped, with its reason.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tvm.ir import IRModule

from .. import runtime
from ..annotations import PLAN
from ..cost.model import CostModel
from ..errors import CollageError, first_line, is_of_user
from ..graph.variants import has_loop
from ..machine.load import LoadWatch
from ..measure.kernel_costs import KernelCosts
from ..plan.comparison import Denormals, FirstCall, Prediction, ProgramComparison
from ..plan.encoding import decode, encode
from ..plan.ranges import named
from ..profile.inputs import input_sets, samples_of
from ..profile.kernels import KernelProfiler
from ..profile.programs import TIMEOUT_SECONDS, ProgramWorker
from ..search.auto import solve
from ..search.ties import with_ties_broken
from .between import confirmed
from .breeding import Breeding, bred
from .builder import ProgramBuilder
from .candidates import OURS, Choice, choices, ids_of, problems_of
from .comparison import Comparison
from .entrants import CORRECTED, add_entrants
from .loop import FeedbackLoop
from .observed import Observation, with_all_observed
from .records import Records, choice_of, described, fingerprint_of, model_digest, records_of
from .settings import BY_DEFAULT, Refined, Refinement, Tell

LOGGER = logging.getLogger(__name__)

_LONGER = 1.5
"""A first call that takes this many times as long as later ones is worth a remark."""

_DENORMAL = 1.2
"""Denormal numbers with which a program takes this many times as long are worth a remark."""

LOOP_SECONDS = 20.0
"""How long a program with a loop may run on drawn inputs, for which the loop may have no end."""


def refined(
    builder: ProgramBuilder,
    model: CostModel,
    priority: Sequence[str],
    settings: Refinement = BY_DEFAULT,
    tell: Tell = lambda _: None,
) -> Refined:
    """The fastest of several programs for one model.

    ``builder``: for a module with costs of ``model``. ``priority``: the backends in preference order.
    A comparison that the database knows is not run again, unless it is doubtful. Raises CollageError when no program
    runs, and NoPlan when there is no plan.
    """
    problems = problems_of(builder.costed)
    plans = {name: (choice, seconds) for name, choice, seconds in choices(problems, priority)}
    if OURS not in plans:
        return _by_rule(builder, settings)
    records = _records(builder, model, {name: choice for name, (choice, _) in plans.items()}, settings)
    known = None if records is None else _known_winner(builder, records, settings, plans[OURS][0])
    if known is not None:
        return known
    if records is not None and records.locked:
        return _not_compared(builder, "nothing may be measured")
    watch = LoadWatch()
    sets = input_sets(builder.imported)
    is_of_one_size = not samples_of(builder.imported)
    limit = LOOP_SECONDS if has_loop(builder.imported) else TIMEOUT_SECONDS
    with ProgramWorker(sets, runtime.num_threads(), limit, builder.imported) as worker:
        comparison = Comparison(builder, settings, worker, tell)
        before = None if records is None else records.before()
        try:
            add_entrants(comparison, plans, before, corrects=is_of_one_size)
            if is_of_one_size and not model.is_budget_spent():
                learn(comparison, priority)
            if settings.breeding is not None and is_of_one_size and not model.is_budget_spent():
                breed(comparison, settings.breeding, lambda: _is_stopped(model))
            winner, first_call = confirmed(comparison, comparison.finish(lambda: watch.load().is_busy))
            result = comparison.result(winner)
            denormals = comparison.denormals()
        except CollageError as error:
            if not settings.is_optional:
                raise
            return _not_compared(builder, str(error))
    load = watch.load()
    assert result.report is not None
    report = replace(result.report, created=time.time(), others=load.others, denormals=denormals)
    if not is_of_one_size:  # the costs of the plan are for one size, the times for all samples together
        report = replace(report, predicted=None, measured=None, samples=len(sets), first_call=first_call)
    if records is not None:
        choice = comparison.programs[winner].choice
        description = None if choice is None else described(builder.costed, choice)
        outcome = {"report": encode(report), "choice": description, "left_out": comparison.left_out}
        records.keep(outcome, load.is_busy)
    return replace(result, report=report, remarks=_remarks(report))


def _not_compared(builder: ProgramBuilder, reason: str) -> Refined:
    """Our program, with the reason why no other one was compared with it."""
    return Refined(*builder.searched(builder.costed), remarks=(f"programs were not compared: {reason}",))


def _by_rule(builder: ProgramBuilder, settings: Refinement) -> Refined:
    """Our program where measured kernels make no plan of some function: one of kernels by rule, if there are some.

    Raises NoPlan if there are none, and CollageError where programs have to be compared.
    """
    reason = "the kernels that were measured make no plan"
    found = _not_compared(builder, reason)
    if not settings.is_optional:
        raise CollageError(f"candidate programs cannot be compared: {reason}")
    return found


def _records(
    builder: ProgramBuilder, model: CostModel, plans: Mapping[str, Choice], settings: Refinement
) -> Records | None:
    """What the database knows about programs of this model; None without a database."""
    database, locked = model.database_and_lock()
    if database is None:
        return None
    versions = {
        name: each.version
        for name, each in builder.whole_models.items()
        if each.why_less_exact(builder.imported) is None
    }
    return records_of(
        database, builder.costed, builder.imported, plans, settings, builder.target, locked, versions
    )


def _known_winner(
    builder: ProgramBuilder, records: Records, settings: Refinement, ours: Choice
) -> Refined | None:
    """The winner of a stored comparison; None if there is none, or if it cannot be built any more.

    ``ours``: the plan of the search now. The comparison may be one of other plans: then its winner is built as it was.
    A comparison that left out programs for lack of time or memory does not count if now there is no limit of time.
    """
    known = records.find()
    if known is None:
        return None
    if known.get("left_out") and settings.build_seconds == math.inf and not records.locked:
        return None
    report = replace(decode(ProgramComparison, known["report"]), origin="database")
    choice = None if known["choice"] is None else choice_of(builder.costed, known["choice"])
    if known["choice"] is not None and choice is None:
        return None
    try:
        if report.winner in builder.whole_models:
            built = builder.whole(report.winner)
        elif choice is None:
            built = builder.stock()
        elif report.winner == OURS and choice == ours:
            built = builder.searched(builder.costed)
        elif report.winner == CORRECTED and (costed := _corrected(builder, choice)) is not None:
            built = builder.searched(costed)
        else:
            built = builder.chosen(choice, report.winner)
    except Exception as error:  # the compiler did not fail in the earlier comparison
        if is_of_user(error):
            raise
        LOGGER.warning(
            "%s cannot be built again, so all programs are compared again: %s",
            report.winner,
            first_line(error),
        )
        return None
    return Refined(*built, report, _remarks(report))


def _corrected(builder: ProgramBuilder, choice: Choice) -> IRModule | None:
    """The module with corrected costs, or None if ``choice`` is not its cheapest plan any more."""
    with builder.target:
        costed = builder.correct(builder.costed)
    plan = {function: ids_of(solve(problem)) for function, problem in problems_of(costed).items()}
    return costed if plan == choice else None


def _remarks(report: ProgramComparison) -> tuple[str, ...]:
    """What users should know of the program: slow first calls, and denormal numbers."""
    return (*_of_first_call(report.first_call), *_of_denormals(report.denormals))


def _of_first_call(call: FirstCall | None) -> Iterator[str]:
    """How long a call with new sizes takes, if the first one takes notably longer."""
    if call is not None and call.differs:
        yield (
            f"with {named(call.sizes)}, which is no sample, the results of the program differ {call.differs}, and no "
            "third one says which are right: compare them with --verify there"
        )
    if call is not None and call.seconds >= _LONGER * call.later:
        yield (
            f"the first call with new sizes takes longer: with {named(call.sizes)} it took {_ms(call.seconds)}, later "
            f"calls {_ms(call.later)}; libraries compiled {call.kernels} of its kernels then, in {_ms(call.compiling)}"
        )


def _of_denormals(found: Denormals | None) -> Iterator[str]:
    """How much faster our program is without denormal numbers, if it is notably faster."""
    if found is not None and found.seconds >= _DENORMAL * found.flushed:
        yield (
            "some values are denormal numbers, below 1.2e-38, with which processors are slow: our program takes "
            f"{_ms(found.seconds)}, and {_ms(found.flushed)} where they count as zero (unity_collage.flush_denormals)"
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def learn(comparison: Comparison, priority: Sequence[str]) -> None:
    """Search again with costs from the running programs, until the plan is known.

    The program of the last search is not observed, since no search follows.
    """
    rounds = comparison.settings.feedback
    if not rounds:
        return
    builder = comparison.builder
    names = [f"{OURS}, informed {number}" for number in range(1, rounds + 1)]
    unused = iter(names)

    def plan(costed: IRModule) -> tuple[str, IRModule] | None:
        choice = {
            function: ids_of(with_ties_broken(problem, solve(problem), priority))
            for function, problem in problems_of(costed).items()
        }
        name = next(unused)
        known = any(program.choice == choice for program in comparison.programs.values())
        if known or not comparison.add(name, choice) or name == names[-1]:
            return None
        comparison.tell(f"timing the kernels of {name}")
        return name, _final(comparison, name)

    def correct(observations: Sequence[Observation]) -> IRModule:
        return with_all_observed(builder.costed, observations)

    def failed(name: str, reason: str) -> None:
        comparison.tell(f"the kernels of {name} are not timed: {reason}")

    with FeedbackLoop(KernelProfiler(comparison.worker, builder.target), failed) as loop:
        promising = comparison.promising()
        for name in promising:
            comparison.tell(f"timing the kernels of {name}")
        loop.observe([(name, _final(comparison, name)) for name in promising])
        loop.run(plan, correct, rounds)
        for name, seen in loop.observations.items():
            comparison.iterations.append(
                Prediction(name, seen.plan.seconds, statistics.median(seen.seconds_by_turn))
            )


def _final(comparison: Comparison, name: str) -> IRModule:
    built = comparison.programs[name].built
    assert built is not None and PLAN.on(built[0]["main"])
    return built[0]


def _is_stopped(model: CostModel) -> bool:
    """Whether the user has stopped the measuring, with Ctrl-C on the command line."""
    return isinstance(model, KernelCosts) and model.was_stopped


def breed(comparison: Comparison, breeding: Breeding, is_over: Callable[[], bool]) -> None:
    """Add the program of the best plan that breeding finds by measured time, until ``is_over`` returns True."""
    problems = problems_of(comparison.builder.costed)
    medians = comparison.timed([name for name, program in comparison.programs.items() if program.choice], 2)
    if not medians:
        return
    best = min(medians, key=lambda name: statistics.median(medians[name]))
    seconds = statistics.median(medians[best])
    base = comparison.programs[best].choice or {}
    builder = comparison.builder
    backends = {option.backend for problem in problems.values() for option in problem.options}
    about = f"{model_digest(builder.imported)} {fingerprint_of(tuple(backends), builder.target)}"

    def fitness(trial: Choice) -> float | None:
        return _fitness(comparison, trial, best, seconds)

    choice = bred(problems, base, fitness, breeding, about, is_over)
    if all(program.choice != choice for program in comparison.programs.values()):
        comparison.add(f"{OURS}, bred", choice)


def _fitness(comparison: Comparison, choice: Choice, reference: str, seconds: float) -> float | None:
    """Seconds of a run of the program of ``choice``, None if it does not work.

    Drift affects all programs, so both run in the same rounds: the result is the ratio to ``reference`` times its
    ``seconds``.
    """
    trial = "trial"
    works = comparison.add(trial, choice)
    medians = comparison.timed([trial, reference], 2) if works else {}
    comparison.remove(trial)
    if trial not in medians or reference not in medians:
        return None
    ratios = (a / b for a, b in zip(medians[trial], medians[reference], strict=True))
    return seconds * statistics.median(ratios)
