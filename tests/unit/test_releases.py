"""The release script refuses what cannot be released, a dry run changes nothing, and the table of coverage adds up."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with what the script reads and writes."""
    for name in (
        "scripts/release.sh",
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "unity_collage/__init__.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("about fragments\n")
    (tmp_path / "changelog.d" / "+one.feature.md").write_text("One thing is new.\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")


def released(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "scripts/release.sh", version],
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "DRY_RUN": "1", "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_dry_run_says_all_steps_and_changes_nothing(tree: Path) -> None:
    done = released(tree, "0.2.0")
    assert done.returncode == 0, done.stderr
    steps = [line.split()[1:3] for line in done.stdout.splitlines() if line.startswith("+ ")]
    assert steps == [
        ["make", "check"],
        ["make", "check-pages"],
        ["set_version", "0.2.0"],
        ["make", "changelog"],
        ["make", "wheel"],
        ["make", "site"],
        ["git", "commit"],
        ["git", "tag"],
    ]
    assert git(tree, "status", "--porcelain") == "" and git(tree, "tag") == ""


@pytest.mark.parametrize("version", ["", "1", "v1.2.3", "1.2.3-beta"])
def test_what_is_no_version_is_refused(tree: Path, version: str) -> None:
    done = released(tree, version)
    assert done.returncode == 1 and "is not a version: VERSION=1.2.3" in done.stderr


def test_a_tree_with_changes_is_refused(tree: Path) -> None:
    (tree / "new").touch()
    assert "the tree has changes" in released(tree, "0.2.0").stderr


def test_a_tag_that_there_is_is_refused(tree: Path) -> None:
    git(tree, "tag", "v0.2.0")
    assert "there is a tag v0.2.0 already" in released(tree, "0.2.0").stderr


def test_a_release_without_fragments_is_refused(tree: Path) -> None:
    (tree / "changelog.d" / "+one.feature.md").unlink()
    commit(tree)
    assert "changelog.d has no fragments" in released(tree, "0.2.0").stderr


def test_the_version_has_the_places_that_the_script_writes(tree: Path) -> None:
    text = (tree / "scripts" / "release.sh").read_text()
    body = text.partition("set_version() {\n")[2].partition("\n}")[0]
    subprocess.run(["bash", "-c", f"set -- 9.8.7\n{body}"], cwd=tree, check=True)
    for name, line in {
        "pyproject.toml": '\nversion = "9.8.7"\n',
        "unity_collage/__init__.py": '\n__version__ = "9.8.7"\n',
        "README.md": "unity_collage-9.8.7-py3",
    }.items():
        assert line in (tree / name).read_text()


def test_coverage_is_summed_by_package() -> None:
    spec = importlib.util.spec_from_file_location("coverage_table", ROOT / "scripts" / "coverage_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files = {
        name: {"summary": {"covered_lines": reached, "num_statements": lines}}
        for name, reached, lines in (
            ("unity_collage/cli/main.py", 5, 10),
            ("unity_collage/cli/more/one.py", 5, 10),
            ("/there/unity_collage/errors.py", 4, 4),
        )
    }
    found = module.by_package({"files": files})
    assert found == {"cli": (10, 20), "unity_collage": (4, 4)}
    rows = module.table(found).splitlines()
    assert [row.split()[0] for row in rows] == ["cli", "unity_collage", "all"]
    assert rows[0].endswith("50.0%") and rows[-1].endswith("58.3%")
