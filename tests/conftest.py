"""Every test runs under the contract instrument and fails by faults of our own; none depends on the machine's speed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tvm
from hypothesis import HealthCheck, settings

from unity_collage.testing.contract import Contract
from unity_collage.testing.faults import Faults

# Drawing examples takes long where other work keeps the processor busy: that is no fault of the test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

_FAULTS = Faults()


def pytest_configure() -> None:
    """Before any test is imported: what is made there is watched too."""
    _FAULTS.watch()


@pytest.fixture(autouse=True)
def faults() -> Iterator[Faults]:
    """A fault of our own, here or in a child process, fails the test that it is logged in, unless the test takes it."""
    yield _FAULTS
    left = _FAULTS.take()
    assert not left, "our own code has failed:\n" + "\n".join(left)


@pytest.fixture(autouse=True)
def contract() -> Iterator[None]:
    """Every pass of ours is held to its promises, in every test."""
    with tvm.transform.PassContext(instruments=[Contract()]):
        yield
