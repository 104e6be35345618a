"""Single operators of ONNX, each as a model of its own: ours against ONNX Runtime, to find operators that are slow in
all backends.

usage: operators.py [NAME ...] [--database FILE] [--slower RATIO]

Both run in this process, one after the other, on as many threads; a ratio is ONNX Runtime's fastest run over the 5th
percentile of ours. ``NAME`` selects the operators with this prefix; ``--slower 1.5`` shows those where ours takes
1.5 times as long. What ONNX Runtime or our importer does not take has its message in place of a ratio.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import unity_collage as uc
from unity_collage.report import duration

OPSET = 20
IMAGE, TOKENS, SIGNAL = (1, 64, 64, 64), (1, 256, 768), (1, 128, 4096)
SECONDS = 0.3

Case = tuple[str, list[Any], dict[str, Any]]
"""The operator; a shape for each input, an array for each constant, None for what is left out; attributes."""

_UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu
Log Mish Neg Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Celu
IsNaN"""
_BINARY = "Add Div Equal Greater GreaterOrEqual Less Max Min Mul Pow Sub"
_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"


def cases() -> Iterator[tuple[str, Case]]:
    """All, by name."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (0.1 * rng.standard_normal(shape)).astype("float32")

    def whole(*numbers: int) -> np.ndarray:
        return np.array(numbers, "int64")

    for name in _UNARY.split():
        yield name, (name, [TOKENS], {})
    for name in _BINARY.split():
        yield name, (name, [TOKENS, TOKENS], {})
        yield f"{name} of rows", (name, [TOKENS, weights(768)], {})
    for name in _REDUCTIONS.split():
        yield f"Reduce{name} of rows", (f"Reduce{name}", [TOKENS, whole(-1)], {})
        yield f"Reduce{name} of columns", (f"Reduce{name}", [TOKENS, whole(1)], {})
        yield f"Reduce{name} of images", (f"Reduce{name}", [IMAGE, whole(2, 3)], {})
    for axis in (1, -1):
        for name in ("ArgMax", "Softmax", "LogSoftmax", "Hardmax", "LpNormalization"):
            yield f"{name} along {axis}", (name, [TOKENS], {"axis": axis})
        yield f"CumSum along {axis}", ("CumSum", [TOKENS, np.array(axis, "int64")], {})
        yield f"TopK along {axis}", ("TopK", [TOKENS, whole(5)], {"axis": axis})
    yield "PRelu of one slope", ("PRelu", [IMAGE, weights(1)], {})
    yield "PRelu of images", ("PRelu", [IMAGE, weights(64, 1, 1)], {})
    yield "PRelu of signals", ("PRelu", [SIGNAL, weights(128, 1)], {})
    yield "Clip", ("Clip", [TOKENS, np.float32(-1), np.float32(1)], {})
    yield "Pow by 3", ("Pow", [TOKENS, np.float32(3)], {})
    yield "Pow by 0.5", ("Pow", [TOKENS, np.float32(0.5)], {})
    yield "Where", ("Where", [rng.random(TOKENS) < 0.5, TOKENS, TOKENS], {})
    yield from _norms(weights)
    yield from _moves(weights, whole)
    yield from _windows(weights)
    yield from _products(weights)


def _norms(weights: Callable[..., np.ndarray]) -> Iterator[tuple[str, Case]]:
    scale = [weights(64), weights(64)]
    yield "BatchNormalization", ("BatchNormalization", [IMAGE, *scale, weights(64), np.abs(weights(64))], {})
    yield "InstanceNormalization", ("InstanceNormalization", [IMAGE, *scale], {})
    yield "GroupNormalization", ("GroupNormalization", [IMAGE, weights(8), weights(8)], {"num_groups": 8})
    yield "LayerNormalization", ("LayerNormalization", [TOKENS, weights(768), weights(768)], {})
    yield "LRN", ("LRN", [IMAGE], {"size": 5})
    yield "MeanVarianceNormalization", ("MeanVarianceNormalization", [IMAGE], {})


def _moves(
    weights: Callable[..., np.ndarray], whole: Callable[..., np.ndarray]
) -> Iterator[tuple[str, Case]]:
    for perm in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2), (0, 2, 1, 3)):
        yield f"Transpose {perm}", ("Transpose", [IMAGE], {"perm": perm})
    for axis in (1, 3):
        yield f"Concat along {axis}", ("Concat", [IMAGE, IMAGE, IMAGE], {"axis": axis})
        yield f"Split along {axis}", ("Split", [IMAGE], {"axis": axis, "num_outputs": 4})
        window = [whole(1), whole(63), whole(axis), whole(2)]
        yield f"Slice along {axis}", ("Slice", [IMAGE, *window], {})
        yield f"Gather along {axis}", ("Gather", [IMAGE, whole(*range(63, 0, -2))], {"axis": axis})
    backwards = [whole(-1), whole(-10_000), whole(3), whole(-1)]
    yield "Slice backwards", ("Slice", [IMAGE, *backwards], {})
    for mode in ("constant", "reflect", "edge"):
        yield f"Pad {mode}", ("Pad", [IMAGE, whole(0, 0, 2, 2, 0, 0, 2, 2)], {"mode": mode})
    yield "Tile", ("Tile", [IMAGE, whole(1, 1, 2, 2)], {})
    yield "Expand", ("Expand", [(1, 64, 1, 64), whole(*IMAGE)], {})
    yield "Trilu", ("Trilu", [(8, 256, 256)], {})
    yield "Embedding", ("Gather", [weights(8192, 768), whole(*range(256))], {})
    elements = np.argsort(weights(*TOKENS), axis=1)
    yield "GatherElements", ("GatherElements", [TOKENS, elements], {"axis": 1})
    yield "ScatterElements", ("ScatterElements", [TOKENS, elements, TOKENS], {"axis": 1})
    yield "GatherND", ("GatherND", [IMAGE[1:], np.argwhere(weights(64, 64) > 0)], {})
    yield "DepthToSpace", ("DepthToSpace", [IMAGE], {"blocksize": 2})
    yield "DepthToSpace CRD", ("DepthToSpace", [IMAGE], {"blocksize": 2, "mode": "CRD"})
    yield "SpaceToDepth", ("SpaceToDepth", [IMAGE], {"blocksize": 2})
    for mode in ("nearest", "linear", "cubic"):
        sizes = [None, None, whole(1, 64, 128, 128)]
        yield f"Resize {mode}", ("Resize", [IMAGE, *sizes], {"mode": mode})
    yield "GridSample", ("GridSample", [IMAGE, np.tanh(weights(1, 64, 64, 2) * 5)], {})
    yield "OneHot", ("OneHot", [np.arange(256) % 64, np.array(64), np.array([0, 1], "float32")], {})


def _windows(weights: Callable[..., np.ndarray]) -> Iterator[tuple[str, Case]]:
    for name in ("AveragePool", "MaxPool", "LpPool"):
        yield f"{name} 2x2", (name, [IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2]})
        yield f"{name} 3x3", (name, [IMAGE], {"kernel_shape": [3, 3], "pads": [1] * 4})
        yield f"{name} 1-D", (name, [SIGNAL], {"kernel_shape": [4], "strides": [4]})
        yield f"{name} 3-D", (name, [(1, 32, 16, 32, 32)], {"kernel_shape": [2] * 3, "strides": [2] * 3})
    yield "GlobalAveragePool", ("GlobalAveragePool", [IMAGE], {})
    yield "GlobalMaxPool", ("GlobalMaxPool", [IMAGE], {})
    yield "Conv 1x1", ("Conv", [IMAGE, weights(64, 64, 1, 1)], {})
    yield "Conv 3x3", ("Conv", [IMAGE, weights(64, 64, 3, 3)], {"pads": [1] * 4})
    yield "Conv dilated", ("Conv", [IMAGE, weights(64, 64, 3, 3)], {"pads": [2] * 4, "dilations": [2, 2]})
    yield "Conv 7x7 of 3", ("Conv", [(1, 3, 224, 224), weights(64, 3, 7, 7)], {"strides": [2, 2]})
    yield "Conv in 8 groups", ("Conv", [IMAGE, weights(64, 8, 3, 3)], {"group": 8, "pads": [1] * 4})
    for size in (3, 7):
        deep = {"group": 64, "pads": [size // 2] * 4}
        yield f"Conv {size}x{size} depthwise", ("Conv", [IMAGE, weights(64, 1, size, size)], deep)
    yield "Conv 1-D", ("Conv", [SIGNAL, weights(128, 128, 3)], {"pads": [1, 1]})
    yield "Conv 1-D 1", ("Conv", [SIGNAL, weights(128, 128, 1)], {})
    yield "Conv 1-D of 1", ("Conv", [(1, 1, 16000), weights(128, 1, 16)], {"strides": [8]})
    for dilation in (1, 8):
        deep = {"group": 128, "pads": [dilation] * 2, "dilations": [dilation]}
        yield f"Conv 1-D depthwise, dilation {dilation}", ("Conv", [SIGNAL, weights(128, 1, 3)], deep)
    volume = (1, 32, 16, 32, 32)
    yield "Conv 3-D", ("Conv", [volume, weights(32, 32, 3, 3, 3)], {"pads": [1] * 6})
    yield "Conv 3-D depthwise", ("Conv", [volume, weights(32, 1, 3, 3, 3)], {"group": 32, "pads": [1] * 6})
    double = {"strides": [2, 2], "pads": [1] * 4}
    yield "ConvTranspose 4x4", ("ConvTranspose", [IMAGE, weights(64, 64, 4, 4)], double)
    yield "ConvTranspose 2x2", ("ConvTranspose", [IMAGE, weights(64, 64, 2, 2)], {"strides": [2, 2]})
    yield "ConvTranspose 3x3", ("ConvTranspose", [IMAGE, weights(64, 64, 3, 3)], {"pads": [1] * 4})
    yield "ConvTranspose depthwise", ("ConvTranspose", [IMAGE, weights(64, 1, 4, 4)], double | {"group": 64})
    yield "ConvTranspose 1-D", ("ConvTranspose", [(1, 256, 2000), weights(256, 1, 16)], {"strides": [8]})


def _products(weights: Callable[..., np.ndarray]) -> Iterator[tuple[str, Case]]:
    yield "MatMul", ("MatMul", [TOKENS, weights(768, 768)], {})
    yield "MatMul of a row", ("MatMul", [(1, 768), weights(768, 768)], {})
    yield "MatMul of heads", ("MatMul", [(1, 12, 256, 64), (1, 12, 64, 256)], {})
    yield "MatMul of one by many", ("MatMul", [(256, 768), (4, 768, 64)], {})
    yield "MatMul by a vector", ("MatMul", [TOKENS, weights(768)], {})
    yield "Gemm transposed", ("Gemm", [(256, 768), weights(512, 768), weights(512)], {"transB": 1})
    yield "Gemm of a transposed", ("Gemm", [(768, 256), weights(768, 512), weights(512)], {"transA": 1})
    equation = {"equation": "bhid,bhjd->bhij"}
    yield "Einsum of heads", ("Einsum", [(1, 12, 256, 64), (1, 12, 256, 64)], equation)
    equation = {"equation": "bctk,ckd->btd"}
    yield "Einsum of two axes", ("Einsum", [(1, 16, 256, 32), weights(16, 32, 64)], equation)
    for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        size = 128
        inputs = [(32, 1, 64), weights(1, gates * size, 64), weights(1, gates * size, size)]
        yield name, (name, inputs, {"hidden_size": size})


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one operator, and random values for operands that are not constants."""
    operator, inputs, attributes = case
    rng = np.random.default_rng(1)
    constants, values, feeds = [], [], {}
    names = ["" if given is None else f"x{number}" for number, given in enumerate(inputs)]
    for name, given in zip(names, inputs, strict=True):
        if isinstance(given, tuple):
            feeds[name] = rng.uniform(0.1, 0.9, given).astype("float32")
            values.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, given))
        elif given is not None:
            constants.append(numpy_helper.from_array(np.asarray(given), name))
    if not feeds:  # indices alone
        first = constants.pop(0)
        feeds[first.name] = numpy_helper.to_array(first)
        values.append(helper.make_tensor_value_info(first.name, first.data_type, first.dims))
    count = {"Split": 4, "TopK": 2}.get(operator, 1)
    outputs = [helper.make_empty_tensor_value_info(f"y{number}") for number in range(count)]
    node = helper.make_node(operator, names, [output.name for output in outputs], **attributes)
    graph = helper.make_graph([node], operator, values, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model), feeds


