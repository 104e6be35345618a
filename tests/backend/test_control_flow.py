"""If, Loop and Scan of ONNX through the whole compiler: functions, branches and recursion with kernels of libraries."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from compiled import arrays, compiled, random
from onnx import parser

X = random(4, 16)


def model(text: str) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> main {text}')
    made.graph.initializer.append(onnx.numpy_helper.from_array(random(16, 16, seed=1), "w"))
    return made


def agrees(made: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> None:
    """Assert that one program gives what ONNX Runtime gives, for all feeds, twice."""
    program, session = compiled(made), onnxruntime.InferenceSession(made.SerializeToString())
    for given in (*feeds, *feeds):
        found, expected = arrays(program(**given)), session.run(None, given)
        found = found if isinstance(found, list | tuple) else [found]
        assert [got.shape for got in found] == [want.shape for want in expected]
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_branches_with_kernels_and_different_sizes() -> None:
    text = """(float[n,16] x, bool c) => (float[m,16] y) {
        h = MatMul(x, w)
        z = If (c) <then_branch = t () => (float[a,16] p) { p0 = MatMul(h, w) p = Relu(p0) },
                    else_branch = e () => (float[b,16] q) { q0 = Neg(h) q = Concat<axis = 0>(q0, x) }>
        y = Tanh(z) }"""
    agrees(model(text), *({"x": X[:rows], "c": np.array(c)} for rows in (4, 1) for c in (True, False)))


@pytest.mark.parametrize("count", ["m", ""])
def test_a_loop_that_ends_early_and_stacks(count: str) -> None:
    text = f"""(float[4,16] x, int64 m, float limit) => (float[4,16] y, float[k,4] z) {{
        first = Constant<value = int64[1] {{0}}> ()
        y, z = Loop ({count}, , x) <body =
            b (int64 i, bool going, float[4,16] v) => (bool on, float[4,16] u, float[4] s)
            {{ a = MatMul(v, w) u = Tanh(a) s = ReduceMax<axes = [1], keepdims = 0>(u)
               f = Cast<to = 1>(i) on = Less(f, limit) }}> }}"""
    limits = [(0, 5), (1, 5), (50, 5), (50, 30)] if count else [(0, 5), (0, -1), (0, 30)]
    feeds = [{"x": X, "m": np.array(m), "limit": np.array(limit, "float32")} for m, limit in limits]
    agrees(model(text), *feeds)


@pytest.mark.parametrize("length", ["6", "n"])
def test_a_scan_backwards(length: str) -> None:
    text = f"""(float[4,16] x, float[4,{length},16] s) => (float[4,16] y, float[4,k,16] z) {{
        y, z = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1], scan_output_axes = [1],
            body = b (float[4,16] v, float[4,16] r) => (float[4,16] u, float[4,16] o)
            {{ a = MatMul(v, w) c = Add(a, r) u = Sigmoid(c) o = Mul(u, r) }}> (x, s) }}"""
    lengths = [6] if length == "6" else [6, 1, 70]
    agrees(model(text), *({"x": X, "s": random(4, n, 16, seed=n)} for n in lengths))
