"""Functions that a program lacks are looked up once, also where several threads lack them."""

from __future__ import annotations

import sys

import pytest

from unity_collage.runtime import torch_calls
from unity_collage.runtime.virtual_machine import with_functions_of_tvm

TORCH, TVM = "unity_collage.torch.aten.histc.default", "relax.run.unique"


@pytest.mark.parametrize("name", [TORCH, TVM])
def test_what_another_thread_has_looked_up_meanwhile_is_there(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tvm.relax", sys.modules["unity_collage"])
    monkeypatch.setattr(torch_calls, "_registered", {"aten.histc.default"})
    calls: list[int] = []

    def call() -> int:
        calls.append(len(calls))
        if len(calls) == 1:
            raise RuntimeError(f"Cannot find function {name}")
        return len(calls)

    assert with_functions_of_tvm(call) == 2


def test_what_is_nowhere_is_asked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm.relax", sys.modules["unity_collage"])
    calls: list[int] = []

    def call() -> None:
        calls.append(0)
        raise RuntimeError("Cannot find function nowhere")

    with pytest.raises(RuntimeError, match="Cannot find function nowhere"):
        with_functions_of_tvm(call)
    assert len(calls) == 2
