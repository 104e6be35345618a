"""Whether a change of the code has left every plan of the zoo as it was, kernel by kernel.

Before the change, with a database of costs (measured at the first run)::

    python benchmarks/same_plans.py record costs.db plans.json

and after it::

    python benchmarks/same_plans.py check costs.db plans.json --json benchmarks/results/same_plans.json

``check`` copies the database and relabels the fingerprints in the copy to those of this version of the code: costs
stay, though whatever made them has another version now. Each model is then compiled from that copy, locked, so that
nothing is measured; backends, labels, bindings, threads and seconds of every kernel have to be the recorded ones.
Only what is meant to change kernels may be left out of this.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import zoo_models
from sqlalchemy import RowMapping, select, update

import unity_collage as uc
from unity_collage.cost.fingerprint import available, backend_version, of_several
from unity_collage.cost.method import Method
from unity_collage.database import schema
from unity_collage.database.costs import CostDatabase
from unity_collage.database.rows import digest
from unity_collage.machine.fingerprint import fields_of
from unity_collage.scratch import Scratch

_TOGETHER = "together "
"""The prefix of the names of costs that were measured in turns."""

_VERSIONS = "versions"
"""The field of a fingerprint that holds for several backends together."""


def main() -> int:
    """Returns 1 where a plan differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "check"))
    parser.add_argument("database", type=Path, help="costs, in SQLite")
    parser.add_argument("plans", type=Path, help="the recorded plans")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="default: the zoo, or what was recorded")
    parser.add_argument("--json", type=Path, help="where the result of a check is kept")
    options = parser.parse_args()
    if options.action == "record":
        return _record(options)
    for path in (options.database, options.plans):
        if not path.is_file():
            sys.exit(f"there is no file {path}: record it first")
    with Scratch("same-plans") as folder:
        copy = Path(folder) / "costs.db"
        _copied(options.database, copy)
        return _check(options, copy)


def _record(options: argparse.Namespace) -> int:
    plans: dict[str, Any] = {}
    for name in options.models or zoo_models.names():
        model = zoo_models.load(name)
        uc.compile(model, database=options.database, packs=False)
        plans[name] = _plans(uc.compile(model, database=options.database, locked=True))
        options.plans.write_text(json.dumps(plans, indent=1) + "\n")
        print(f"{name}: {sum(len(kernels) for kernels in plans[name].values())} kernels", flush=True)
    return 0


def _check(options: argparse.Namespace, database: Path) -> int:
    before = json.loads(options.plans.read_text())
    if missing := set(options.models or ()) - set(before):
        sys.exit(f"{options.plans} has no plan of {', '.join(sorted(missing))}: record it first")
    rows: dict[str, Any] = {}
    for name in options.models or before:
        now = _plans(uc.compile(zoo_models.load(name), database=database, locked=True))
        different = list(_differences(before[name], now))
        kernels = sum(len(found) for found in now.values())
        rows[name] = {"kernels": kernels, "different": different}
        verdict = "the same" if not different else f"{len(different)} differ, such as {different[0]}"
        print(f"{name:24s} {kernels:5d} kernels: {verdict}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["different"] for row in rows.values()))


def _plans(program: uc.Program) -> dict[str, list[dict[str, Any]]]:
    """The kernels of each function, in the order in which they run."""
    return {
        name: [
            {
                "backend": kernel.backend,
                "label": kernel.label,
                "bindings": list(kernel.bindings),
                "threads": kernel.threads,
                "seconds": kernel.seconds,
            }
            for kernel in plan.kernels
        ]
        for name, plan in (program.plan or {}).items()
    }


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[str]:
    for function in dict.fromkeys([*before, *now]):
        old, new = before.get(function, []), now.get(function, [])
        if len(old) != len(new):
            yield f"{function}: {len(new)} kernels in place of {len(old)}"
            continue
        for number, (was, is_) in enumerate(zip(old, new, strict=True)):
            fields = [f"{key} {was.get(key)} -> {is_[key]}" for key in is_ if was.get(key) != is_[key]]
            if fields:
                yield f"{function} kernel {number}: {'; '.join(fields)}"


def _copied(database: Path, copy: Path) -> None:
    """``database`` with the fingerprints that this version of the code has here."""
    for suffix in ("", "-wal", "-shm"):
        if Path(f"{database}{suffix}").exists():
            shutil.copy(f"{database}{suffix}", f"{copy}{suffix}")
    here = available(Method())
    with CostDatabase(copy) as opened:
        facts, of_kernels = _relabelled(opened, here)
        for fact in facts:
            value = json.loads(fact["value"])
            name = _together(value) if fact["name"].startswith(_TOGETHER) else fact["name"]
            for fingerprint in of_kernels:
                opened.keep_fact(name, fingerprint, value)


def _relabelled(opened: CostDatabase, here: Mapping[str, str]) -> tuple[Sequence[RowMapping], list[str]]:
    """Give the rows of each backend the fingerprint that is in ``here``.

    The result is the facts about kernels of several backends, and all fingerprints that such a fact can have: nothing
    in the fact says which backends took part.
    """
    others = sorted(set(here) - {"tvm"})
    subsets = chain.from_iterable(combinations(others, size) for size in range(len(others) + 1))
    of_kernels = [
        of_several(here["tvm"], {name: backend_version(name) for name in ("tvm", *subset)})
        for subset in subsets
    ]
    with opened.writing() as connection:
        rows = connection.execute(select(schema.FINGERPRINTS)).mappings().all()
        of_tvm = [row["digest"] for row in rows if fields_of(row["text"]).get("backend") == "tvm"]
        facts = connection.execute(select(schema.FACTS).where(schema.FACTS.c.fingerprint.in_(of_tvm)))
        kept = facts.mappings().all()
        for row in _of_one_backend(rows, here):
            old, text = row["digest"], here[fields_of(row["text"])["backend"]]
            costs = update(schema.COSTS).where(schema.COSTS.c.fingerprint == old)
            connection.execute(costs.values(fingerprint=digest(text)))
            named = update(schema.FINGERPRINTS).where(schema.FINGERPRINTS.c.digest == old)
            connection.execute(named.values(digest=digest(text), text=text))
        for name in here:
            held = update(schema.QUARANTINE).where(schema.QUARANTINE.c.backend == name)
            connection.execute(held.values(version=backend_version(name)))
    return kept, of_kernels


def _of_one_backend(rows: Iterable[RowMapping], here: Mapping[str, str]) -> Iterator[RowMapping]:
    """The fingerprints of costs; ends the program if a backend has several, since their costs cannot be
    distinguished.
    """
    seen: set[str] = set()
    for row in rows:
        fields = fields_of(row["text"])
        backend = fields.get("backend", "")
        if backend not in here or _VERSIONS in fields:
            continue
        if backend in seen:
            sys.exit(
                f"the database has costs of {backend} of several machines or settings: record another one"
            )
        seen.add(backend)
        yield row


def _together(costs: Mapping[str, Any]) -> str:
    """The name under which costs that were measured in turns are kept, from their keys."""
    return f"{_TOGETHER}{digest(chr(10).join(sorted(costs)))}"


if __name__ == "__main__":
    sys.exit(main())
