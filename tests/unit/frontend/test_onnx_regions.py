"""GridSample, boxes, regions and transforms against ONNX Runtime, numpy and onnx's evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_case
import pytest

rng = np.random.default_rng(11)
IMAGE = rng.standard_normal((2, 3, 5, 6)).astype("float32")
VOLUME = rng.standard_normal((1, 2, 3, 4, 5)).astype("float32")


def _check(op: str, inputs: dict[str, Any], outputs: int = 1, want: Any = None, **more: Any) -> None:
    tolerance = more.pop("atol", 1e-5)
    model = onnx_case.one_node(op, inputs, outputs, **more)
    given = {name: array for name, array in inputs.items() if array is not None}
    onnx_case.check(model, given, want=want, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grid_sample_of_images(mode: str, padding: str, aligned: int) -> None:
    grid = rng.uniform(-1.8, 1.8, (2, 4, 3, 2)).astype("float32")
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    _check("GridSample", {"x": IMAGE, "g": grid}, opset=16, **attributes)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_of_volumes(mode: str, padding: str) -> None:
    grid = rng.uniform(-1.8, 1.8, (1, 2, 2, 3, 3)).astype("float32")
    dims = {"x": ["n", 2, "d", "h", "w"]}
    _check("GridSample", {"x": VOLUME, "g": grid}, opset=20, mode=mode, padding_mode=padding, dims=dims)


def test_grid_sample_reads_nothing_at_nan_and_far_outside() -> None:
    grid = np.float32([[[[np.nan, 0], [np.inf, 0], [1e30, -1e30]]]])
    _check("GridSample", {"x": IMAGE[:1], "g": grid}, want=[np.zeros((1, 3, 1, 3), "float32")], opset=16)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize(
    ("most", "overlap", "least"), [(3, 0.3, None), (20, 0.5, 0.4), (0, 0.5, 0.4), (None,) * 3]
)
def test_non_max_suppression(
    centred: int, most: int | None, overlap: float | None, least: float | None
) -> None:
    boxes = rng.uniform(0, 1, (2, 12, 4)).astype("float32")
    scores = np.round(rng.uniform(0, 1, (2, 3, 12)), 1).astype("float32")
    inputs: dict[str, Any] = {"b": boxes, "s": scores}
    for name, value, dtype in (("m", most, "int64"), ("o", overlap, "float32"), ("l", least, "float32")):
        if value is not None:
            inputs[name] = np.array([value], dtype)
    dims = {"b": [2, "n", 4], "s": [2, 3, "n"]}
    _check("NonMaxSuppression", inputs, opset=11, center_point_box=centred, dims=dims)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("transform", [None, "half_pixel", "output_half_pixel"])
def test_roi_align(mode: str, samples: int, transform: str | None) -> None:
    rois = np.float32([[0, 0, 4, 5], [1.3, 0.2, 9, 3], [-2, -1, 1, 1.5]])
    inputs = {"x": IMAGE, "r": rois, "b": np.int64([0, 1, 1])}
    attributes = {"mode": mode, "sampling_ratio": samples, "output_height": 2, "output_width": 3}
    if transform is None:
        _check("RoiAlign", inputs, opset=10, spatial_scale=0.7, **attributes)
    else:
        attributes |= {"coordinate_transformation_mode": transform}
        _check("RoiAlign", inputs, opset=16, spatial_scale=0.7, **attributes)


def test_max_roi_pool() -> None:
    rois = np.float32([[0, 0, 0, 4, 4], [1, 1, 2, 5, 3], [1, 3, 3, 9, 9]])
    _check("MaxRoiPool", {"x": IMAGE, "r": rois}, pooled_shape=[2, 3], spatial_scale=0.9)


@pytest.mark.parametrize("constant", [["i", "b"], []])
def test_col2im(constant: list[str]) -> None:
    columns = rng.standard_normal((2, 12, 12)).astype("float32")
    inputs = {"x": columns, "i": np.int64([5, 6]), "b": np.int64([2, 3])}
    attributes = {"pads": [1, 0, 0, 1], "strides": [2, 1], "dilations": [1, 2]}
    inputs["x"] = rng.standard_normal((2, 12, 9)).astype("float32")
    model = onnx_case.one_node("Col2Im", inputs, opset=18, constant=constant, **attributes)
    onnx_case.check(model, inputs, want=onnx_case.by_reference(model, inputs))


def _complex(values: np.ndarray) -> np.ndarray:
    return np.stack([values.real, values.imag], -1).astype("float32")


@pytest.mark.parametrize(("length", "axis"), [(None, 1), (None, -2), (8, -2), (4, 1)])
@pytest.mark.parametrize("opset", [17, 20])
def test_dft(length: int | None, axis: int, opset: int) -> None:
    x = rng.standard_normal((2, 6, 5)).astype("float32")
    at = 1 if axis == 1 else 2
    inputs: dict[str, Any] = {"x": x[..., None], "n": None if length is None else np.array(length)}
    attributes = {"axis": axis} if opset == 17 else {}
    if opset == 20:
        inputs["axis"] = np.array(axis)
    _check("DFT", inputs, want=[_complex(np.fft.fft(x, length, at))], opset=opset, **attributes)
    half = _complex(np.fft.rfft(x, length, at))
    known = [name for name, array in inputs.items() if name != "x" and array is not None]
    _check("DFT", inputs, want=[half], opset=opset, constant=known, onesided=1, **attributes)
    inputs["x"] = half
    back = np.fft.irfft(np.fft.rfft(x, length, at), length, at)[..., None].astype("float32")
    _check("DFT", inputs, want=[back], opset=opset, constant=known, onesided=1, inverse=1, **attributes)


@pytest.mark.parametrize("dims", [None, {"x": ["n", "t", 1]}])
@pytest.mark.parametrize("constant", [["step", "length"], []])
@pytest.mark.parametrize("window", [True, False])
def test_stft(dims: Any, constant: list[str], window: bool) -> None:
    x = rng.standard_normal((2, 50, 1)).astype("float32")
    weights = np.hanning(16).astype("float32") if window else None
    inputs = {"x": x, "step": np.array(5), "window": weights, "length": np.array(16)}
    _check("STFT", inputs, dims=dims, constant=constant, atol=1e-4)


def test_mel_weight_matrix() -> None:
    inputs = {"m": np.array(8), "n": np.array(64), "r": np.array(16000)}
    inputs |= {"low": np.array(20.0, "float32"), "high": np.array(7600.0, "float32")}
    _check("MelWeightMatrix", inputs)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(op: str, periodic: int) -> None:
    _check(op, {"n": np.array(10)}, periodic=periodic)
