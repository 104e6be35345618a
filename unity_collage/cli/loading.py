"""Loads what a command needs: TVM, and meanwhile the process that measuring ones are forks of, which needs it too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from . import load_tvm

_TEMPLATE_SECONDS = 30.0
"""The limit for the imports of the template; later than that, the command goes on without it."""


def load_for(options: argparse.Namespace) -> None:
    """Load TVM, and look at the names of backends, which could not be checked without it; raises CollageError."""
    is_first = "tvm.relax" not in sys.modules
    with _template_loads() if is_first and _will_measure(options) else nullcontext():
        load_tvm()
        if "backends" in options:
            from .settings import check_backends

            check_backends(options)


@contextmanager
def _template_loads() -> Iterator[None]:
    """Let the template import its modules while this process does what is inside."""
    from ..measure.loaded import LOADED
    from ..processes.forking import await_template, prepare

    prepare(LOADED)
    yield
    await_template(_TEMPLATE_SECONDS)


def _will_measure(options: argparse.Namespace) -> bool:
    """Whether these options ask for costs of kernels on this machine's CPU, which may have to be measured."""
    if "budget" not in options or getattr(options, "no_measure", False) or getattr(options, "dry_run", False):
        return False
    return not (options.locked or options.rpc or options.target)
