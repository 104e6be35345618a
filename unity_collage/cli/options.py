"""The options that commands share, and what they mean."""

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
    """The model, what may become of it, and how much may be measured for that."""
    command.add_argument("model", metavar="MODEL.onnx", help="the model; it comes before --backends")
    _add_freedom(command)
    _add_effort(command)
    command.add_argument(
        "--database",
        metavar="FILE|URL",
        help="where costs are kept: a file, or postgresql://... (default: a file in the user's cache folder)",
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
        help="what may make kernels, in preference order (default: all); TVM does what they do not take",
    )
    command.add_argument(
        "--precision",
        choices=list(PRECISIONS),
        default=FLOAT32,
        help="what convolutions and products read and what is stored between them (default: f32); with bf16 the error "
        "against float32 is shown",
    )
    command.add_argument(
        "--no-winograd",
        action="store_true",
        help="no convolutions by Winograd's algorithm, which rounds differently",
    )
    command.add_argument(
        "--search-layouts",
        action="store_true",
        help="choose the layout of images between kernels too, by cost; about twice as many kernels are measured",
    )


def _add_effort(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--budget",
        type=duration,
        metavar="TIME",
        help="measure no longer than that, 30s or 5m: the best plan known by then is the result",
    )
    command.add_argument(
        "--tune",
        type=positive,
        metavar="TRIALS",
        help="let MetaSchedule try this many schedules for each kernel of TVM that could still be in the plan",
    )
    command.add_argument(
        "--refine",
        action="store_true",
        help="time candidate programs in turns, those of each backend alone and of TVM among them; the fastest is the result",
    )

    command.add_argument(
        "--breed",
        type=duration,
        metavar="TIME",
        help="with --refine: also search for faster plans by evolution, measuring whole programs for that long",
    )


def _add_remote(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--rpc",
        type=_tracker,
        metavar="TRACKER:PORT",
        help="let the servers of an RPC tracker measure, and compile for them",
    )
    command.add_argument(
        "--rpc-key",
        metavar="KEY",
        default="unity_collage",
        help="the key by which the servers announce themselves (default: unity_collage)",
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
    """What ``--refine`` and ``--breed`` ask for; raises CollageError for the second without the first."""
    if options.breed and not options.refine:
        raise CollageError("--breed needs --refine: bred plans are compared as whole programs")
    if not options.refine:
        return None
    return Refinement(breeding=Breeding(seconds=options.breed) if options.breed else None)


def rules_left_out(options: argparse.Namespace) -> tuple[str, ...]:
    """The names of rules that the options leave out."""
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