def best_of(run: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    run()
    end, found = time.perf_counter() + SECONDS, []
    while time.perf_counter() < end or len(found) < 3:
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return min(found)


def ours(case: Case, database: str | None) -> tuple[float, str]:
    """Seconds, and the kernels."""
    model, feeds = model_of(case)
    program = uc.compile(model, database=database)
    seconds = program.benchmark(*feeds.values())["p5"]
    plan = (program.plan or {}).get("main")
    kernels = plan.kernels if plan is not None else ()
    return seconds, " ".join(f"{kernel.backend}:{kernel.label}" for kernel in kernels)


def theirs(case: Case) -> float:
    """Seconds of ONNX Runtime; its threads end with its session."""
    import onnxruntime  # pyright: ignore[reportMissingImports]

    model, feeds = model_of(case)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = uc.num_threads()
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    return best_of(lambda: session.run(None, feeds))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--database")
    parser.add_argument("--slower", type=float, metavar="RATIO", default=0.0)
    options = parser.parse_args(arguments)
    for name, case in cases():
        if options.names and not name.startswith(tuple(options.names)):
            continue
        try:
            peer = theirs(case)
            seconds, kernels = ours(case, options.database)
        except Exception as error:  # either side may refuse anything
            print(
                f"{name:36} {type(error).__name__}: {str(error).strip().splitlines()[-1][:120]}", flush=True
            )
            continue
        if seconds >= options.slower * peer:
            both = f"{duration(seconds):>8}  {duration(peer):>8}"
            print(f"{name:36} {peer / seconds:6.2f}x  {both}  {kernels}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
