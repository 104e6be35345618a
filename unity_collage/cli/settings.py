"""The settings that the shared options stand for: cost models, refinements, rules that are left out."""

from __future__ import annotations

import argparse
from typing import Any

from ..backends.options import name_of
from ..backends.registry import get as backend_named
from ..calling.processor import why_not_run
from ..cost.method import Method
from ..cost.model import Progress
from ..database.costs import CostDatabase
from ..errors import CollageError, UnknownBackend
from ..feedback.breeding import Breeding
from ..feedback.settings import Refinement
from ..measure.here import cost_model
from ..measure.kernel_costs import KernelCosts
from ..measure.remote import RemoteCost
from ..measure.remote.messages import why_no_tracker
from ..measure.runnable import why_not_measured
from ..measure.tuning import why_unavailable as why_not_tuned
from ..passes.annotate_candidates import WINOGRAD
from ..pipeline import Pipeline
from .exit_codes import UsageError
from .options import RPC_KEY


def cost_model_of(options: argparse.Namespace, report: Progress) -> KernelCosts:
    """The cost model that the options of a command ask for: of this machine, or of servers behind a tracker.

    Raises CollageError, before anything is measured, where what they need is not installed.
    """
    if options.tune and not options.locked and (reason := why_not_tuned()) is not None:
        raise CollageError(f"--tune: {reason}")
    if options.rpc is None:
        limits = (options.locked, options.budget, options.remeasure)
        return cost_model(
            options.database,
            report,
            *limits,
            packs=not options.no_packs,
            target=options.target,
            percentile=options.percentile,
        )
    if (reason := why_no_tracker(options.rpc)) is not None:
        raise CollageError(f"--rpc: {reason}")
    return RemoteCost(
        CostDatabase(options.database, read_only=options.locked, goes_on=True),
        progress=report,
        locked=options.locked,
        budget_seconds=options.budget,
        remeasure=options.remeasure,
        tracker=options.rpc,
        key=options.rpc_key or RPC_KEY,
        method=Method.of(options.percentile),
    )


def refinement_of(options: argparse.Namespace) -> Refinement | None:
    """The settings of ``--refine`` and ``--breed``."""
    if not options.refine:
        return None
    return Refinement(breeding=Breeding(seconds=options.breed) if options.breed else None)


def check_runs_here(options: argparse.Namespace) -> None:
    """Raises CollageError, before anything is compiled, for programs that are to run here and cannot."""
    if options.rpc is not None:
        with cost_model_of(options, lambda *_: None) as costs:
            target = costs.target()
        if target is not None and (reason := why_not_run(target)):
            raise CollageError(
                f"the program runs on this machine, and {reason}: compile it, and run it there"
            )
    elif options.target is not None and (reason := why_not_measured(options.target)):
        raise CollageError(reason)


def check_backends(options: argparse.Namespace) -> None:
    """Raises UsageError for names in ``--backends`` that no backend has, and CollageError for a broken backend."""
    for name in options.backends or ():
        try:
            backend_named(name_of(name))
        except UnknownBackend as error:
            raise UsageError(f"--backends: {error}") from None


def pipeline_of(options: argparse.Namespace, **more: Any) -> Pipeline:
    """The passes that the options of a command ask for; ``more``: other fields of the pipeline."""
    return Pipeline(
        backends=None if options.backends is None else tuple(options.backends),
        custom_op_libraries=options.custom_op_library,
        without=WINOGRAD if options.no_winograd else (),
        precision=options.precision,
        layouts=options.search_layouts,
        **more,
    )
