"""The results of a benchmark in a JSON file: where they were measured, and a row for each subject.

A run that was ended goes on where it stopped: rows that the file has are not measured again. All rows of a file are of
one machine, with the same versions and options, so that they can be compared. Each row has its date and commit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import unity_collage as uc
from unity_collage.errors import first_line
from unity_collage.machine.fingerprint import machine

Row = dict[str, Any]

_PACKAGES = (
    "unity_collage", "apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "onednn-cpu-gomp", "scipy-openblas32",
    "onnxruntime", "openvino", "torch",
)  # fmt: skip
_NOT_OF_THE_RUN = ("json", "models", "networks", "only", "rewrites", "database")
"""Options that say what is measured, or where something is stored: other values leave a row as it is."""


class ResultFile:
    """The rows of a benchmark, each stored as soon as it is known; without a ``path`` they are only in memory."""

    def __init__(self, path: str | Path | None, options: argparse.Namespace):
        """``options``: those of the command line. Ends the process if the file has results of another run."""
        self._path = None if path is None else Path(path)
        self.run = run_of(options)
        """Where and how the rows are measured."""
        self.rows: dict[str, Row] = {}
        """Results by the name of what was measured."""
        if self._path is not None and self._path.exists():
            known = json.loads(self._path.read_text())
            if reason := why_another_run(known.get("run"), self.run):
                raise SystemExit(f"{path} has results of another run ({reason}): name another file")
            self.rows = known["rows"]

    def fill(self, names: Iterable[str], measured: Callable[[str], Row]) -> bool:
        """Measure and store the rows that are missing; whether none failed.

        A failure is printed, and the other rows are measured all the same. Its row is measured by the next run.
        """
        failed: list[str] = []
        for name in names:
            if name in self.rows:
                continue
            try:
                row = measured(name)
            except Exception as error:  # a compiler or a foreign runtime failed
                failed.append(name)
                print(f"{name} failed: {why_failed(error)}", file=sys.stderr, flush=True)
                continue
            self._store(name, row)
        return not failed

    def _store(self, name: str, row: Row) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.rows[name] = {"date": now, "commit": _commit(), **row}
        print(f"{name}: {row}", flush=True)
        if self._path is not None:
            draft = self._path.with_name(f".{self._path.name}.draft")
            draft.write_text(json.dumps({"run": self.run, "rows": self.rows}, indent=1) + "\n")
            draft.replace(self._path)


def run_of(options: argparse.Namespace) -> dict[str, Any]:
    """The machine, its threads and target, the versions of libraries, and the options that change a row."""
    asked = {name: value for name, value in vars(options).items() if name not in _NOT_OF_THE_RUN}
    return {
        **machine(),
        "threads": getattr(options, "threads", None) or uc.num_threads(),
        "target": str(uc.host_target()),
        "versions": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "options": json.loads(json.dumps(asked, default=str)),
    }


def why_another_run(known: Mapping[str, Any] | None, here: Mapping[str, Any]) -> str | None:
    """Why rows of the run ``known`` cannot be compared with those of ``here``, or None when they can."""
    if known is None:
        return "it does not say which"
    for name in {**known, **here}:
        if known.get(name) != here.get(name):
            return f"{name}: {known.get(name)}, and here {here.get(name)}"
    return None


def why_failed(error: Exception) -> str:
    """The reason of a failed row in one line; for a command the last line that it wrote."""
    written = getattr(error, "stderr", None)
    text = written.decode(errors="replace") if isinstance(written, bytes) else written
    return text.strip().splitlines()[-1] if text and text.strip() else first_line(error)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    """The commit of this checkout; empty where there is none."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
