"""The options of all commands that compile a model."""

from __future__ import annotations

import argparse

from ..pipeline import FLOAT32, PRECISIONS
from . import costs as cli_prices


def add_options(command: argparse.ArgumentParser) -> None:
    """The model, what may become of it, and how much may be measured for that."""
    command.add_argument("model", metavar="MODEL.onnx", help="the model; it comes before --backends")
    _add_freedom(command)
    _add_effort(command)
    command.add_argument(
        "--database",
        metavar="FILE|URL",
        help="where prices are kept: a file, or postgresql://... (default: a file in the user's cache folder)",
    )
    command.add_argument(
        "--locked",
        action="store_true",
        help="measure nothing: a price that is not in the database is an error",
    )
    cli_prices.add_options(command)


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
        help="choose the layout of images between kernels too, by price; about twice as many kernels are measured",
    )


def _add_effort(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--budget",
        type=_duration,
        metavar="TIME",
        help="measure no longer than that, 30s or 5m: the best plan known by then is the result",
    )
    command.add_argument(
        "--tune",
        type=positive,
        metavar="TRIALS",
        help="let MetaSchedule try so many schedules for each kernel of TVM that could still win",
    )
    command.add_argument(
        "--refine",
        action="store_true",
        help="run whole programs too, those of each backend alone and of TVM among them; the fastest is the result",
    )


def positive(text: str) -> int:
    """A number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _duration(text: str) -> float:
    """``30s``, ``5m``, ``1h`` or seconds, as seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: 30s, 5m and 1h are")
    return seconds
