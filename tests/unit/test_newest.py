"""The newest known versions of libraries, compared with the installed ones."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from unity_collage.backends import newest
from unity_collage.backends.newest import KNOWN_ON, NEWEST, library_text
from unity_collage.cli.main import main
from unity_collage.runtime.vendors import VENDORS


@pytest.mark.parametrize(
    ("installed", "text"),
    [
        (None, "scipy-openblas32 is not installed, newest 0.3.34.481.3"),
        ("0.3.34.481.3", "scipy-openblas32 0.3.34.481.3, the newest"),
        ("0.3.9", "scipy-openblas32 0.3.9, newest 0.3.34.481.3"),
        ("0.3.34.1000", "scipy-openblas32 0.3.34.1000, newer than 0.3.34.481.3, the newest known"),
    ],
)
def test_the_installed_version_is_compared(
    monkeypatch: pytest.MonkeyPatch, installed: str | None, text: str
) -> None:
    monkeypatch.setitem(NEWEST, "openblas", newest.Release("scipy-openblas32", "0.3.34.481.3"))
    monkeypatch.setattr(newest, "_installed", lambda _distribution: installed)
    assert library_text("openblas") == text
    assert library_text("kernels") == ""


def test_every_vendor_has_its_newest_version() -> None:
    vendors = {name: vendor.distribution for name, vendor in VENDORS.items() if vendor is not None}
    assert {name: release.distribution for name, release in NEWEST.items() if name != "tvm"} == vendors
    assert date.fromisoformat(KNOWN_ON)


def test_what_is_pinned_is_not_newer_than_what_is_known() -> None:
    """A pin that is raised is a look at what there is, so the table is brought up to date with it."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    for release in NEWEST.values():
        for pinned in re.findall(rf'"{re.escape(release.distribution)}==([\w.]+)"', text):
            assert newest._numbers(pinned) <= newest._numbers(release.version), release


def test_the_command_shows_them(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["backends"]) == 0
    words = " ".join(capfd.readouterr().out.split())
    assert KNOWN_ON in words and "newest" in words
