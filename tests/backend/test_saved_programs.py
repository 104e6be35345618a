"""What a saved program says of itself, and what is refused before any of its code is loaded."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import compiled, random
from resealed import facts_of, resealed
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.lowering import library_file
from unity_collage.plan.plan import Plan
from unity_collage.program import facts as program_facts
from unity_collage.program.facts import plans_in
from unity_collage.runtime.libraries import own_library
from unity_collage.runtime.vendors import wheel_version

WEIGHTS = random(16, 8, seed=1)


def model(weights: np.ndarray = WEIGHTS) -> IRModule:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(R.nn.relu(R.matmul(x, R.const(weights))))
        builder.emit_func_output(y)
    return builder.get()


@pytest.fixture(scope="module")
def program() -> uc.Program:
    return compiled(model(), ["openblas"])


@pytest.fixture(scope="module")
def saved(program: uc.Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "program.so"
    program.save(path)
    return path


@pytest.fixture
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that gets as far as the dynamic loader fails the test, and does not end its process."""

    def loaded(path: object) -> None:
        raise AssertionError("the dynamic loader was asked")

    monkeypatch.setattr(library_file, "read", loaded)


def refusal(path: Path) -> str:
    """Why a program is not loaded, which is one line."""
    with pytest.raises(uc.CollageError) as refused:
        uc.load(path)
    reason = str(refused.value)
    assert "\n" not in reason
    return reason.removeprefix(f"{path} cannot be loaded as a program: ")


def test_a_program_tells_what_it_needs_and_how_it_was_made(program: uc.Program, saved: Path) -> None:
    facts = facts_of(saved)
    assert facts["processor"] == os.uname().machine
    assert facts["instruction_sets"] == sorted(facts["instruction_sets"]) != []
    assert facts["wheels"] == {name: wheel_version(name) for name in ("apache-tvm", "scipy-openblas32")}
    assert sorted(facts["libraries"]) == ["openblas", "runtime"]
    assert (facts["version"], facts["threads"]) == (uc.__version__, program.threads)
    assert set(facts["machine"]) == {"machine", "system"}
    (plan,) = plans_in(facts).values()  # pyright: ignore[reportArgumentType]
    assert program.plan is not None and plan.kernels == program.plan["main"].kernels


