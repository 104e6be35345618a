"""Resize and Upsample: modes, transforms, sizes and scales against ONNX Runtime, onnx's evaluator and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_case
import pytest

rng = np.random.default_rng(3)
IMAGE = rng.standard_normal((1, 2, 5, 7)).astype("float32")
NONE = np.zeros(0, "float32")


def _resize(
    x: np.ndarray, scales: Any = None, sizes: Any = None, opset: int = 18, roi: Any = None, **more: Any
) -> tuple[Any, dict[str, np.ndarray]]:
    inputs: dict[str, Any] = {"x": x}
    constant = more.pop("constant", True)
    if opset >= 11:
        inputs["roi"] = NONE if roi is None and opset < 13 else (None if roi is None else np.float32(roi))
        inputs["scales"] = (NONE if opset < 13 else None) if scales is None else np.float32(scales)
        if sizes is not None:
            inputs["sizes"] = np.int64(sizes)
    else:
        inputs["scales"] = np.float32(scales)
    known = [name for name in ("roi", "scales", "sizes") if inputs.get(name) is not None]
    dims = more.pop("dims", None)
    model = onnx_case.one_node(
        "Resize", inputs, opset=opset, constant=known if constant else [], dims=dims, **more
    )
    return model, {name: array for name, array in inputs.items() if array is not None}


@pytest.mark.parametrize("opset", [10, 11, 13, 18, 19])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 1.6, 0.7)])
def test_every_version_scales_as_onnx_runtime(opset: int, mode: str, scales: tuple[float, ...]) -> None:
    onnx_case.check(*_resize(IMAGE, scales, opset=opset, mode=mode))


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
def test_nearest_rounds_as_onnx_runtime(nearest: str, transform: str) -> None:
    attributes = {"nearest_mode": nearest, "coordinate_transformation_mode": transform}
    onnx_case.check(*_resize(IMAGE, sizes=(1, 2, 8, 4), mode="nearest", **attributes))


@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 2, 8, 4), (1, 2, 1, 14)])
def test_transforms_agree_with_onnx_runtime(transform: str, mode: str, sizes: tuple[int, ...]) -> None:
    onnx_case.check(
        *_resize(IMAGE, sizes=sizes, mode=mode, coordinate_transformation_mode=transform), atol=1e-4
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
        {"mode": "linear", "antialias": 1},
        {"mode": "cubic", "antialias": 1},
        {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_filters_agree_with_the_reference(attributes: dict[str, Any], constant: bool) -> None:
    model, feeds = _resize(IMAGE, (1, 1, 0.6, 0.45), opset=19, constant=constant, **attributes)
    onnx_case.check(model, feeds, want=onnx_case.by_reference(model, feeds), atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_crop_agrees_with_the_reference(mode: str) -> None:
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 9.0,
    }
    roi = (0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7)
    model, feeds = _resize(IMAGE, sizes=(1, 2, 3, 5), roi=roi, **attributes)
    onnx_case.check(model, feeds, want=onnx_case.by_reference(model, feeds), atol=1e-4)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("constant", [True, False])
def test_the_aspect_ratio_is_kept(policy: str, constant: bool) -> None:
    model, feeds = _resize(
        IMAGE, sizes=(9, 8), axes=[2, 3], constant=constant, mode="linear", keep_aspect_ratio_policy=policy
    )
    onnx_case.check(model, feeds, want=onnx_case.by_reference(model, feeds))


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_any_rank_is_resized(shape: tuple[int, ...], mode: str) -> None:
    x = rng.standard_normal(shape).astype("float32")
    model, feeds = _resize(x, sizes=[size + 2 for size in shape], mode=mode)
    onnx_case.check(model, feeds, want=onnx_case.by_reference(model, feeds))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [2.0, 1.5])
def test_symbolic_sizes_are_resized(mode: str, scale: float) -> None:
    model, feeds = _resize(IMAGE, (1, 1, scale, scale), dims={"x": [1, 2, "h", "w"]}, mode=mode)
    onnx_case.check(model, feeds)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("shape", [(1, 2, 5, 7), (5, 7), (1, 2, 3, 5, 7)])
def test_integers_are_cut_as_onnx_runtime_cuts_them(dtype: str, shape: tuple[int, ...]) -> None:
    x = (rng.standard_normal(shape) * 40 + 10).astype(dtype)
    sizes = (*shape[:-2], 10, 14)
    onnx_case.check(*_resize(x, sizes=sizes, mode="linear"))


def test_an_image_of_equal_integers_stays_so() -> None:
    x = np.full((1, 1, 8, 8), 200, "uint8")
    model, feeds = _resize(x, sizes=(1, 1, 13, 11), mode="linear")
    onnx_case.check(model, feeds, want=[np.full((1, 1, 13, 11), 200, "uint8")])


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "ceil"])
@pytest.mark.parametrize("scales", [(1, 1, 1.5, 0.7), (1, 1, 0.3, 2.3)])
@pytest.mark.parametrize("constant", [True, False])
def test_aligned_corners_of_fractional_sizes(nearest: str, scales: tuple[float, ...], constant: bool) -> None:
    attributes = {
        "mode": "nearest",
        "coordinate_transformation_mode": "align_corners",
        "nearest_mode": nearest,
    }
    onnx_case.check(*_resize(IMAGE, scales, constant=constant, **attributes))
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    onnx_case.check(*_resize(IMAGE, scales, constant=constant, **attributes))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_element_types_are_kept(dtype: str) -> None:
    x = (IMAGE * 40 + 128).astype(dtype)
    model, feeds = _resize(x, sizes=(1, 2, 9, 4), mode="linear")
    onnx_case.check(model, feeds, want=onnx_case.by_reference(model, feeds), rtol=1e-3)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_7_and_9_scale_as_onnx_runtime(mode: str) -> None:
    scales = [1.0, 1.0, 2.0, 1.5]
    onnx_case.check(
        onnx_case.one_node("Upsample", {"x": IMAGE}, opset=7, mode=mode, scales=scales), {"x": IMAGE}
    )
    inputs = {"x": IMAGE, "scales": np.float32(scales)}
    onnx_case.check(onnx_case.one_node("Upsample", inputs, opset=9, constant=["scales"], mode=mode), inputs)


@pytest.mark.parametrize(("mode", "sizes"), [("nearest", (1, 2, 15, 14)), ("linear", (1, 2, 10, 14))])
def test_common_cases_are_one_operator_of_relax(mode: str, sizes: tuple[int, ...]) -> None:
    from unity_collage.frontend.onnx.importer import imported

    model, _ = _resize(IMAGE, sizes=sizes, mode=mode)
    assert "R.image.resize2d" in imported(model)[0].script()
