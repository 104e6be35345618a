"""The backend suite of the onnx package with each backend forced: whether any of them loses a case.

    python benchmarks/onnx_forced.py [BACKEND ...] [--only REGEX] [--json FILE]

Needs onnx==1.23.2. Only cases that pass by default (results/onnx_backend.json) are run. Nothing is measured: the
backend takes all operators that it can by rule, and TVM the others. So kernels are not checked before they are used, as
measured ones are. The file has, for each backend, how many cases have kernels of it, how many cases pass, and the
others with their reasons. The exit code is 1 if there are others.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx
from case_runner import CaseRunner
from onnx_backend import SECONDS, VERSION
from onnx_suite.cases import Case, cases
from onnx_suite.verdict import NEARER, PASSED, why_wrong

RESULTS = Path(__file__).parent / "results"
BACKENDS = ("onednn", "openblas", "kernels", "openvino", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Found:
    """How a case with a forced backend ended."""

    has_kernels: bool
    reason: str = ""
    """Why it does not pass, or empty."""


@contextmanager
def _judge(backend: str) -> Iterator[Callable[[str], Found]]:
    import unity_collage as uc
    from unity_collage.errors import last_line

    def judged(name: str) -> Found:
        case, has_kernels = _cases()[name], False
        try:
            program = uc.compile(case.model(), backends=[backend, "tvm"], measure=False)
            plans = (program.plan or {}).values()
            has_kernels = any(kernel.backend == backend for plan in plans for kernel in plan.kernels)
            reason = why_wrong(program, case)
        except Exception as error:
            reason = f"{type(error).__name__}: {last_line(error)}"[:300]
        return Found(has_kernels, "" if reason in (None, NEARER) else str(reason))

    yield judged


def _crashed(_name: str, reason: str) -> Found:
    return Found(True, reason)


@cache
def _cases() -> dict[str, Case]:
    return {case.name: case for case in cases()}


def main() -> None:
    """Run the cases with each backend, print those that are lost, and keep the counts."""
    parser = argparse.ArgumentParser(
        description="The backend suite of the onnx package with forced backends."
    )
    parser.add_argument("backends", nargs="*", default=BACKENDS)
    parser.add_argument("--only", default="", help="a regular expression that the case's name contains")
    parser.add_argument(
        "--json", type=Path, default=RESULTS / "onnx_forced.json", help="where counts are kept"
    )
    options = parser.parse_args()
    if onnx.__version__ != VERSION:
        sys.exit(f"the suite is that of onnx {VERSION}: pip install onnx=={VERSION}")
    by_default = json.loads((RESULTS / "onnx_backend.json").read_text())["cases"]
    passing = [name for name, found in by_default.items() if found["outcome"] == PASSED]
    asked = [name for name in passing if name in _cases() and re.search(options.only, name)]
    for backend in options.backends:
        found = _with(backend, asked)
        kept = json.loads(options.json.read_text()) if options.json.exists() else {}
        kept[backend] = found
        options.json.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(
            f"{backend}: {found['passed']} of {found['cases']} pass, {found['with_kernels']} have its kernels"
        )
    sys.exit(any(found["lost"] for found in json.loads(options.json.read_text()).values()))


def _with(backend: str, asked: list[str]) -> dict[str, object]:
    found: dict[str, Found] = {}
    runner = CaseRunner(_judge, _crashed, SECONDS, backend)
    try:
        for number, name in enumerate(asked, 1):
            found[name] = runner.run(name)
            if found[name].reason:
                print(f"{backend} {number}/{len(asked)} {name}: {found[name].reason}", flush=True)
    finally:
        runner.close()
    lost = {name: each.reason for name, each in found.items() if each.reason}
    with_kernels = sum(each.has_kernels for each in found.values())
    return {"cases": len(found), "passed": len(found) - len(lost), "with_kernels": with_kernels, "lost": lost}


if __name__ == "__main__":
    main()
