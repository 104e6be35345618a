"""Backends of other packages come through entry points; names are unique and explained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import tvm
from tvm import relax

from unity_collage.backends import Backend, registry
from unity_collage.errors import CollageError, UnknownBackend
from unity_collage.testing.fake_backend import fake_backend


@dataclass(frozen=True)
class Point:
    """What ``importlib.metadata`` gives for an entry point."""

    name: str
    backend: Backend
    value: str = "their_package:BACKEND"

    def load(self) -> Backend:
        return self.backend


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    _forget()
    yield
    _forget()


def _forget() -> None:
    registry.known.cache_clear()
    registry._installed.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, *points: Point) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group.startswith("unity") else ())


def test_ours_come_first_and_then_those_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Point("theirs", fake_backend("theirs")))
    assert list(registry.known()) == ["onednn", "openblas", "kernels", "tvm", "theirs"]


def test_a_duplicate_name_names_both_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Point("onednn", fake_backend("onednn")))
    expected = "two backends are named 'onednn': one of unity_collage, one of their_package"
    with pytest.raises(CollageError, match=expected):
        registry.known()


def test_an_unknown_name_lists_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(
        UnknownBackend, match="no backend named 'mkl'; there are: onednn, openblas, kernels, tvm"
    ):
        registry.get("mkl")


def test_code_generators_are_reachable_for_stock_tvm() -> None:
    asked: list[list[relax.Function]] = []

    def codegen(functions, _options, _constants):
        asked.append(list(functions))
        return []

    registry.register_codegens([fake_backend("toy_for_stock", codegen=codegen)])
    assert list(tvm.get_global_func("relax.ext.toy_for_stock")([], {}, {})) == []
    assert asked == [[]]
