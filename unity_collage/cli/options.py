"""The options that commands share, and the settings made of them."""

from __future__ import annotations

import argparse

from ..compiler import cost_model
from ..cost.model import CostModel, Progress
from ..database.costs import CostDatabase
from ..errors import CollageError
from ..feedback.breeding import Breeding
from ..feedback.settings import Refinement
from ..measure.remote import RemoteCost
from ..measure.remote.messages import address
from ..passes.annotate_candidates import WINOGRAD
from ..pipeline import FLOAT32, PRECISIONS


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options for the model, the choice of kernels, and the limits of measuring."""
    command.add_argument("model", metavar="MODEL.onnx", help="the model; write it before --backends")
    _add_freedom(command)
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
    _add_remote(command)


def _add_freedom(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--backends",
        nargs="+",
        metavar="NAME",
        help="the backends in preference order (default: all); TVM compiles what they do not take",
    )
    command.add_argument(
        "--precision",
        choices=list(PRECISIONS),
        default=FLOAT32,
        help="the precision of convolutions and products, and of values between them (default: f32); with bf16 the "
        "error against float32 is shown",
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
        type=duration,
        metavar="TIME",
        help="the limit for measuring, such as 30s or 5m; the result is the best plan that is known by then",
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
        type=_tracker,
        metavar="TRACKER:PORT",
        help="measure on the servers of an RPC tracker, and compile for them",
    )
    command.add_argument(
        "--rpc-key",
        metavar="KEY",
        default="unity_collage",
        help="the key of the servers at the tracker (default: unity_collage)",
    )


def cost_model_of(options: argparse.Namespace, report: Progress) -> CostModel:
    """The cost model that the options of a command ask for: of this machine, or of servers behind a tracker."""
    if options.rpc is None:
        return cost_model(options.database, report, options.locked, options.budget)
    return RemoteCost(
        CostDatabase(options.database, read_only=options.locked),
        progress=report,
        locked=options.locked,
        budget_seconds=options.budget,
        tracker=options.rpc,
        key=options.rpc_key,
    )


def refinement_of(options: argparse.Namespace) -> Refinement | None:
    """The settings of ``--refine`` and ``--breed``; raises CollageError for ``--breed`` alone."""
    if options.breed and not options.refine:
        raise CollageError("--breed needs --refine, which compares whole programs")
    if not options.refine:
        return None
    return Refinement(breeding=Breeding(seconds=options.breed) if options.breed else None)


def rules_left_out(options: argparse.Namespace) -> tuple[str, ...]:
    """The names of the rules that the options leave out."""
    return WINOGRAD if options.no_winograd else ()


def positive(text: str) -> int:
    """A number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def duration(text: str) -> float:
    """``30s``, ``5m``, ``1h`` or seconds, as seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 30s, 5m or 1h")
    return seconds


def _tracker(text: str) -> str:
    try:
        address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
