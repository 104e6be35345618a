"""The fingerprint of a cost: everything besides the kernel itself that can change the answer.

What generates and measures kernels declares a version each. A version is raised when what it generates changes: tests
compare digests of what is generated (tests/unit/test_versions.py), so that a docstring makes no cost stale and a
changed kernel does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import tvm
from tvm.target import Target

from .. import runtime
from ..backends.registry import every, get
from ..graph.extract import EXTRACTION_VERSION
from ..machine.fingerprint import fields_of, machine, text_of
from ..schedule import SCHEDULE_VERSION
from ..target import host_target
from .method import METHOD_VERSION, Method

_NEWER = ("version", "tvm", "made by", "method")
"""Fields whose old values never come back once something newer is installed."""

_SETTINGS = ("DNNL_", "GOMP_", "OMP_", "ONEDNN_", "OPENBLAS_", "TVM_BIND_THREADS", "TVM_NUM_THREADS")
"""Environment variables that begin so change how libraries run."""


def cost_fingerprint(backend: str, target: Target, method: Method) -> str:
    """The fingerprint of a cost that is measured in this process."""
    fields = {
        "backend": backend,
        "version": get(backend).fingerprint(),
        "tvm": tvm.__version__,
        "made by": made_by(backend),
        "target": str(target),
        "threads": str(runtime.num_threads()),
        "method": f"{METHOD_VERSION} {method}",
        **machine(),
        "environment": " ".join(f"{name}={value}" for name, value in _environment().items()),
    }
    return text_of(fields)


def made_by(backend: str) -> str:
    """The declared versions of what makes a kernel of ``backend``: extraction, its rules and code generator, and for
    TVM the schedules.
    """
    found = get(backend)
    versions = {"extraction": EXTRACTION_VERSION, "backend": found.version}
    if found.codegen is None:
        versions["schedules"] = SCHEDULE_VERSION
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def backend_version(backend: str) -> str:
    """What quarantine entries hang on: another version of a library, or of our code that makes its kernels or checks
    them, may do what this one cannot.
    """
    return f"{get(backend).fingerprint()}, {made_by(backend)}, method {METHOD_VERSION}"


def available(method: Method) -> dict[str, str]:
    """The fingerprint of each backend that can run here, in this process, for the machine's own target."""
    backends = [name for name, backend in every().items() if backend.why_unavailable() is None]
    return {name: cost_fingerprint(name, host_target(), method) for name in backends}


def stale(texts: Mapping[str, str], here: Mapping[str, str]) -> frozenset[str]:
    """Of the fingerprints ``texts`` by digest, those that this machine has made once and makes no longer.

    ``here``: what each backend's is now. Another number of threads or another target may be asked for again;
    another version of something is gone. What other machines have made is theirs.
    """
    now = {name: fields_of(text) for name, text in here.items()}
    return frozenset(digest for digest, text in texts.items() if _is_stale(fields_of(text), now))


def _is_stale(there: Mapping[str, str], now: Mapping[str, Mapping[str, str]]) -> bool:
    ours = now.get(there.get("backend", ""))
    if ours is None or any(ours[name] != there.get(name) for name in ("machine", "system")):
        return False
    return any(ours.get(name) != there.get(name) for name in _NEWER)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_SETTINGS)}
