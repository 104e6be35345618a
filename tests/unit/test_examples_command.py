"""``unity-collage examples``: the models that the documents speak of, the same on every machine."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from unity_collage.cli import main as cli
from unity_collage.errors import ModelError
from unity_collage.examples import EXAMPLES, example, random_inputs_of

DIGEST = "b84b81574b9a9039ec14defae10bd80b03a41a6b2f33cf75bbe4d2b88413c936"
"""Of the kernel of ``small``, to three digits."""


def test_all_examples_are_listed_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["examples"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXAMPLES)
    assert all(each.about in line for each, line in zip(EXAMPLES.values(), lines, strict=True))


@pytest.mark.parametrize("name", ["small", "mnist_mlp", "squeezenet"])
def test_an_example_is_a_model_with_inputs(name: str, tmp_path: Path) -> None:
    path, inputs = tmp_path / "model.onnx", tmp_path / "inputs.npz"
    assert cli.main(["examples", name, "-o", str(path), "--inputs", str(inputs)]) == 0
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    stored = np.load(inputs)
    weights = {tensor.name for tensor in model.graph.initializer}
    assert set(stored.files) == {value.name for value in model.graph.input} - weights
    assert len(model.graph.node) > 3


def test_weights_are_the_same_on_every_machine() -> None:
    weights = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in example("small").make().graph.initializer
    }
    assert {name: array.shape for name, array in weights.items()} == {
        "kernel": (32, 3, 3, 3),
        "matrix": (32, 10),
    }
    digest = hashlib.sha256(np.round(weights["kernel"], 3).tobytes()).hexdigest()
    assert digest == DIGEST


def test_the_name_of_the_file_is_that_of_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["examples", "small"]) == 0
    assert capsys.readouterr().out == "wrote small.onnx\n"
    assert (tmp_path / "small.onnx").is_file()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["smal"], "no example is called 'smal'; did you mean small?"),
        (["-o", "x.onnx"], "name the example to write"),
        (["small", "-o", "none/x.onnx"], "--output none/x.onnx cannot be written"),
        (["small", "--inputs", "-"], "--inputs - is not possible"),
        (["small", "-o", "x.so"], "--output x.so: the name of the file ends in .onnx"),
        (
            ["small", "-o", "x.onnx", "--inputs", "x.onnx"],
            "--inputs x.onnx: the name of the file ends in .npz",
        ),
    ],
)
def test_mistakes_are_one_line(
    words: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["examples", *words]) == (1 if "cannot be written" in reason else 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
    assert not list(tmp_path.iterdir())


def test_an_unknown_example_names_those_that_there_are() -> None:
    with pytest.raises(ModelError, match="there are: small, mnist_mlp, squeezenet, resnet50, bert_base_128"):
        example("alexnet")


def test_integer_inputs_index_what_they_read() -> None:
    ids = random_inputs_of(example("bert_base_128").make())["ids"]
    assert ids.dtype == np.int64 and ids.shape == (1, 128) and ids.min() >= 0


def test_neither_tvm_nor_torch_is_needed(tmp_path: Path) -> None:
    text = (
        "import sys\n"
        "sys.modules['tvm'] = sys.modules['torch'] = None\n"
        "from unity_collage.cli import main\n"
        f"sys.exit(main.main(['examples', 'small', '-o', {str(tmp_path / 'small.onnx')!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
