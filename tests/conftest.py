"""Every test runs under the contract instrument, and none depends on how fast the machine is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tvm
from hypothesis import HealthCheck, settings

from unity_collage.testing.contract import Contract

# Drawing examples takes long where other work keeps the processor busy: that is no fault of the test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def contract() -> Iterator[None]:
    """Every pass of ours is held to its promises, in every test."""
    with tvm.transform.PassContext(instruments=[Contract()]):
        yield
