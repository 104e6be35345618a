"""What the peers of a benchmark say of themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch_peer.runtime import torch_compile


def test_torch_compile_without_torch_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match="PyTorch is missing: pip install torch"):
        torch_compile(Path("no.onnx"), {}, 1)
