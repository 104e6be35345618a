"""The number of threads that a program is measured for: how it is set, kept and compared."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiled import LIBRARIES_FIRST, compiled
from tvm.ir import IRModule

import unity_collage as uc
from unity_collage.cli.options import add_options, add_threads
from unity_collage.errors import CollageError
from unity_collage.testing import graphs

MODEL = IRModule({"main": graphs.chain()})


@pytest.fixture(autouse=True)
def same_threads_afterwards() -> Iterator[None]:
    before = uc.num_threads()
    yield
    uc.set_num_threads(before)


def test_compile_measures_for_the_threads_that_it_is_given() -> None:
    program = uc.compile(MODEL, estimator=LIBRARIES_FIRST, backends="tvm", threads=3)
    assert program.threads == uc.num_threads() == 3


@pytest.mark.parametrize("threads", [0, -1, True, "2", 1.5])
def test_what_is_not_a_number_of_threads_is_refused_before_anything_else(threads: object) -> None:
    with pytest.raises(CollageError, match=f"threads is {threads!r}, which is not a number of at least 1"):
        uc.compile("missing.onnx", threads=threads)  # pyright: ignore[reportArgumentType]


def test_a_loaded_program_tells_its_threads_and_those_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "program.so"
    uc.set_num_threads(3)
    compiled(MODEL, ["tvm"]).save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert uc.load(path).threads == 3
    uc.set_num_threads(2)
    with pytest.warns(UserWarning) as told:
        loaded = uc.load(path)
    assert [str(one.message) for one in told] == [
        f"{path} was measured for 3 threads, and this process uses 2: call unity_collage.set_num_threads(3) before, "
        "or compile the model with threads=2"
    ]
    assert told[0].filename == __file__
    assert loaded.threads == 3
    loaded.save(tmp_path / "copy.so")
    with pytest.warns(UserWarning, match=r"copy\.so was measured for 3 threads"):
        assert uc.load(tmp_path / "copy.so").threads == 3


@pytest.mark.parametrize(
    "arguments", [["--threads", "3", "compile"], ["compile", "--threads", "3"], ["compile"]]
)
def test_the_number_may_stand_before_and_behind_the_command(arguments: list[str]) -> None:
    parser = ArgumentParser()
    add_threads(parser)
    add_options(parser.add_subparsers().add_parser("compile"))
    expected = 3 if "--threads" in arguments else None
    assert parser.parse_args([*arguments, "model.onnx"]).threads == expected


def test_a_warning_of_a_process_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "program.so"
    uc.set_num_threads(3)
    compiled(MODEL, ["tvm"]).save(path)
    script = "import sys, unity_collage as uc; [uc.load(sys.argv[1]) for _ in range(2)]"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env=os.environ | {"OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("was measured for 3 threads") == 1, done.stderr
