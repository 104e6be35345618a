"""The fingerprint of a price: everything besides the kernel itself that can change the answer, as text.

One line for each circumstance, ``name: value``, so that a person can read why two prices differ.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import tvm
from tvm.target import Target

from .. import runtime
from ..backends.registry import every, get
from ..machine.caches import reported
from ..runtime.libraries import own_libraries
from ..target import host_target
from .method import Method

_MAKERS = ("backends", "build.py", "cost", "passes", "reference", "runtime", "schedule")
"""The parts of this package that decide what a kernel is, how it is checked and how it is timed."""

_BYSTANDERS = (
    "arithmetic.py", "bounds.py", "database.py", "fingerprint.py", "last_level.py", "locked.py", "machine.py",
    "shapes.py", "storage", "verify.py", "windows.py", "work.py",
)  # fmt: skip
"""The parts of ``cost`` that no measurement hangs on: formulas, and keeping what was measured."""

_VERSIONS = ("version", "tvm", "makers", "method")
"""Circumstances that never come back once something newer is installed."""

_TUNERS = ("DNNL_", "GOMP_", "OMP_", "ONEDNN_", "OPENBLAS_", "TVM_BIND_THREADS", "TVM_NUM_THREADS")
"""Environment variables that begin so change how libraries run."""


def price_fingerprint(backend: str, target: Target, method: Method) -> str:
    """The circumstances of a price that is measured in this process."""
    parts = {
        "backend": backend,
        "version": get(backend).fingerprint(),
        "tvm": tvm.__version__,
        "makers": _makers(),
        "target": str(target),
        "threads": str(runtime.num_threads()),
        "method": str(method),
        **machine(),
        "environment": " ".join(f"{name}={value}" for name, value in _environment().items()),
    }
    return "\n".join(f"{name}: {value}" for name, value in parts.items() if value)


def backend_version(backend: str) -> str:
    """What quarantine entries hang on: another version of a library, or of our code that makes its kernels or judges
    them, may do what this one cannot.
    """
    return f"{get(backend).fingerprint()}, makers {_makers()}"


def machine() -> dict[str, str]:
    """What this machine is, by circumstance."""
    said = reported()
    caches = f"L2 {said.l2_bytes // runtime.num_threads() >> 10} KiB, L3 {said.l3_bytes >> 10} KiB"
    return {"machine": f"{_processor()}, {os.cpu_count()} cores, {caches}", "system": _system()}


def parts(fingerprint: str) -> dict[str, str]:
    """The circumstances in a fingerprint's text, by name."""
    lines = (line.partition(": ") for line in fingerprint.splitlines())
    return {name: value for name, _, value in lines}


def differences(here: str, there: str) -> dict[str, tuple[str, str]]:
    """The circumstances in which two fingerprints differ; empty for one that is missing."""
    ours, theirs = parts(here), parts(there)
    names = dict.fromkeys([*ours, *theirs])
    pairs = {name: (ours.get(name, ""), theirs.get(name, "")) for name in names}
    return {name: (one, other) for name, (one, other) in pairs.items() if one != other}


def available(method: Method) -> dict[str, str]:
    """The fingerprint of each backend that can run here, in this process, for the machine's own target."""
    backends = [name for name, backend in every().items() if backend.why_unavailable() is None]
    return {name: price_fingerprint(name, host_target(), method) for name in backends}


def stale(texts: Mapping[str, str], here: Mapping[str, str]) -> frozenset[str]:
    """Of the fingerprints ``texts`` by digest, those that this machine has made once and makes no longer.

    ``here``: what each backend's is now. Another number of threads or another target may be asked for again;
    another version of something is gone. What other machines have made is theirs.
    """
    now = {name: parts(text) for name, text in here.items()}
    return frozenset(digest for digest, text in texts.items() if _is_stale(parts(text), now))


def _is_stale(there: Mapping[str, str], now: Mapping[str, Mapping[str, str]]) -> bool:
    ours = now.get(there.get("backend", ""))
    if ours is None or any(ours[name] != there.get(name) for name in ("machine", "system")):
        return False
    return any(ours[name] != there.get(name) for name in _VERSIONS)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_TUNERS)}


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


@cache
def _processor() -> str:
    """The model of the processor, as the system names it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


@cache
def _makers() -> str:
    """A digest of our own code, Python and native, that makes kernels: a changed schedule is another kernel."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    bystanders = [package / "cost" / name for name in _BYSTANDERS]
    for path in sorted(path for part in _MAKERS for path in _code(package / part)):
        if not any(path.is_relative_to(other) for other in bystanders):
            digest.update(path.read_bytes())
    for path in own_libraries():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _code(part: Path) -> list[Path]:
    """Python files in ``part``, or ``part`` itself."""
    return [part] if part.is_file() else list(part.rglob("*.py"))
