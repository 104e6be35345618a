"""The fingerprint of a cost: everything besides the kernel itself that can change it.

Each part that generates or measures kernels declares a version, which is raised when it generates something else. Tests
compare digests of what is generated (tests/unit/test_versions.py). So a changed kernel makes costs stale, and a changed
docstring does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import tvm
from tvm.target import Target

from .. import runtime
from ..backends.registry import every, get, why_not_for, why_unavailable
from ..graph.extract import EXTRACTION_VERSION
from ..machine.device import device, driver_version
from ..machine.fingerprint import family, fields_of, machine, text_of
from ..runtime import libraries
from ..runtime.vendors import VENDORS
from ..schedule import SCHEDULE_VERSION
from ..schedule.gpu import GPU_SCHEDULE_VERSION
from ..target import host_target, is_cuda
from .method import METHOD_VERSION, Method

_NEWER = ("version", "tvm", "made by", "method")
"""Fields for which an old value does not come back after an update."""

_SETTINGS = ("DNNL_", "GOMP_", "OMP_", "ONEDNN_", "OPENBLAS_", "TVM_BIND_THREADS", "TVM_NUM_THREADS")
"""Prefixes of environment variables that change how libraries run on a CPU."""

_CUDA_SETTINGS = ("CUBLAS", "CUDNN_", "NVIDIA_TF32_OVERRIDE", "TVM_CUDA_")
"""Those that change how libraries run on a CUDA device."""


def cost_fingerprint(backend: str, target: Target, method: Method) -> str:
    """The fingerprint of a cost that is measured in this process."""
    fields = {
        "backend": backend,
        "version": get(backend).fingerprint(),
        "tvm": tvm.__version__,
        "made by": made_by(backend),
        "target": str(target),
        **_place(target, f"{METHOD_VERSION} {method}"),
        "environment": " ".join(f"{name}={value}" for name, value in _environment(target).items()),
    }
    return text_of(fields)


def _place(target: Target, method: str) -> dict[str, str]:
    """The fields that describe where and how kernels for ``target`` run in this process, on its CPU or its CUDA
    device.
    """
    if is_cuda(target):
        return {
            "schedules": str(GPU_SCHEDULE_VERSION),
            "method": method,
            "machine": str(device()),
            "system": f"driver {driver_version()}",
        }
    return {"threads": str(runtime.num_threads()), "method": method, **machine()}


def made_by(backend: str) -> str:
    """The declared versions of what makes a kernel of ``backend`` and runs it: extraction, its rules and code
    generator, the thread pool and the loops that time, and the schedules of TVM or our native library.
    """
    found = get(backend)
    versions: dict[str, object] = {
        "extraction": EXTRACTION_VERSION,
        "backend": found.version,
        "runtime": libraries.version("runtime"),
    }
    if found.codegen is None:
        versions["schedules"] = SCHEDULE_VERSION
    for name in sorted(({backend} & VENDORS.keys()) | found.libraries):
        if runtime.why_unavailable(name) is None:
            versions["library"] = libraries.version(name)
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def backend_version(backend: str) -> str:
    """The version that a quarantine entry holds for.

    Another version of the library, or of our code that builds or checks its kernels, may make a kernel that works.
    """
    return f"{get(backend).fingerprint()}, {made_by(backend)}, method {METHOD_VERSION}"


def of_several(tvm_fingerprint: str, versions: Mapping[str, str]) -> str:
    """The fingerprint of measurements of kernels of several backends together, such as the time of a program.

    It is that of TVM's costs, and the version of every backend (:func:`backend_version`) that takes part.
    """
    lines = "; ".join(f"{name} {versions[name]}" for name in sorted(versions))
    return f"{tvm_fingerprint}\nversions: {lines}"


def of_family(fingerprint: str) -> str:
    """The fingerprint of a cost here, for all machines with a processor of this family: packs of costs have it."""
    return text_of({**fields_of(fingerprint), **family()})


def available(method: Method) -> dict[str, str]:
    """The fingerprint of each backend that can run in this process, for the host's target."""
    target = host_target()
    backends = [
        name
        for name, backend in every().items()
        if why_not_for(backend, target) is None and why_unavailable(backend) is None
    ]
    return {name: cost_fingerprint(name, target, method) for name in backends}


def stale(texts: Mapping[str, str], here: Mapping[str, str]) -> frozenset[str]:
    """The digests of the fingerprints in ``texts`` (by digest) that were of this machine and do not hold any more.

    ``here``: the fingerprint of each backend now. Another number of threads, target or percentile may be used again, so
    only other versions count. Fingerprints of other machines are never stale.
    """
    now = {name: fields_of(text) for name, text in here.items()}
    return frozenset(digest for digest, text in texts.items() if _is_stale(fields_of(text), now))


def _is_stale(there: Mapping[str, str], now: Mapping[str, Mapping[str, str]]) -> bool:
    ours = now.get(there.get("backend", ""))
    if ours is None or any(ours[name] != there.get(name) for name in ("machine", "system")):
        return False
    return any(ours.get(name) != there.get(name) for name in _NEWER if name != "method") or (
        there.get("method") not in (ours.get("method"), _now(there.get("method", "")))
    )


_PERCENTILE = re.compile(r"percentile=([\d.]+)")


def _now(method: str) -> str | None:
    """How kernels are timed now for the percentile that a fingerprint's ``method`` names; None: it names none."""
    found = _PERCENTILE.search(method)
    if found is None or not 0 < float(found[1]) < 100:
        return None
    return f"{METHOD_VERSION} {Method.of(float(found[1]))}"


def _environment(target: Target) -> dict[str, str]:
    settings = _CUDA_SETTINGS if is_cuda(target) else _SETTINGS
    return {name: os.environ[name] for name in sorted(os.environ) if name.startswith(settings)}
