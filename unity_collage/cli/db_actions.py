"""The actions of ``unity-collage db``."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path

from ..cost.fingerprint import available, backend_version, stale
from ..cost.method import Method
from ..database import schema
from ..database.compare import compare
from ..database.costs import CostDatabase
from ..database.exchange import contents, from_lines, merge, to_lines
from ..database.packs import read as read_pack
from ..database.prune import Prune, doomed, remove
from ..database.rows import digest
from ..errors import CollageError, DatabaseError, is_file, text_in
from ..lowering.library_file import write
from ..measure.verify import checkable, verify
from ..report import database as report
from ..report.cells import counted
from . import progress
from .as_json import print_json
from .console import Output
from .db_info import info_as_data
from .db_kept import kept_told, remove_kept
from .db_packs import export_pack, import_packs, packs_told
from .exit_codes import UsageError
from .files import STANDARD

_DAY_SECONDS = 86_400.0

_DATABASE_BEGIN, _EXPORT_BEGIN = b"SQLite format 3", b'{"unity_collage"'
"""How files of SQLite begin, and how exports do."""

_EXPORT = "an export of a cost database, as db export writes it"


def info(options: argparse.Namespace) -> None:
    """Print what the database contains."""
    with _existing(options.database, read_only=True) as database:
        costs, facts = database.costs(), database.rows(schema.FACTS)
        if options.json:
            print_json(info_as_data(database, costs, facts, options.fingerprints))
            return
        console = Output()
        console.say(database.name)
        console.print(report.database_summary(costs, database.quarantine_entries(), facts))
        for line in (*packs_told(database), *kept_told(database)):
            console.say(line)
        if options.fingerprints and costs:
            here = frozenset(map(digest, available(Method()).values()))
            console.print("", report.fingerprint_list(costs, database.fingerprints(), here), soft_wrap=True)


def list_costs(options: argparse.Namespace) -> None:
    """Print the costs, a line each."""
    with _existing(options.database, read_only=True) as database:
        costs = [cost for cost in database.costs() if cost.seconds is not None]
    wanted = [cost for cost in costs if cost.doubtful] if options.doubtful else costs
    if options.json:
        print_json({"costs": wanted, "of": len(costs)})
    else:
        Output().print(report.cost_list(wanted, len(costs)))


def export(options: argparse.Namespace) -> None:
    """Write the database as JSON lines, or as a pack the costs of this machine in it."""
    _check_replaced(options.file)
    with _existing(options.database, read_only=True) as database:
        if options.pack:
            export_pack(database, options.file, options.json)
            return
        rows = contents(database)
    text = "".join(f"{line}\n" for line in to_lines(rows))
    if options.file == STANDARD:
        sys.stdout.write(text)
        return
    write(Path(options.file), text.encode())
    if options.json:
        print_json({"wrote": options.file, "costs": len(rows["costs"])})
        return
    Output().say(f"wrote {options.file}: {len(rows['costs'])} costs and refusals")


def _check_replaced(name: str) -> None:
    """Raises CollageError for a file that is there, unless it is an earlier export or pack."""
    if name == STANDARD or not is_file(name):
        return
    head = _begin_of(name)
    if head.startswith(_DATABASE_BEGIN):
        raise CollageError(
            f"{name} is a database, and FILE would be overwritten: to export this database, run "
            f"unity-collage db export costs.jsonl --database {name}"
        )
    if head and head != _EXPORT_BEGIN and not _is_pack(name):
        raise CollageError(
            f"{name} is not an export, and would be overwritten: choose another name, or remove it first"
        )


def _begin_of(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            return file.read(len(_EXPORT_BEGIN))
    except OSError as error:
        raise CollageError(f"{name} would be overwritten, and cannot be read: {error.strerror}") from error


def _is_pack(name: str) -> bool:
    try:
        return bool(read_pack(Path(name)).name)
    except DatabaseError:
        return False


def import_files(options: argparse.Namespace) -> None:
    """Add the rows of exported files. All files are read first, so that a broken one changes nothing."""
    if options.pack:
        import_packs(options.database, options.files, options.json)
        return
    files = [from_lines(_lines(name), name) for name in options.files]
    with CostDatabase(options.database) as database:
        every = {name: [row for rows in files for row in rows[name]] for name in schema.CONTENT}
        _merge_all(database, every, options.json)


def merge_databases(options: argparse.Namespace) -> None:
    """Add the rows of other databases."""
    every: dict[str, list[dict[str, object]]] = {name: [] for name in schema.CONTENT}
    for other in options.others:
        with _existing(other, read_only=True) as database:
            for name, rows in contents(database).items():
                every[name] += rows
    with CostDatabase(options.database) as database:
        _merge_all(database, every, options.json)


def _merge_all(database: CostDatabase, rows: dict[str, list[dict[str, object]]], in_json: bool) -> None:
    merged = merge(database, rows)
    if in_json:
        print_json(
            {"into": database.name, "merged": [{**asdict(each), "kept": each.kept} for each in merged]}
        )
        return
    console = Output()
    console.print(report.merged_table(merged))
    console.say(f"into {database.name}")


def diff(options: argparse.Namespace) -> None:
    """Print the costs that differ between two databases."""
    with (
        _existing(options.first, read_only=True) as first,
        _existing(options.second, read_only=True) as second,
    ):
        found = compare(first.costs(), second.costs(), options.more_than, options.by_key)
    if options.json:
        apart = [{**asdict(each), "ratio": each.ratio} for each in found.apart]
        print_json({**asdict(found), "apart": apart})
    else:
        Output().print(report.comparison_table(found, options.more_than))


def prune(options: argparse.Namespace) -> None:
    """Remove the rows that the options select."""
    chosen = (options.older_than, options.stale, options.old_versions, options.release, options.programs)
    if not any(chosen):
        raise UsageError("say what to remove: --older-than, --stale, --old-versions, --release or --programs")
    with _existing(options.database, read_only=options.dry_run) as database:
        what = _what_goes(options, database)
        rows = doomed(database, what)
        if not options.dry_run:
            remove(database, rows)
        programs = remove_kept(database, options.programs, what.before, options.dry_run)
    if options.json:
        sizes = {"costs": len(rows.costs), "quarantine": len(rows.quarantine), "facts": len(rows.facts)}
        print_json({"removed": not options.dry_run, **sizes, "programs": programs})
        return
    console = Output()
    console.print(report.doomed_line(rows, done=not options.dry_run), highlight=False)
    if programs:
        verb = "would remove" if options.dry_run else "removed"
        console.print(f"{verb} {counted(programs, 'kept program')}", highlight=False)


def _what_goes(options: argparse.Namespace, database: CostDatabase) -> Prune:
    here = available(Method()) if options.stale or options.old_versions else {}
    return Prune(
        before=time.time() - options.older_than * _DAY_SECONDS if options.older_than else None,
        fingerprints=stale(database.fingerprints(), here) if options.stale else frozenset(),
        versions={name: backend_version(name) for name in here} if options.old_versions else {},
        kinds=frozenset(options.release),
    )


def verify_sample(options: argparse.Namespace) -> None:
    """Measure a sample of the costs again, and print both."""
    with _existing(options.database, read_only=True) as database:
        costs = checkable(database, available(Method()))
        if not costs:
            raise CollageError(
                f"{database.name} has no costs that can be measured again here: "
                "db info --fingerprints shows those that it has"
            )
        with progress(options) as told:
            verified = verify(database, costs, options.sample, options.seed, told)
    if options.json:
        print_json({"verified": [{**asdict(one), "ratio": one.ratio} for one in verified], "of": len(costs)})
    else:
        Output().print(report.verified_table(verified, len(costs)))


def _existing(where: str | None, read_only: bool) -> CostDatabase:
    return CostDatabase(where, read_only=read_only, create=False)


def _lines(name: str) -> list[str]:
    if name != STANDARD:
        return text_in(name, _EXPORT).splitlines()
    try:
        return sys.stdin.read().splitlines()
    except UnicodeDecodeError as error:
        raise DatabaseError(f"standard input is not {_EXPORT}: it is not text") from error
