"""Collage for TVM Unity: which operators become one kernel, and which toolchain makes it, by measured cost.

Names are imported on first use, so that ``import unity_collage.runtime`` in a process that only runs
an exported model loads nothing of the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import backends, passes
    from .backends.base import Backend
    from .compiler import compile
    from .database.costs import CostDatabase
    from .errors import CollageError
    from .feedback.settings import Refinement
    from .frontend.models import import_model
    from .inspection.dry_run import dry_run
    from .inspection.plan_diff import diff
    from .lowering.link_external import link_external
    from .pipeline import collage, partition_for, partition_for_onednn
    from .program import Program, load
    from .report.show import show
    from .runtime import flush_denormals, num_threads, register_custom_ops, set_num_threads
    from .specs import PartitionSpec
    from .target import host_target

__version__ = "0.1.0"

_HOME = {
    "Backend": "backends.base",
    "CollageError": "errors",
    "CostDatabase": "database.costs",
    "PartitionSpec": "specs",
    "Program": "program",
    "Refinement": "feedback.settings",
    "collage": "pipeline",
    "compile": "compiler",
    "diff": "inspection.plan_diff",
    "dry_run": "inspection.dry_run",
    "host_target": "target",
    "import_model": "frontend.models",
    "link_external": "lowering.link_external",
    "load": "program",
    "num_threads": "runtime",
    "partition_for": "pipeline",
    "partition_for_onednn": "pipeline",
    "register_custom_ops": "runtime",
    "set_num_threads": "runtime",
    "flush_denormals": "runtime",
    "show": "report.show",
}

__all__ = [
    "Backend",
    "CollageError",
    "CostDatabase",
    "PartitionSpec",
    "Program",
    "Refinement",
    "backends",
    "collage",
    "compile",
    "diff",
    "dry_run",
    "flush_denormals",
    "host_target",
    "import_model",
    "link_external",
    "load",
    "num_threads",
    "partition_for",
    "partition_for_onednn",
    "passes",
    "register_custom_ops",
    "set_num_threads",
    "show",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in ("backends", "passes"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
