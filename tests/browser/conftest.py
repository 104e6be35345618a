"""The browser of these tests: Debian's chromium without a window."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec

import pytest

REQUIRED = "COLLAGE_REQUIRE_BROWSER"
"""Where this is set whatever these tests need must be there: a missing browser is a failure."""


@pytest.fixture(scope="session")
def browser() -> str:
    """The path of chromium."""
    return _needed(shutil.which("chromium"), "chromium is missing: apt-get install chromium")


@pytest.fixture(scope="session")
def mkdocs() -> str:
    """The name of MkDocs as a module of Python, with the theme and the handler of docstrings."""
    names = ("mkdocs", "material", "mkdocstrings_handlers")
    missing = next((name for name in names if find_spec(name) is None), None)
    return _needed(missing is None and names[0], f"{missing} is missing: pip install '.[docs]'")


def _needed(found: str | bool | None, reason: str) -> str:
    give_up: Callable[[str], None] = pytest.fail if os.environ.get(REQUIRED) else pytest.skip
    if not found:
        give_up(reason)
    return str(found)
