"""Every test runs under the contract instrument and fails by faults of our own; none depends on the machine's speed."""

from __future__ import annotations

import inspect
import linecache
import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import tvm
from hypothesis import HealthCheck, settings
from tvm.script.ir_builder import IRBuilder

from unity_collage.testing.contract import Contract
from unity_collage.testing.faults import Faults

# Drawing examples takes long where other work keeps the processor busy: that is no fault of the test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change is judged by the same examples wherever it is tested; `make check-examples` draws new ones.
settings.register_profile("repeated", settings.get_profile("patient"), derandomize=True)
# What `make check-proofs` runs.
settings.register_profile("thorough", settings.get_profile("patient"), max_examples=500)
settings.load_profile("repeated")

_FAULTS = Faults()


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    """``inspect.stack`` with lines from a cache: Python's own searches all modules for frames that have no file.

    TVM's parser calls it twice for each function of a script, which takes half of the time of a parse, and its
    decorators call it for each function of a test.
    """
    frame = inspect.currentframe()
    outer = frame and frame.f_back
    if context != 1:
        return inspect.getouterframes(outer, context)
    frames = []
    while outer:
        name, number = outer.f_code.co_filename, outer.f_lineno
        line = linecache.getline(name, number, outer.f_globals)
        place = ([line], 0) if line else (None, None)
        frames.append(inspect.FrameInfo(outer, name, number, outer.f_code.co_name, *place))
        outer = outer.f_back
    return frames


def pytest_configure() -> None:
    """Before any test is imported: what is made there is watched too."""
    inspect.stack = _stack
    _FAULTS.watch()
    if os.environ.get("COLLAGE_REQUIRE_TORCH") and find_spec("torch") is None:
        raise pytest.UsageError("COLLAGE_REQUIRE_TORCH is set, and PyTorch is not installed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that runs alone in another place would never run: ``scripts/test.sh`` collects these for them."""
    places = ("tests/backend/", "tests/unit/test_timing.py")
    alone = [item.nodeid for item in items if item.get_closest_marker("alone")]
    if misplaced := [name for name in alone if not name.startswith(places)]:
        raise pytest.UsageError(
            f"tests marked alone are in {' and '.join(places)} only: {', '.join(misplaced)}"
        )


@pytest.fixture(autouse=True)
def faults() -> Iterator[Faults]:
    """A fault of our own, here or in a child process, fails the test that it is logged in, unless the test takes it."""
    yield _FAULTS
    left = _FAULTS.take()
    assert not left, "our own code has failed:\n" + "\n".join(left)


@pytest.fixture(autouse=True)
def no_open_script() -> None:
    """A script that TVM could not parse may leave its builder open in this thread; the next module then fails."""
    while IRBuilder.is_in_scope():
        IRBuilder.current().__exit__(None, None, None)


@pytest.fixture(autouse=True)
def contract() -> Iterator[None]:
    """Every pass of ours is held to its promises, in every test."""
    with tvm.transform.PassContext(instruments=[Contract()]):
        yield
