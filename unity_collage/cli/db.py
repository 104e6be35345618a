"""``unity-collage db``: show a database of costs, copy costs between databases, remove old ones."""

from __future__ import annotations

import argparse
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from ..database.rows import FailureKind
from .as_json import add_json
from .option_types import NamesAction, positive

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(commands: Actions) -> None:
    """Add ``db`` and its actions to the command line."""
    text = "show the database of costs, share it, clean it"
    parser = commands.add_parser("db", help=text, description=f"{text.capitalize()}.")
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    _add_info(actions)
    _add_list(actions)
    _add_exchange(actions)
    _add_diff(actions)
    _add_prune(actions)
    _add_verify(actions)


def _add_info(actions: Actions) -> None:
    action = _action(actions, "info", "info", "show what the database contains")
    action.add_argument("--fingerprints", action="store_true", help="also show the fingerprints of the costs")


def _add_list(actions: Actions) -> None:
    action = _action(actions, "list", "list_costs", "list the costs, the largest first")
    action.add_argument(
        "--doubtful", action="store_true", help="only those that other work of the machine disturbed"
    )


def _add_exchange(actions: Actions) -> None:
    action = _action(actions, "export", "export", "write everything as JSON lines")
    action.add_argument(
        "file",
        metavar="FILE",
        help="the file to write, - is standard output; only an earlier export is overwritten",
    )
    action.add_argument(
        "--pack",
        action="store_true",
        help="write a small file of this machine's costs, which others with a processor of its family can use",
    )

    text = "add the rows of exports; of two costs the newer one stays"
    action = _action(actions, "import", "import_files", text)
    action.add_argument("files", metavar="FILE", nargs="+", help="an export; - is standard input")
    action.add_argument("--pack", action="store_true", help="the files are packs of costs")

    text = "add the rows of other databases; of two costs the newer one stays"
    action = _action(actions, "merge", "merge_databases", text)
    action.add_argument("others", metavar="OTHER", nargs="+", help="a file or URL, which is only read")


def _add_diff(actions: Actions) -> None:
    text = "show the costs that differ between two databases"
    action = actions.add_parser("diff", help=text, description=f"{text.capitalize()}.")
    action.add_argument("first", metavar="FIRST", help="a file or URL")
    action.add_argument("second", metavar="SECOND", help="a file or URL")
    action.add_argument(
        "--more-than",
        type=_percent,
        metavar="P%",
        default=0.1,
        help="show differences larger than this (default: 10%%)",
    )
    action.add_argument(
        "--by-key",
        action="store_true",
        help="compare the newest costs of equal kernels, even of other machines and versions",
    )
    _finish(action, "diff")


def _add_prune(actions: Actions) -> None:
    action = _action(actions, "prune", "prune", "remove rows that are not needed any more")
    action.add_argument(
        "--older-than",
        type=positive,
        metavar="DAYS",
        help="remove all rows that are older, and programs that were not used since then",
    )
    action.add_argument(
        "--stale",
        action="store_true",
        help="remove costs of library versions that this machine no longer has",
    )
    action.add_argument(
        "--old-versions",
        action="store_true",
        help="remove quarantine entries of other versions than this machine's",
    )
    kinds = [kind.value for kind in FailureKind]
    action.add_argument(
        "--release", nargs="+", action=NamesAction, choices=kinds, metavar="KIND", default=[],
        help="remove quarantine entries of these kinds, so that their kernels are measured again: "
        f"{', '.join(kinds)}",
    )  # fmt: skip
    action.add_argument(
        "--programs",
        action="store_true",
        help="remove all programs that are kept for the next compile of the same model",
    )
    action.add_argument("--dry-run", action="store_true", help="only show how many rows would be removed")


def _add_verify(actions: Actions) -> None:
    action = _action(actions, "verify", "verify_sample", "measure a sample again, and compare")
    action.add_argument(
        "--sample", type=positive, metavar="N", default=20, help="the number of kernels (default: 20)"
    )
    action.add_argument("--seed", type=int, metavar="N", default=0, help="draws another sample (default: 0)")


def _action(actions: Actions, name: str, run: str, text: str) -> argparse.ArgumentParser:
    """The parser of an action on one database; ``run``: its function in ``db_actions``."""
    action = actions.add_parser(name, help=text, description=f"{text.capitalize()}.")
    action.add_argument(
        "--database", metavar="FILE|URL", help="the database of costs (default: in the user's cache folder)"
    )
    _finish(action, run)
    return action


def _finish(action: argparse.ArgumentParser, run: str) -> None:
    add_json(action)
    action.set_defaults(run=partial(_run, run))


def _run(name: str, options: argparse.Namespace) -> None:
    """Run an action, which is imported only now: it needs TVM."""
    getattr(import_module(".db_actions", __package__), name)(options)


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage such as 10%")
    return value / 100
