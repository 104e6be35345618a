"""A program from compile to call: what it knows of itself, what it takes and returns, and how it travels."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from compiled import compiled, random
from onnx import TensorProto, helper, numpy_helper

import unity_collage as uc
from unity_collage.errors import CollageError

X, Y = random(3, 16), random(3, 16, seed=1)
CONSTANT = random(2, 2, seed=2)


def model(first: str = "x", second: str = "y", rows: int | str = "rows") -> onnx.ModelProto:
    """``difference = first - second`` and ``relu/0 = max(difference, 0)``; ``constant`` and ``same`` are no
    kernel's results."""

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Sub", [first, second], ["difference"]),
        helper.make_node("Relu", ["difference"], ["relu/0"]),
        helper.make_node("Identity", ["c"], ["constant"]),
        helper.make_node("Identity", [second], ["same"]),
    ]
    results = [
        value("difference", rows, 16),
        value("relu/0", rows, 16),
        value("constant", 2, 2),
        value("same", rows, 16),
    ]
    inputs = [value(first, rows, 16), value(second, rows, 16)]
    graph = helper.make_graph(nodes, "calls", inputs, results, [numpy_helper.from_array(CONSTANT, "c")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def right(x: np.ndarray = X, y: np.ndarray = Y) -> list[np.ndarray]:
    return [x - y, np.maximum(x - y, 0), CONSTANT, y]


def close(got: Iterable[object], expected: list[np.ndarray] | None = None) -> None:
    for value, wanted in zip(got, expected or right(), strict=True):
        np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-6)


@pytest.fixture(scope="module")
def program() -> uc.Program:
    return compiled(model())


@pytest.fixture(scope="module")
def saved(program: uc.Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "program.so"
    program.save(path)
    return path


DESCRIPTION = (
    "<Program 'x': float32 (rows, 16), 'y': float32 (rows, 16) -> 'difference': float32 (rows, 16), "
    "'relu/0': float32 (rows, 16), 'constant': float32 (2, 2), 'same': float32 (rows, 16)>"
)


def test_a_program_knows_its_inputs_and_results_wherever_it_comes_from(
    program: uc.Program, saved: Path
) -> None:
    loaded = uc.load(saved)
    for one in (program, loaded, pickle.loads(pickle.dumps(program)), pickle.loads(pickle.dumps(loaded))):
        assert repr(one) == DESCRIPTION
        assert one.input_names == ("x", "y")
        assert one.output_names == ("difference", "relu/0", "constant", "same")
        close(one(X, Y))
        with pytest.raises(CollageError, match="dimension 0 is 2, but rows is 3 in 'x'"):
            one(X, Y[:2])


@pytest.mark.parametrize(
    ("first", "second"), [("a.b", "a/b"), ("a_b", "a:b"), ("self", "out"), ("mein Bild", "вход")]
)
def test_any_names_are_keywords_and_keys(first: str, second: str) -> None:
    program = compiled(model(first, second))
    named = {second: Y, first: X}
    for got in (program(**named), program(named), program(X, **{second: Y}), program(X, Y)):
        close(got)


@pytest.mark.parametrize("rows", ["rows", 3])
def test_results_go_to_buffers(rows: int | str) -> None:
    program = compiled(model(rows=rows))
    out = tuple(np.full(part.shape, np.nan, "float32") for part in right())
    assert program(X, Y, out=out) is out
    close(out)
    close(program(x=X, y=Y, out=list(out)))
    swapped = (X.copy(), np.zeros_like(X), np.zeros((2, 2), "float32"), Y.copy())
    program(swapped[0], swapped[3], out=(swapped[3], swapped[1], swapped[2], swapped[0]))
    np.testing.assert_array_equal(swapped[3], X - Y)
    np.testing.assert_array_equal(swapped[0], Y)


def test_writing_to_a_result_changes_nothing_else(program: uc.Program) -> None:
    torch = pytest.importorskip("torch")
    given = torch.from_numpy(np.tile(Y, (100, 1)))  # aligned, so the program reads it where it is
    x = np.tile(X, (100, 1))
    expected = right(x, given.numpy().copy())
    for _ in range(2):
        got = list(program(x, given))
        for number, result in enumerate(got):
            np.testing.assert_array_equal(np.asarray(result), expected[number])
            np.asarray(result)[...] = -7


def test_tensors_of_pytorch_go_in_and_out(program: uc.Program) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y)
    first = torch.from_dlpack(program(x, y)[0])
    torch.testing.assert_close(first, (x - y).detach())
    out = tuple(torch.empty(part.shape) for part in right())
    assert program(x, y, out=out) is out
    torch.testing.assert_close(out[0], first)


def test_benchmark_takes_an_input_named_like_its_own_argument() -> None:
    timing = compiled(model("seconds", "y")).benchmark({"seconds": X, "y": Y}, seconds=0.01)
    assert timing["runs"] >= 20


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[:4096] + bytes([data[4096] ^ 1]) + data[4097:],
        lambda data: b"",
    ],
    ids=["half", "without its last byte", "one bit", "empty"],
)
def test_a_damaged_library_is_refused(saved: Path, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    (tmp_path / "damaged.so").write_bytes(damage(saved.read_bytes()))
    with pytest.raises(CollageError, match=r"damaged\.so cannot be loaded as a program: its? ") as refused:
        uc.load(tmp_path / "damaged.so")
    assert "\n" not in str(refused.value)


def test_another_library_is_not_even_opened(tmp_path: Path) -> None:
    """A library whose constructor ends the process."""
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void go(void) { _Exit(3); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    with pytest.raises(CollageError, match="it is a library, but not a saved program"):
        uc.load(library)


def test_a_loaded_program_outlives_its_file(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "moved.so").write_bytes(saved.read_bytes())
    loaded = uc.load(tmp_path / "moved.so")
    (tmp_path / "moved.so").unlink()
    close(loaded(X, Y))
    loaded.save(tmp_path / "again.so")
    close(pickle.loads(pickle.dumps(loaded))(X, Y))
    close(uc.load(tmp_path / "again.so")(X, Y))


def test_a_program_goes_to_a_new_process(program: uc.Program, tmp_path: Path) -> None:
    (tmp_path / "program.pickle").write_bytes(pickle.dumps(program))
    code = (
        "import pickle, sys, numpy as np\n"
        "program = pickle.load(open(sys.argv[1], 'rb'))\n"
        "ones, zeros = np.ones((1, 16), 'float32'), np.zeros((1, 16), 'float32')\n"
        "print(repr(program), np.asarray(program(ones, zeros)[0]).sum())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "program.pickle")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == (f"{DESCRIPTION} 16.0\n", "")


def test_a_program_is_called_from_many_threads(program: uc.Program) -> None:
    inputs = [random(rows, 16, seed=rows) for rows in range(1, 33)]

    def is_right(x: np.ndarray) -> bool:
        return np.array_equal(np.asarray(program(x, x[::-1])[0]), x - x[::-1])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_right, inputs * 8))


def test_a_forked_child_loads_saves_and_pickles(saved: Path) -> None:
    loaded = uc.load(saved)
    child = os.fork()
    if child == 0:
        try:
            close(pickle.loads(pickle.dumps(loaded))(X, Y))
            os._exit(0)
        finally:
            os._exit(1)
    close(pickle.loads(pickle.dumps(loaded))(X, Y))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_program_for_another_processor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("calling.processor", "program.facts"):
        monkeypatch.setattr(f"unity_collage.{module}.instruction_sets", lambda _: ["avx4096"])
    compiled(model()).save(tmp_path / "newer.so")
    with pytest.raises(CollageError, match="it was compiled for a processor with avx4096, which "):
        uc.load(tmp_path / "newer.so")
    with pytest.raises(
        CollageError, match="the program cannot run here: it was compiled for a processor with avx4096"
    ):
        compiled(model())(X, Y)
