"""Mistakes in a command line that can be found without files, TVM or the machine."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from ..cost.method import MEDIAN
from ..defaults import GPU_PRECISIONS
from .exit_codes import UsageError
from .files import check_overwritten
from .options import sizes_of

_NEEDS = {
    "breed": ("--refine", "which compares whole programs"),
    "tolerance": ("--verify", "which compares results"),
    "rpc_key": ("--rpc", "whose servers have the key"),
}
"""Options, by their names here, that do nothing without another."""

_NEED_COSTS = ("search_layouts", "tune", "refine", "breed", "remeasure", "rpc", "memory_limit")
"""Options that do nothing where nothing is measured, by their names here."""

_NOT_DRY = {
    "output": "-o",
    "bundle": "--bundle",
    "report": "--report",
    "verify": "--verify",
    "no_measure": "--no-measure",
    "remeasure": "--remeasure",
    "rpc": "--rpc",
    "tune": "--tune",
    "refine": "--refine",
    "memory_limit": "--memory-limit",
    "devices": "--device",
    "recompile": "--recompile",
}
"""Options that a dry run could not take into account."""

_MAKES_NO_PROGRAM = ("explain", "compare")
"""Commands that have the options of a compile, and always run the search."""

_ON_CPUS = {"profile": "it times kernels one by one", "bisect": "it leaves kernels to TVM one by one"}
"""Commands that need a program on a CPU, and what they do with it."""


def check_options(options: Namespace) -> None:
    """Raises UsageError for options of a command that contradict each other, or that lack one that they need."""
    given = {name: value for name, value in vars(options).items() if value is not None and value is not False}
    for name, (other, which) in _NEEDS.items():
        if name in given and _named(other) in options and _named(other) not in given:
            raise UsageError(f"{_option(name)} needs {other}, {which}")
    for name in _NEED_COSTS if "no_measure" in given else ():
        if name in given:
            raise UsageError(_without_costs(_option(name)))
    if "no_measure" in given and options.percentile != MEDIAN:
        raise UsageError(_without_costs("--percentile"))
    for name, option in _NOT_DRY.items() if "dry_run" in given else ():
        if name in given:
            raise UsageError(
                f"{option} and --dry-run: a dry run measures nothing and builds nothing: leave one of the two out"
            )
    if options.command in _MAKES_NO_PROGRAM and "recompile" in given:
        raise UsageError(f"--recompile is for programs, and {options.command} makes none: leave it out")
    if "locked" in given and "remeasure" in given:
        raise UsageError(
            "--locked measures nothing, and --remeasure measures again: leave one of the two out"
        )
    if "memory_limit" in given and "refine" in given:
        raise UsageError(
            "--memory-limit is for the plan of the search, and --refine compares others: leave one of the two out"
        )
    if "rpc" in given and "target" in given:
        raise UsageError("--target and --rpc: the target is that of the servers: leave --target out")
    if "refine" in given and options.percentile != MEDIAN:
        raise UsageError(
            "--refine times kernels in running programs by medians, and --percentile asks for others: "
            "leave one of the two out"
        )
    _check_device(options, given)
    if "precision" in options and options.precision in GPU_PRECISIONS and not _may_be_gpu(options):
        raise UsageError(f"--precision {options.precision} is for GPUs: add --target cuda, or take bf16")
    if "shape" in options:
        sizes_of(options)
    if options.command != "examples":  # its --inputs are written
        check_overwritten(options)


def _check_device(options: Namespace, given: Mapping[str, Any]) -> None:
    """Raises UsageError for what is possible only on a CPU, or only on one device."""
    is_gpu = "target" in given and options.target.kind.name == "cuda"
    if is_gpu and options.command in _ON_CPUS:
        raise UsageError(
            f"{options.command} is for programs on CPUs, since {_ON_CPUS[options.command]}: leave --target cuda out"
        )
    if is_gpu and "bundle" in given:
        raise UsageError("--bundle is for programs on CPUs: leave --target cuda out, or write a file with -o")
    if "bundle" in given and "devices" in given:
        raise UsageError(
            "--bundle is for programs on one device: leave --device out, or write a file with -o"
        )


def _may_be_gpu(options: Namespace) -> bool:
    """Whether the target is a GPU, or that of servers, whose target is not known yet."""
    has_servers = getattr(options, "rpc", None) is not None
    return has_servers or (options.target is not None and options.target.kind.name == "cuda")


def _without_costs(option: str) -> str:
    return f"{option} needs costs, and --no-measure has none: leave one of the two out"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _named(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
