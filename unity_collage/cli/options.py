"""The options that commands share. TVM is not imported for them: ``settings`` turns them into objects."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ..cost.method import MEDIAN
from ..defaults import BUDGET_SECONDS, FLOAT32, PRECISIONS
from .exit_codes import UsageError
from .option_types import (
    BackendsAction,
    TargetsAction,
    budget,
    dimension,
    duration,
    percentile,
    positive,
    shape,
    size_in_bytes,
    target,
    threads,
    tracker,
)

RPC_KEY = "unity_collage"
"""The key that servers have at a tracker, unless another one is named."""


def add_options(
    command: argparse.ArgumentParser, model: bool = True, what: str = "the model, an .onnx, .pt2 or .pt file"
) -> None:
    """Add the options for the choice of kernels and the limits of measuring, and the ``model`` that they are for."""
    if model:
        command.add_argument("model", metavar="MODEL", help=what)
    add_model_options(command)
    _add_effort(command)
    command.add_argument(
        "--database",
        metavar="FILE|URL",
        help="the database of costs: a file, or postgresql://... (default: a file in the user's cache folder)",
    )
    command.add_argument(
        "--locked",
        action="store_true",
        help="measure nothing: a cost that is not in the database is an error",
    )
    command.add_argument(
        "--no-packs",
        action="store_true",
        help="take no costs from packs of this processor's family; everything that is not in the database is measured",
    )
    _add_remote(command)


def add_model_options(command: argparse.ArgumentParser) -> None:
    """Add the options on which the candidates of a model depend."""
    add_threads(command, argparse.SUPPRESS)  # the number may also stand before the command
    _add_sizes(command)
    _add_freedom(command)


def add_no_measure(command: argparse.ArgumentParser) -> None:
    """Add the option of a command that compiles to choose kernels by rule."""
    command.add_argument(
        "--no-measure",
        action="store_true",
        help="choose kernels by rule: each backend takes all that it can, in the order of --backends, and TVM the rest",
    )


def add_memory_limit(command: argparse.ArgumentParser) -> None:
    """Add the option of a command that compiles to keep the plan under a limit of memory."""
    command.add_argument(
        "--memory-limit",
        type=size_in_bytes,
        metavar="SIZE",
        help="a limit for weights, intermediates and results together, such as 200MB: every candidate is measured, and "
        "the fastest plan within the limit is searched; it is an error if none is found",
    )


def add_devices(command: argparse.ArgumentParser) -> None:
    """Add the option of a command that compiles to choose devices by cost."""
    command.add_argument(
        "--device",
        action="append",
        dest="devices",
        metavar="DEVICE",
        help="a device that values may be on, such as cpu:1, or the text of a target; given more than once, the search "
        "chooses among them by measured cost, copies included (docs/devices.md)",
    )


def add_threads(parser: argparse.ArgumentParser, default: Any = None) -> None:
    """Add the number of threads to the options of ``parser``."""
    parser.add_argument(
        "--threads",
        type=threads,
        metavar="N",
        default=default,
        help="the number of threads that kernels are measured and compiled for (default: a thread for each core that "
        "the process may use, within the quota of its control group)",
    )


def _add_sizes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--shape",
        type=shape,
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="fix the shape of an input, such as image=1,3,640,640, or the size of a dimension, such as batch=1; "
        "batch=1,8,32 and length=1..512 leave a dimension open and make plans for sizes in it; "
        "length=16:0.7,512:0.3 also gives the share of each size in all calls",
    )
    command.add_argument(
        "--dim",
        type=dimension,
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="fix the size of a dimension, such as batch=1",
    )


def _add_freedom(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--backends",
        nargs="+",
        action=BackendsAction,
        metavar="NAME",
        help="the backends in preference order (default: all); TVM compiles what they do not take; options of a "
        "library stand behind its name: openvino:NUM_STREAMS=1; torch lets PyTorch make kernels, compute operators "
        "that cannot be compiled, or all of a model of PyTorch: the program then needs Python and PyTorch",
    )
    command.add_argument(
        "--custom-op-library",
        action="append",
        default=[],
        metavar="FILE.so",
        help="a shared library with operators of an ONNX model, which ONNX Runtime registers and computes; given more "
        "than once, all are registered (docs/whole_models.md)",
    )
    command.add_argument(
        "--target",
        type=target,
        action=TargetsAction,
        metavar="TARGET",
        help="the processor to compile for: cuda, the NVIDIA GPU of this machine, or one such as 'llvm -mcpu=znver4' "
        "(default: this machine's CPU); given more than once, targets name backends by preference: "
        "--target 'llvm -libs=onednn' --target llvm",
    )
    command.add_argument(
        "--precision",
        choices=list(PRECISIONS),
        default=FLOAT32,
        help="the precision of convolutions and products, and of values between them (default: f32); f16 and tf32 are "
        "for cuda only; the error against float32 is shown",
    )
    command.add_argument(
        "--no-winograd",
        action="store_true",
        help="do not use Winograd's algorithm for convolutions, which rounds differently",
    )
    command.add_argument(
        "--search-layouts",
        action="store_true",
        help="also choose the layout of images between kernels by cost; about twice as many kernels are measured",
    )


def _add_effort(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--budget",
        type=budget,
        metavar="TIME",
        default=BUDGET_SECONDS,
        help=f"the limit for measuring, such as 30s or 5m, or none (default: {BUDGET_SECONDS:g}s); the result is the "
        "best plan that is known by then, and a compile with this option continues where an earlier one ended",
    )
    command.add_argument(
        "--remeasure",
        action="store_true",
        help="measure all known costs again; by default only those that other work of the machine disturbed",
    )
    command.add_argument(
        "--recompile",
        action="store_true",
        help="compile even if the program of an earlier compile with the same options, versions and costs is kept",
    )
    command.add_argument(
        "--percentile",
        type=percentile,
        metavar="P",
        default=MEDIAN,
        help="which percentile of its runs is the cost of a kernel, such as 50 (the median, the default), 90 or 99: "
        "for 90 and 99 each kernel runs far more often",
    )
    command.add_argument(
        "--tune",
        type=positive,
        metavar="TRIALS",
        help="let MetaSchedule try this many schedules for each TVM kernel that could still be in the plan",
    )
    command.add_argument(
        "--refine",
        action="store_true",
        help="compare candidate programs, those of each backend alone and of TVM among them; the fastest is the result",
    )
    command.add_argument(
        "--breed",
        type=duration,
        metavar="TIME",
        help="with --refine: also breed faster plans by evolution, and measure whole programs for this long",
    )


def _add_remote(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--rpc",
        type=tracker,
        metavar="TRACKER:PORT",
        help="measure on the servers of an RPC tracker, and compile for them",
    )
    command.add_argument(
        "--rpc-key",
        metavar="KEY",
        help=f"with --rpc: the key of the servers at the tracker (default: {RPC_KEY})",
    )


def sizes_of(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments ``shapes`` and ``dims`` of ``compile`` that ``--shape`` and ``--dim`` stand for."""
    return {"shapes": _distinct("--shape", options.shape), "dims": _distinct("--dim", options.dim)}


def _distinct(option: str, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, sizes in pairs:
        if found.setdefault(name, sizes) != sizes:
            raise UsageError(f"{option} gives {name} two sizes: {found[name]} and {sizes}")
    return found
