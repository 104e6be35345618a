"""The model zoo, and the numpy reference on whole models against ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
import zoo_models as models
from onnx import numpy_helper

from unity_collage import reference
from unity_collage.errors import ModelError
from unity_collage.frontend.models import import_model

ALL = (
    "bert_base_128",
    "inception_v1",
    "mnist_mlp",
    "mobilenetv2_100",
    "nasnet_a_mobile",
    "nasrnn",
    "resnet50",
    "resnext50_32x4d",
    "squeezenet",
    "vgg19",
    "vit_small_patch16_224",
)


def test_names_are_the_models_of_the_benchmarks():
    assert models.names() == ALL


def test_a_folder_of_other_graphs_has_its_own_names(tmp_path):
    onnx.save(models.load("mnist_mlp"), tmp_path / "mine.onnx")
    assert models.names(tmp_path) == ("mine",)
    assert len(models.load("mine", tmp_path).graph.node) == len(models.load("mnist_mlp").graph.node)


def test_weights_are_drawn_the_same_everywhere():
    first, second = models.load("mnist_mlp"), models.load("mnist_mlp")
    assert first.SerializeToString() == second.SerializeToString()
    onnx.checker.check_model(first)
    weights = [numpy_helper.to_array(tensor) for tensor in first.graph.initializer]
    assert sum(weight.size for weight in weights) == 203_530 + 2
    largest = max(weights, key=lambda weight: weight.size)
    np.testing.assert_allclose(largest.ravel()[:3], [-0.00430806, 0.00035828, 0.01095718], rtol=1e-4)


def test_an_unknown_name_is_one_clear_line():
    with pytest.raises(ModelError, match="no model named alexnet; there are bert_base_128, inception_v1"):
        models.load("alexnet")


def test_float_inputs_are_normal_and_differ_by_seed():
    model = models.load("nasrnn")
    first, again, other = (models.inputs(model, seed)["x"] for seed in (0, 0, 1))
    assert first.shape == (1, 8, 512) and first.dtype == np.float32
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert abs(first.std() - 1) < 0.1


def test_integer_inputs_stay_within_the_table_they_index():
    table = numpy_helper.from_array(np.zeros((17, 4), "float32"), "table")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["table", "ids"], ["out"])],
        "embedding",
        [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch", 1000])],
        [onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)],
        [table],
    )
    ids = models.inputs(onnx.helper.make_model(graph))["ids"]
    assert ids.shape == (1, 1000) and ids.dtype == np.int64
    assert (ids.min(), ids.max()) == (0, 16)


def test_the_command_writes_files_and_names_what_is_missing(tmp_path, capsys):
    assert models.main([str(tmp_path), "mnist_mlp"]) == 0
    assert onnx.load(tmp_path / "mnist_mlp.onnx") == models.load("mnist_mlp")
    assert models.main([str(tmp_path), "alexnet"]) == 1
    assert "no model named alexnet" in capsys.readouterr().err
    assert models.main([]) == 2


@pytest.mark.parametrize("name", ["mnist_mlp", "nasrnn", "squeezenet", "mobilenetv2_100"])
def test_the_reference_runs_whole_models(name):
    """Convolutions, clips as ``call_tir``, dropout, shape arithmetic, gathers: the numbers of ONNX Runtime."""
    model = models.load(name)
    given = models.inputs(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, given)
    mod = import_model(model).mod
    got = reference.run(mod["main"], list(given.values()), mod)
    for left, right in zip(got, want, strict=True):
        assert left.shape == right.shape and left.dtype == right.dtype
        assert np.abs(left - right).max() <= 1e-5 * np.ptp(right)
