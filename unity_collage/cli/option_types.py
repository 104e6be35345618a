"""Parses the texts of options: sizes, durations, targets, trackers; and options that depend on each other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..cost.method import Method
from ..defaults import MOST_THREADS
from ..errors import CollageError, closest
from . import load_tvm

if TYPE_CHECKING:
    from tvm.target import Target


def positive(text: str) -> int:
    """A number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def threads(text: str) -> int:
    """A number of threads that a machine may have."""
    if (count := positive(text)) > MOST_THREADS:
        raise argparse.ArgumentTypeError(
            f"{text} threads are more than a program can use: take at most {MOST_THREADS}"
        )
    return count


def shape(text: str) -> tuple[str, int | Sequence[int] | dict[int, float]]:
    """``image=1,3,640,640`` or ``batch=1``: one number is the size of a dimension, or of an input of rank 1.

    ``length=1..512`` is a range of sizes of a dimension, both ends included; ``length=16:0.7,512:0.3`` has weights.
    """
    name, _, sizes = text.rpartition("=")
    if name and ":" in sizes:
        return name, _weights(text, sizes)
    low, dots, high = (part.strip() for part in sizes.partition(".."))
    if name and dots and low.isdecimal() and high.isdecimal() and 1 <= int(low) <= int(high):
        return name, range(int(low), int(high) + 1)
    parts = sizes.strip("()[] ").replace("x", ",").split(",") if name else []
    if not parts or not all(part.strip().isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shape: write NAME=1,3,640,640 or NAME=1, or NAME=1..512 for a range of sizes"
        )
    numbers = [int(part) for part in parts]
    return name, tuple(numbers) if len(numbers) > 1 else numbers[0]


def _weights(text: str, sizes: str) -> dict[int, float]:
    """``16:0.7,512:0.3``: sizes of a dimension, each with its weight."""
    found: dict[int, float] = {}
    for part in sizes.split(","):
        size, _, weight = (word.strip() for word in part.partition(":"))
        try:
            if int(size) in found:
                raise argparse.ArgumentTypeError(f"{text!r} has two weights for {size}")
            found[int(size)] = float(weight)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} has no weight for each size: write NAME=16:0.7,512:0.3"
            ) from None
    return found


def dimension(text: str) -> tuple[str, int]:
    """``batch=1``."""
    name, _, size = text.rpartition("=")
    if not name or not size.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not the size of a dimension: write NAME=1")
    return name, int(size)


def size_in_bytes(text: str) -> int:
    """``200MB``, as bytes."""
    from ..plan.memory import nbytes_in

    try:
        return nbytes_in(text)
    except CollageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def budget(text: str) -> float | None:
    """A duration, or ``none`` for no limit."""
    return None if text == "none" else duration(text)


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


def percentile(text: str) -> float:
    try:
        return Method.of(float(text)).percentile
    except (ValueError, CollageError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a percentile between 0 and 100, such as 90"
        ) from None


_TWICE = "several targets name backends, and so does --backends: leave one out"


class TargetsAction(argparse.Action):
    """Sets ``target``; where several targets are given, also ``backends``, which they name by ``libs``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        from ..target import conveyed

        del parser
        namespace.targets = [*getattr(namespace, "targets", ()), values]
        if len(namespace.targets) == 1:
            namespace.target = values
            return
        try:
            namespace.target, named = conveyed(namespace.targets)
        except CollageError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        if (
            named is not None
            and getattr(namespace, "named", None) is None
            and getattr(namespace, "backends", None) is not None
        ):
            raise argparse.ArgumentError(self, _TWICE)
        if named is not None:
            namespace.backends = namespace.named = list(named)


def names_in(values: Sequence[str]) -> list[str]:
    """The names of a list whose items may have commas, each once."""
    parts = (part.strip() for value in values for part in value.split(","))
    return list(dict.fromkeys(part for part in parts if part))


class NamesAction(argparse.Action):
    """Adds to a list of names: ``a b``, ``a,b``, or the option once more."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        del parser, option
        if not (names := names_in(values)):
            raise argparse.ArgumentError(self, "no name is given")
        setattr(namespace, self.dest, names_in([*(getattr(namespace, self.dest, None) or ()), *names]))


class BackendsAction(NamesAction):
    """Adds to ``backends``, unless targets have them."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        if getattr(namespace, "named", None) is not None:
            raise argparse.ArgumentError(self, _TWICE)
        super().__call__(parser, namespace, values, option)


def target(text: str) -> Target:
    load_tvm()
    from ..target import target_of

    try:
        return target_of(text)
    except CollageError as error:
        kinds, kind = ["cuda", "llvm"], text.partition(" ")[0]
        close = [] if kind in kinds else closest(kind, kinds, 1)
        said = f"{text!r} is not a target; did you mean {close[0]}?" if close else str(error)
        raise argparse.ArgumentTypeError(said) from None


def tracker(text: str) -> str:
    load_tvm()
    from ..measure.remote.messages import address

    try:
        address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
