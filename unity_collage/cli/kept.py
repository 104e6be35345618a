"""The program that an earlier compile with the same options has kept. TVM is not imported to find it."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..cost.method import MEDIAN, Method
from ..database.costs import CostDatabase
from ..defaults import Usual
from ..errors import DatabaseError
from ..kept.asked import AskedOptions
from ..kept.models import digest_of_file
from ..kept.place import place_for
from ..plan.memory import memory_goal
from ..program import Program
from ..runtime.custom_op_libraries import libraries_at
from .options import sizes_of


def kept(options: argparse.Namespace, explain: bool) -> Program | None:
    """The kept program for these options; None if only ``compile`` can tell whether there is one."""
    if options.recompile or options.remeasure or options.locked or options.rpc or options.tune:
        return None
    if (
        getattr(options, "devices", None)
        or options.refine
        or options.breed
        or (options.no_measure and options.percentile != MEDIAN)
    ):
        return None
    digest, place = digest_of_file(options.model), place_for(_asked(options, explain), options.database)
    if digest is None or place is None:
        return None
    is_to_go_on = not isinstance(options.budget, Usual)
    try:
        database = (
            None if options.no_measure else CostDatabase(options.database, read_only=True, create=False)
        )
        return place.find(digest, database, Path(options.model).parent, is_to_go_on)
    except DatabaseError:  # there is none yet, or a later step reports what is wrong
        return None


def keep_times(options: argparse.Namespace, program: Program) -> None:
    """Keep the times of kernels in the plans of a program that was compiled with these options, where it is kept."""
    digest, place = digest_of_file(options.model), place_for(_asked(options, True), options.database)
    if digest is not None and place is not None:
        place.add_times(digest, program)


def _asked(options: argparse.Namespace, explain: bool) -> AskedOptions:
    """What :mod:`unity_collage.keeping` returns for the arguments that these options give ``compile``."""
    return AskedOptions(
        target="" if options.target is None else str(options.target),
        backends=options.backends,
        **sizes_of(options),
        precision=options.precision,
        allow_winograd=not options.no_winograd,
        search_layouts=options.search_layouts,
        measure=not options.no_measure,
        method=str(Method.of(options.percentile)),
        packs=options.no_measure or not options.no_packs,
        unlimited=options.no_measure or options.budget is None,
        explain=explain,
        custom_op_libraries=libraries_at(options.custom_op_library),
        memory="" if (goal := memory_goal(options.memory_limit, None)) is None else repr(goal),
    )
