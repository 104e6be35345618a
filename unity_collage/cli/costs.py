"""Where the prices of a command come from: this machine, or others behind a tracker."""

from __future__ import annotations

import argparse

from ..compiler import cost_model, open_database
from ..cost.model import CostModel, Progress
from ..measure.remote import RemoteCost
from ..measure.remote.messages import address


def add_options(command: argparse.ArgumentParser) -> None:
    """``--rpc`` and ``--rpc-key``."""
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
        help="by which the servers announce themselves (default: unity_collage)",
    )


def prices(options: argparse.Namespace, report: Progress) -> CostModel:
    """The cost model that the options of a command ask for."""
    database = open_database(options.database, options.locked)
    if options.rpc is None:
        return cost_model(database, report, options.locked, options.budget)
    return RemoteCost(
        database,
        progress=report,
        locked=options.locked,
        budget_seconds=options.budget,
        tracker=options.rpc,
        key=options.rpc_key,
    )


def _tracker(text: str) -> str:
    try:
        address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
