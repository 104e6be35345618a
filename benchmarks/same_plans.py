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
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import zoo_models
from sqlalchemy import select, update

import unity_collage as uc
from unity_collage.backends.registry import every
from unity_collage.cost.fingerprint import available, backend_version
from unity_collage.cost.method import Method
from unity_collage.database import schema
from unity_collage.database.costs import CostDatabase
from unity_collage.database.rows import digest
from unity_collage.machine.fingerprint import fields_of

_TOGETHER = "together "
"""How the names of costs begin that were measured in turns: the versions of their backends are part of the name."""


def main() -> int:
    """Returns 1 where a plan differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "check"))
    parser.add_argument("database", type=Path, help="costs, in SQLite")
    parser.add_argument("plans", type=Path, help="the recorded plans")
    parser.add_argument("--models", nargs="+", default=list(zoo_models.names()), metavar="NAME")
    parser.add_argument("--json", type=Path, help="where the result of a check is kept")
    options = parser.parse_args()
    if options.action == "record":
        return _record(options)
    with TemporaryDirectory(prefix="collage-same-plans-") as folder:
        copy = Path(folder) / "costs.db"
        _copied(options.database, copy)
        return _check(options, copy)


def _record(options: argparse.Namespace) -> int:
    plans: dict[str, Any] = {}
    for name in options.models:
        model = zoo_models.load(name)
        uc.compile(model, database=options.database)
        plans[name] = _plans(uc.compile(model, database=options.database, locked=True))
        options.plans.write_text(json.dumps(plans, indent=1) + "\n")
        print(f"{name}: {sum(len(kernels) for kernels in plans[name].values())} kernels", flush=True)
    return 0


def _check(options: argparse.Namespace, database: Path) -> int:
    before = json.loads(options.plans.read_text())
    rows: dict[str, Any] = {}
    for name in options.models:
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
    with CostDatabase(copy) as opened, opened.writing() as connection:
        for row in connection.execute(select(schema.FINGERPRINTS)).mappings().all():
            backend = fields_of(row["text"]).get("backend")
            if backend is None or backend not in here:
                continue
            new = digest(here[backend])
            for table in (schema.COSTS, schema.FACTS):
                connection.execute(
                    update(table).where(table.c.fingerprint == row["digest"]).values(fingerprint=new)
                )
            connection.execute(
                update(schema.FINGERPRINTS)
                .where(schema.FINGERPRINTS.c.digest == row["digest"])
                .values(digest=new, text=here[backend])
            )
        for fact in connection.execute(select(schema.FACTS)).mappings().all():
            if fact["name"].startswith(_TOGETHER):
                renamed = _together(json.loads(fact["value"]))
                connection.execute(
                    update(schema.FACTS).where(schema.FACTS.c.name == fact["name"]).values(name=renamed)
                )
        for entry in every():
            if every()[entry].why_unavailable() is None:
                connection.execute(
                    update(schema.QUARANTINE)
                    .where(schema.QUARANTINE.c.backend == entry)
                    .values(version=backend_version(entry))
                )


def _together(costs: Mapping[str, Any]) -> str:
    """The name under which costs that were measured in turns are kept, from their keys."""
    backends = sorted({key.partition(":")[0] for key in costs})
    lines = [*(f"{name} {backend_version(name)}" for name in backends), *sorted(costs)]
    return f"{_TOGETHER}{digest(chr(10).join(lines))}"


if __name__ == "__main__":
    sys.exit(main())
