"""Commands that run a program on this machine refuse servers of another kind before anything is compiled."""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from tvm.target import Target

from unity_collage.cli import settings
from unity_collage.errors import CollageError


def options(target: Target | None = None, rpc: str | None = None) -> argparse.Namespace:
    return argparse.Namespace(target=target, rpc=rpc)


def test_servers_of_another_kind_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Target({"kind": "llvm", "mtriple": "riscv64-linux-gnu"})
    costs: Any = SimpleNamespace(target=lambda: theirs)
    monkeypatch.setattr(settings, "cost_model_of", lambda *_: nullcontext(costs))
    expected = (
        "the program runs on this machine, and it is for riscv64, and this processor is "
        f"{os.uname().machine}: compile it, and run it there"
    )
    with pytest.raises(CollageError, match=f"^{expected}$"):
        settings.check_runs_here(options(rpc="localhost:1"))


def test_a_target_of_another_kind_is_refused() -> None:
    with pytest.raises(CollageError, match="it is for riscv64, and this processor is"):
        settings.check_runs_here(options(Target({"kind": "llvm", "mtriple": "riscv64-linux-gnu"})))


def test_this_machine_is_not_refused() -> None:
    settings.check_runs_here(options())
