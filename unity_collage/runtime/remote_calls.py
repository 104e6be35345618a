"""Functions of a program that run on another machine, by the name of the packed function that a program calls."""

from collections.abc import Iterable

NOTE = "collage_remote"
"""The attribute of an executable with the remote functions that it calls."""

_PREFIX = "unity_collage.remote."


def symbol_of(name: str) -> str:
    """The symbol by which a program of this process calls the remote function ``name``."""
    return f"{_PREFIX}{name}"


def functions_among(symbols: Iterable[str]) -> list[str]:
    """The remote functions among symbols, sorted."""
    return sorted(symbol.removeprefix(_PREFIX) for symbol in symbols if symbol.startswith(_PREFIX))
