"""Every test here is marked ``gpu``, and is skipped with the reason where there is no CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest

from unity_collage.runtime import cuda

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True, scope="session")
def _with_device() -> None:
    if reason := cuda.why_unavailable():
        pytest.skip(reason)
    cuda.load()
