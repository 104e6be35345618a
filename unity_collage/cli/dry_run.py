"""``--dry-run``: show what a compile would measure."""

from __future__ import annotations

import argparse

from ..showing import plain
from .as_json import print_json
from .options import sizes_of


def add_dry_run(command: argparse.ArgumentParser) -> None:
    """Add the option to a command."""
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="only show the candidates, what was declined, and how many kernels would be measured for how long",
    )


def tell_dry_run(options: argparse.Namespace) -> None:
    """Print the dry run of the model that the options name."""
    from ..inspection.dry_run import dry_run
    from ..report.dry_run import dry_run_summary
    from .console import Output

    found = dry_run(
        options.model,
        target=options.target,
        backends=options.backends,
        database=options.database,
        **sizes_of(options),
        budget_seconds=options.budget,
        packs=not options.no_packs,
        allow_winograd=not options.no_winograd,
        search_layouts=options.search_layouts,
        precision=options.precision,
        percentile=options.percentile,
        custom_op_libraries=options.custom_op_library,
    )
    if options.json:
        print_json({**plain(found), "kernels": found.kernels, "seconds": found.seconds})
    else:
        Output().print(dry_run_summary(found), highlight=False)
