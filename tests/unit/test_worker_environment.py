"""What a worker process gets from this one: the folders of its modules, and threads that it can measure with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import unity_collage as uc
from unity_collage.defaults import MOST_THREADS
from unity_collage.machine import environment
from unity_collage.measure.here import cost_model


def folders(monkeypatch: pytest.MonkeyPatch, given: str, package: Path) -> list[str]:
    """The folders of modules of a worker, where ``PYTHONPATH`` is ``given`` and this package is in a folder."""
    monkeypatch.setenv("PYTHONPATH", given)
    module = package / "unity_collage" / "machine" / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(module))
    return environment.environment()["PYTHONPATH"].split(os.pathsep)


def test_a_worker_finds_modules_in_relative_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / "site-packages"
    assert folders(monkeypatch, f"src{os.pathsep}/other", installed) == [str(tmp_path / "src"), "/other"]


def test_a_worker_has_the_package_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folders(monkeypatch, "/other", tmp_path) == ["/other", str(tmp_path)]
    assert folders(monkeypatch, str(tmp_path), tmp_path) == [str(tmp_path)]


@pytest.fixture
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "usable_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(environment, "cpu_quota", lambda: None)


@pytest.mark.parametrize(("threads", "quota", "limit"), [(5, None, "the cores"), (3, 1.5, "the quota")])
def test_kernels_are_not_measured_with_more_threads_than_processors(
    threads: int,
    quota: float | None,
    limit: str,
    four_processors: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(environment, "cpu_quota", lambda: quota)
    monkeypatch.setattr(environment.runtime, "num_threads", lambda: threads)
    with pytest.raises(uc.CollageError, match=f"measured with {threads} threads here: .*, by {limit}"):
        cost_model(tmp_path / "costs.sqlite")
    with pytest.raises(uc.CollageError, match="there is no such file"):
        cost_model(tmp_path / "costs.sqlite", locked=True)  # which only reads costs
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("threads", "quota"), [(4, None), (2, 1.5), (1, 0.5)])
def test_as_many_threads_as_processors_can_be_measured(
    threads: int, quota: float | None, four_processors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "cpu_quota", lambda: quota)
    monkeypatch.setattr(environment.runtime, "num_threads", lambda: threads)
    assert environment.why_too_many_threads() is None


def test_no_program_has_more_threads_than_any_machine() -> None:
    before = uc.num_threads()
    with pytest.raises(uc.CollageError, match=f"threads is 99999, .*: take at most {MOST_THREADS}"):
        environment.use_threads(99999)
    assert uc.num_threads() == before
