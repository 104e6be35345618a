"""The newest known releases of the libraries that backends use. No network is used.

``pip index versions NAME`` shows the current releases. Change ``KNOWN_ON`` and the versions together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

KNOWN_ON = "2026-11-26"
"""The day on which the versions below were looked up."""


@dataclass(frozen=True, slots=True)
class Release:
    """The newest release of a package that can be installed with pip."""

    distribution: str
    version: str
    remark: str = ""
    """Remarks about newer releases."""


NEWEST = {
    "onednn": Release(
        "onednn-cpu-gomp",
        "2023.2.0",
        "the package onednn has 2026.1.0, a SYCL build whose CPU calls cost 10-50 us more",
    ),
    "openblas": Release("scipy-openblas32", "0.3.34.481.3"),
    "cudnn": Release("nvidia-cudnn-cu13", "9.28.1.4"),
    "cublas": Release("nvidia-cublas", "13.10.0.20"),
    "onnxruntime": Release("onnxruntime", "1.32.0"),
    "openvino": Release("openvino", "2026.4.1"),
    "mnn": Release("mnn", "3.6.1"),
    "tvm": Release("apache-tvm", "0.27.0.post1"),
}
"""By backend; our own kernels use no library."""


def library_text(backend: str) -> str:
    """The package of a backend with its installed version and the newest known one; empty if it uses none."""
    newest = NEWEST.get(backend)
    if newest is None:
        return ""
    text = f"{newest.distribution} {_compared(_installed(newest.distribution), newest.version)}"
    return f"{text}; {newest.remark}" if newest.remark else text


def _compared(installed: str | None, newest: str) -> str:
    if installed is None:
        return f"is not installed, newest {newest}"
    if installed == newest:
        return f"{installed}, the newest"
    if _numbers(installed) > _numbers(newest):
        return f"{installed}, newer than {newest}, the newest known"
    return f"{installed}, newest {newest}"


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version, which compare as releases do."""
    return tuple(map(int, re.findall(r"\d+", text)))
