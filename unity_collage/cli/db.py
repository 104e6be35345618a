"""``unity-collage db``: look into a database of costs, carry them to another one, throw old ones away."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..cost.fingerprint import available, backend_version, stale
from ..cost.method import Method
from ..database import schema
from ..database.compare import compare
from ..database.costs import CostDatabase, FailureKind
from ..database.exchange import contents, from_lines, merge, to_lines
from ..database.prune import Prune, doomed, remove
from ..database.rows import digest
from ..errors import CollageError, DatabaseError, first_line
from ..lowering.library_file import why_no_file
from ..measure.verify import checkable, verify
from ..report import database as report
from .progress import progress_bar

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

STANDARD = "-"
"""The name of a file that stands for standard output or input."""

_DAY_SECONDS = 86_400.0


def add_command(commands: Actions) -> None:
    """Add ``db`` and its actions to the command line."""
    parser = commands.add_parser("db", help="look into the database of costs, share it, clean it")
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    action = _action(actions, "info", _info, "show what the database holds")
    action.add_argument("--fingerprints", action="store_true", help="show under which circumstances, too")

    action = _action(actions, "export", _export, "write everything as JSON lines")
    action.add_argument("file", metavar="FILE", help="where to; - is standard output")

    action = _action(actions, "import", _import, "add what exports hold; of two costs the newer one stays")
    action.add_argument("files", metavar="FILE", nargs="+", help="an export; - is standard input")

    action = _action(
        actions, "merge", _merge, "add what other databases hold; of two costs the newer one stays"
    )
    action.add_argument("others", metavar="OTHER", nargs="+", help="a file or URL; it stays as it is")

    _add_diff(actions)
    _add_prune(actions)

    action = _action(actions, "verify", _verify, "measure a sample again, and compare")
    action.add_argument(
        "--sample", type=_count, metavar="N", default=20, help="so many kernels (default: 20)"
    )
    action.add_argument("--seed", type=int, metavar="N", default=0, help="draws another sample (default: 0)")


def _add_diff(actions: Actions) -> None:
    action = actions.add_parser("diff", help="show the costs that differ between two databases")
    action.add_argument("first", metavar="FIRST", help="a file or URL")
    action.add_argument("second", metavar="SECOND", help="a file or URL")
    action.add_argument(
        "--more-than",
        type=_percent,
        metavar="P%",
        default=0.1,
        help="tell larger differences (default: 10%%)",
    )
    action.add_argument(
        "--by-key",
        action="store_true",
        help="compare the newest costs of equal kernels, whatever machines and versions they are from",
    )
    action.set_defaults(run=_diff)


def _add_prune(actions: Actions) -> None:
    action = _action(actions, "prune", _prune, "remove what is not asked for any more")
    action.add_argument("--older-than", type=_count, metavar="DAYS", help="all that is older")
    action.add_argument(
        "--stale", action="store_true", help="costs of library versions that this machine has no longer"
    )
    action.add_argument(
        "--old-versions", action="store_true", help="quarantine entries of other versions than this machine's"
    )
    kinds = [kind.value for kind in FailureKind]
    action.add_argument(
        "--release", nargs="+", choices=kinds, metavar="KIND", default=[],
        help=f"quarantine entries of a kind, to give those kernels another chance: {', '.join(kinds)}",
    )  # fmt: skip
    action.add_argument("--dry-run", action="store_true", help="only say what would be removed")


def _action(
    actions: Actions, name: str, run: Callable[[argparse.Namespace], None], text: str
) -> argparse.ArgumentParser:
    """An action on one database."""
    action = actions.add_parser(name, help=text)
    action.add_argument(
        "--database", metavar="FILE|URL", help="where the costs are (default: in the user's cache folder)"
    )
    action.set_defaults(run=run)
    return action


def _info(options: argparse.Namespace) -> None:
    with _existing(options.database, read_only=True) as database:
        costs, facts = database.costs(), database.rows(schema.FACTS)
        console = Console()
        console.print(database.name, soft_wrap=True, highlight=False)
        console.print(report.database_summary(costs, database.quarantine_entries(), facts))
        if options.fingerprints and costs:
            here = frozenset(map(digest, available(Method()).values()))
            console.print("", report.circumstances(costs, database.fingerprints(), here), soft_wrap=True)


def _export(options: argparse.Namespace) -> None:
    with _existing(options.database, read_only=True) as database:
        rows = contents(database)
    text = "".join(f"{line}\n" for line in to_lines(rows))
    if options.file == STANDARD:
        sys.stdout.write(text)
        return
    _write(Path(options.file), text)
    Console().print(
        f"wrote {options.file}: {len(rows['costs'])} costs and refusals", soft_wrap=True, highlight=False
    )


def _import(options: argparse.Namespace) -> None:
    """Every file is read before anything is kept: a broken one changes nothing."""
    files = [from_lines(_lines(name), name) for name in options.files]
    with CostDatabase(options.database) as database:
        _merge_all(database, {name: [row for rows in files for row in rows[name]] for name in schema.CONTENT})


def _merge(options: argparse.Namespace) -> None:
    every: dict[str, list[dict[str, object]]] = {name: [] for name in schema.CONTENT}
    for other in options.others:
        with _existing(other, read_only=True) as database:
            for name, rows in contents(database).items():
                every[name] += rows
    with CostDatabase(options.database) as database:
        _merge_all(database, every)


def _merge_all(database: CostDatabase, rows: dict[str, list[dict[str, object]]]) -> None:
    console = Console()
    console.print(report.merged_table(merge(database, rows)))
    console.print(f"into {database.name}", soft_wrap=True, highlight=False)


def _diff(options: argparse.Namespace) -> None:
    with (
        _existing(options.first, read_only=True) as first,
        _existing(options.second, read_only=True) as second,
    ):
        found = compare(first.costs(), second.costs(), options.more_than, options.by_key)
    Console().print(report.comparison_table(found, options.more_than))


def _prune(options: argparse.Namespace) -> None:
    if not (options.older_than or options.stale or options.old_versions or options.release):
        raise CollageError("say what to remove: --older-than, --stale, --old-versions or --release")
    with _existing(options.database, read_only=options.dry_run) as database:
        rows = doomed(database, _what_goes(options, database))
        if not options.dry_run:
            remove(database, rows)
    Console().print(report.doomed_line(rows, done=not options.dry_run), highlight=False)


def _what_goes(options: argparse.Namespace, database: CostDatabase) -> Prune:
    here = available(Method()) if options.stale or options.old_versions else {}
    return Prune(
        before=time.time() - options.older_than * _DAY_SECONDS if options.older_than else None,
        fingerprints=stale(database.fingerprints(), here) if options.stale else frozenset(),
        versions={name: backend_version(name) for name in here} if options.old_versions else {},
        kinds=frozenset(options.release),
    )


def _verify(options: argparse.Namespace) -> None:
    with _existing(options.database, read_only=True) as database:
        costs = checkable(database, available(Method()))
        if not costs:
            raise CollageError(
                f"{database.name} has no costs that can be measured again here: "
                "see which there are with db info --fingerprints"
            )
        with progress_bar() as progress:
            verified = verify(database, costs, options.sample, options.seed, progress)
    Console().print(report.verified_table(verified, len(costs)))


def _existing(where: str | None, read_only: bool) -> CostDatabase:
    return CostDatabase(where, read_only=read_only, create=False)


def _lines(name: str) -> list[str]:
    try:
        text = sys.stdin.read() if name == STANDARD else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else first_line(error)
        raise DatabaseError(f"{name} cannot be read: {reason}") from error
    return text.splitlines()


def _write(path: Path, text: str) -> None:
    """All of ``text`` or nothing: a half-written export would be taken for a whole one."""
    if (reason := why_no_file(path)) is not None:
        raise CollageError(f"{path} cannot be written: {reason}")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage such as 10%")
    return value / 100


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)