def test_the_plan_of_a_saved_program_is_checked_without_loading_it(
    saved: Path, nothing_is_loaded: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", str(saved)]) == 0
    assert capsys.readouterr().out.startswith("main: proved: ")
    forged = resealed(
        saved, saved.with_name("forged.so"), plan=program_facts._packed({"main": _unproved(saved)})
    )
    assert cli.main(["check", str(forged)]) == 1
    assert "main: does not hold: it is said to be proved" in capsys.readouterr().out


def _unproved(saved: Path) -> Plan:
    """The plan of a saved program without its proof, which it still claims to have."""
    plan = plans_in(facts_of(saved))["main"]  # pyright: ignore[reportArgumentType]
    assert plan.certificate is not None
    return replace(plan, certificate=replace(plan.certificate, proof=None, enumeration=None, branches=()))


@pytest.mark.parametrize("twentieth", range(20))
def test_a_program_is_refused_wherever_it_is_cut(
    saved: Path, tmp_path: Path, nothing_is_loaded: None, twentieth: int
) -> None:
    data, path = saved.read_bytes(), tmp_path / "cut.so"
    path.write_bytes(data[: len(data) * twentieth // 20])
    assert ("its end is missing" if twentieth else "it is empty") in refusal(path)


def test_a_name_that_the_system_does_not_take_is_not_a_file() -> None:
    name = "a" * 300 + ".so"
    assert refusal(Path(name)) == f"{name} is not a file"
    assert cli.main(["info", name]) == 1


def test_a_library_that_is_not_a_program_is_refused(tmp_path: Path, nothing_is_loaded: None) -> None:
    library = own_library("runtime")
    assert library is not None
    (tmp_path / "other.so").write_bytes(library.read_bytes())
    assert refusal(tmp_path / "other.so").startswith("it is a library, but not a saved program")
    (tmp_path / "random.so").write_bytes(np.random.default_rng(0).bytes(5000))
    assert refusal(tmp_path / "random.so") == "it is not a saved program, or only a part of one"


def raised(versions: Mapping[str, int]) -> dict[str, int]:
    return {name: version + 1 for name, version in versions.items()}


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("processor", lambda _: "riscv64", "it was compiled for riscv64, and this processor is "),
        (
            "instruction_sets",
            lambda sets: [*sets, "avx4096"],
            "it was compiled for a processor with avx4096, which ",
        ),
        (
            "wheels",
            lambda wheels: wheels | {"scipy-openblas32": "0.1"},
            "it was compiled with scipy-openblas32 0.1, and ",
        ),
        (
            "wheels",
            lambda wheels: wheels | {"apache-tvm": "0.28.0"},
            f"it was compiled with apache-tvm 0.28.0, and {wheel_version('apache-tvm')} is installed: pip install "
            "apache-tvm==0.28.0, or compile the model again",
        ),
        ("ffi", lambda _: "0.9.0", "it was compiled with tvm_ffi 0.9.0, and this is "),
        ("libraries", raised, "of libcollage_"),
        ("backends", lambda found: [*found, "mkl"], "it needs mkl: there is no native backend 'mkl'"),
    ],
)
def test_a_program_that_does_not_fit_is_refused(
    saved: Path, tmp_path: Path, nothing_is_loaded: None, name: str, change: Callable[[Any], Any], reason: str
) -> None:
    path = resealed(saved, tmp_path / "other.so", **{name: change(facts_of(saved)[name])})
    assert reason in refusal(path)


def test_a_missing_library_is_named(
    saved: Path, nothing_is_loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_facts.runtime, "why_unavailable", lambda name: f"lib{name}.so is missing")
    assert refusal(saved) == "it needs openblas: libopenblas.so is missing"
    install = "it is missing: pip install scipy-openblas32"
    monkeypatch.setattr(program_facts.runtime, "why_unavailable", lambda _name: install)
    assert refusal(saved) == f"it needs openblas: {install}=={wheel_version('scipy-openblas32')}"


@pytest.mark.parametrize("reason", ["No space left on device", "it cannot be read: Input/output error"])
def test_a_program_that_cannot_be_saved_leaves_the_file_as_it_was(
    program: uc.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def sealed(draft: Path, _facts: object) -> None:
        assert draft.parent == tmp_path and draft.stat().st_size > 0
        raise RuntimeError(reason)

    path = tmp_path / "program.so"
    path.write_text("the program of before")
    monkeypatch.setattr(library_file, "seal", sealed)
    with pytest.raises(uc.CollageError, match=f"cannot be written: {reason}"):
        program.save(path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [
        ("program.so", "the program of before")
    ]


def test_a_file_that_is_replaced_while_it_is_loaded_is_the_one_that_was_verified(
    saved: Path, program: uc.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = tmp_path / "program.so", library_file.read
    path.write_bytes(saved.read_bytes())

    def replaced(found: Path) -> Any:
        path.unlink()
        path.write_text("not a library")
        return read(found)

    monkeypatch.setattr(library_file, "read", replaced)
    x = random(4, 16)
    np.testing.assert_array_equal(uc.load(path)(x).numpy(), program(x).numpy())


def is_mapped(inode: int) -> bool:
    """Whether this process has a file in memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return any(line.split()[4] == str(inode) for line in lines)


def test_a_program_that_nothing_refers_to_is_unmapped(saved: Path, tmp_path: Path) -> None:
    path, x = tmp_path / "program.so", random(4, 16)
    path.write_bytes(saved.read_bytes())
    first, second = uc.load(path), uc.load(path)
    right = first(x).numpy()
    del first
    gc.collect()
    kept = second(x)
    np.testing.assert_array_equal(kept.numpy(), right)
    assert is_mapped(path.stat().st_ino)
    del second
    gc.collect()
    assert not is_mapped(path.stat().st_ino)
    np.testing.assert_array_equal(kept.numpy(), right)


def test_a_file_that_was_written_to_is_refused_while_a_program_of_it_is_used(
    saved: Path, tmp_path: Path
) -> None:
    path, x = tmp_path / "program.so", random(4, 16)
    path.write_bytes(saved.read_bytes())
    loaded = uc.load(path)
    right = loaded(x).numpy()
    os.utime(path)
    np.testing.assert_array_equal(uc.load(path)(x).numpy(), right)
    with path.open("r+b") as file:  # its code stays as it is mapped
        file.write(resealed(saved, tmp_path / "other.so", version="0.0.1").read_bytes())
        file.truncate()
    assert refusal(path) == "it was written to while this process uses it: end what uses it first"
    np.testing.assert_array_equal(loaded(x).numpy(), right)
    del loaded
    gc.collect()
    np.testing.assert_array_equal(uc.load(path)(x).numpy(), right)


OVERWRITTEN = """
import sys, numpy as np, unity_collage as uc
path, other = sys.argv[1:]
x = np.ones((4, 16), np.float32)
before = np.asarray(uc.load(path)(x)).sum()
with open(path, "r+b") as file:
    file.write(open(other, "rb").read())
    file.truncate()
print(before, np.asarray(uc.load(path)(x)).sum())
"""


def test_a_file_that_is_overwritten_after_its_program_is_gone_is_the_new_one(
    saved: Path, tmp_path: Path
) -> None:
    path, other = tmp_path / "program.so", tmp_path / "other.so"
    path.write_bytes(saved.read_bytes())
    compiled(model(2 * WEIGHTS), ["openblas"]).save(other)
    done = subprocess.run(
        [sys.executable, "-c", OVERWRITTEN, str(path), str(other)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = map(float, done.stdout.split())
    assert after == pytest.approx(2 * before, rel=1e-5) and before > 0


def test_threads_load_and_free_one_file_at_a_time(saved: Path) -> None:
    x = random(4, 16)
    right = uc.load(saved)(x).numpy()

    def is_right(_: int) -> bool:
        return np.array_equal(uc.load(saved)(x).numpy(), right)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(is_right, range(40)))


def test_the_command_line_shows_a_program(
    saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert cli.main(["info", str(saved)]) == 0
    lines = {line[:10].strip(): line[10:].strip() for line in capfd.readouterr().out.splitlines()}
    assert lines["takes"] == "'x': float32 (4, 16)" and lines["runs here"] == "yes"
    assert re.fullmatch(r"collage_runtime \d+, collage_openblas \d+", lines["libraries"])
    path = resealed(saved, tmp_path / "other.so", processor="riscv64")
    assert cli.main(["info", str(path)]) == 0
    assert "no: it was compiled for riscv64" in capfd.readouterr().out
    path.write_text("text")
    assert cli.main(["info", str(path)]) == 1
    assert capfd.readouterr().err == (
        f"unity-collage: {path} cannot be loaded as a program: it is not a saved program, or only a part of one\n"
    )
