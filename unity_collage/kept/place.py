"""Finds the program of a compile among those that are kept, and keeps a new one."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..database.answers import Answers, digest_now
from ..database.costs import CostDatabase
from ..errors import DatabaseError
from ..plan.encoding import decode, encode
from ..plan.explanation import Explanation
from ..plan.in_place import InPlace
from ..plan.plan import Plan
from ..program import Program
from ..program.loading import kept_program
from .asked import AskedOptions
from .models import digest_of_file
from .store import ProgramStore, Record, folder_beside
from .surroundings import surroundings

_FORMAT = 1
"""Raised when the format of kept programs or their records changes."""


@dataclass(frozen=True, slots=True)
class KeptPrograms:
    """Where the programs of compiles with equal options are kept, on this machine with this code."""

    store: ProgramStore
    about: str
    """The options and the fingerprint fields, as text."""

    def find(
        self,
        model: str,
        database: CostDatabase | None,
        folder: Path | None = None,
        is_to_go_on: bool = False,
    ) -> Program | None:
        """The kept program of a model, by its digest; None where it has to be compiled.

        ``database``: None if no database was used. ``folder``: that of the model's file. ``is_to_go_on``: whether the
        program of a compile that ran out of time for measuring does not count.
        """
        key = self._key(model)
        record = self.store.record(key)
        if record is None or (is_to_go_on and record.unfinished is not None):
            return None
        if not _holds(record, database, folder) or (file := self.store.opened(key, record)) is None:
            return None
        program = kept_program(file)
        program.kept_since = record.created
        known = record.in_place or {}
        program.plan = {
            name: _of_before(plan, known.get(name), record.profiled)
            for name, plan in (program.plan or {}).items()
        }
        if record.explanation is not None:
            program.explanation = {
                name: decode(Explanation, data) for name, data in record.explanation.items()
            }
        return program

    def keep(
        self,
        model: str,
        program: Program,
        answers: Answers,
        files: Mapping[str, str],
        is_budget_spent: bool = False,
    ) -> None:
        """Keep a program, unless a cost that it depends on is doubtful: then the next compile measures again.

        ``files``: digests of the files with weights that the model's file names.
        """
        if not answers.are_sure:
            return
        explained = program.explanation
        gaps = [plan.gap for plan in (program.plan or {}).values()]
        file = self.store.put(
            self._key(model),
            program.save,
            questions=answers.questions(),
            answers=answers.digest,
            files=files,
            unfinished=max(gaps, default=0.0) if is_budget_spent else None,
            explanation=None
            if explained is None
            else {name: encode(each) for name, each in explained.items()},
        )
        if file is not None:
            program.let_copy(file)

    def add_times(self, model: str, program: Program) -> None:
        """Keep the times in the plans of a kept program of a model, given by its digest, which was profiled now."""
        plans = {name: plan.in_place for name, plan in (program.plan or {}).items()}
        times = {name: encode(each) for name, each in plans.items() if each is not None}
        if program.saved_file is not None and times:
            self.store.add(self._key(model), program.saved_file, in_place=times, profiled=time.time())

    def _key(self, model: str) -> str:
        return hashlib.sha256(f"{self.about}\n{model}".encode()).hexdigest()[:32]


def place_for(asked: AskedOptions, database: str | Path | None) -> KeptPrograms | None:
    """Where programs for these options are kept: next to this file of costs, by default that of the user.

    None where nothing is kept: the costs are on a server, or the options or the code cannot be told from others.
    """
    folder, options = folder_beside(database), asked.text()
    if folder is None or options is None:
        return None
    around = surroundings(asked.target)
    if around is None:
        return None
    about = {"format": _FORMAT, "options": options, "surroundings": around}
    return KeptPrograms(ProgramStore(folder), json.dumps(about, sort_keys=True))


def _holds(record: Record, database: CostDatabase | None, folder: Path | None) -> bool:
    """Whether the files of the model and the answers of the database are those of the record."""
    if any(folder is None or digest_of_file(folder / name) != known for name, known in record.files.items()):
        return False
    if not record.questions:
        return True
    try:
        return database is not None and digest_now(database, record.questions) == record.answers
    except (DatabaseError, KeyError, ValueError):
        return False


def _of_before(plan: Plan, in_place: Any, profiled: float) -> Plan:
    """A plan with the earlier comparison of programs marked as such, and with the known times of its kernels."""
    if plan.comparison is not None:
        plan = replace(plan, comparison=replace(plan.comparison, origin="database"))
    if in_place is None:
        return plan
    return plan.with_times(replace(decode(InPlace, in_place), since=profiled))
