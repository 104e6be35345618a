"""Every test runs under the contract instrument."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tvm

from unity_collage.testing.contract import Contract


@pytest.fixture(autouse=True)
def contract() -> Iterator[None]:
    """Every pass of ours is held to its promises, in every test."""
    with tvm.transform.PassContext(instruments=[Contract()]):
        yield
