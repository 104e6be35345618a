"""The least that a kernel can need: arithmetic, bytes, and the machine they are set against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import relax as R

from unity_collage.annotations import LIFTED
from unity_collage.backends.registry import known
from unity_collage.cost.arithmetic import flops
from unity_collage.cost.bounds import least_seconds, work_for
from unity_collage.cost.model import Workload
from unity_collage.cost.windows import Axis
from unity_collage.cost.work import Work, work_of
from unity_collage.machine.peaks import MARGIN, SHARED_MARGIN, Machine
from unity_collage.testing.fake_backend import fake_backend

Body = Callable[..., relax.Expr]


def function(body: Body, *shapes: tuple[int, ...], lifted: int = 0, dtype: str = "float32") -> relax.Function:
    """``body`` of parameters of these shapes; the last ``lifted`` stand for constants."""
    params = [relax.Var(f"p{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*(builder.emit(param) for param in params)))
        builder.emit_func_output(result)
    return builder.finalize()["main"].with_attr(LIFTED, lifted)


def work(body: Body, *shapes: tuple[int, ...], lifted: int = 0, dtype: str = "float32") -> Work:
    return work_of(function(body, *shapes, lifted=lifted, dtype=dtype))


def convolution(**attrs: object) -> Body:
    return lambda x, w: R.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", **attrs)


def met(axis: Axis) -> tuple[int, bool, bool, bool]:
    return axis.products, axis.uses_every_window, axis.uses_every_tap, axis.uses_every_position


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (Axis(count=4, taps=1, stride=1, dilation=1, padding=0, extent=4), (4, True, True, True)),
        (Axis(count=4, taps=3, stride=1, dilation=1, padding=1, extent=4), (10, True, True, True)),
        (Axis(count=2, taps=1, stride=2, dilation=1, padding=0, extent=4), (2, True, True, False)),
        (Axis(count=1, taps=3, stride=1, dilation=1, padding=1, extent=1), (1, True, False, True)),
        (Axis(count=3, taps=3, stride=2, dilation=1, padding=0, extent=8), (9, True, True, False)),
        (Axis(count=2, taps=2, stride=1, dilation=2, padding=0, extent=4), (4, True, True, True)),
        (Axis(count=2, taps=1, stride=1, dilation=1, padding=1, extent=1), (1, False, True, True)),
    ],
)
def test_taps_in_the_padding_are_no_work(axis: Axis, expected: tuple[int, bool, bool, bool]) -> None:
    assert met(axis) == expected


@pytest.mark.parametrize(
    ("taps", "stride", "saving"),
    [(1, 1, 1.0), (2, 1, 1.75), (3, 1, 2.25), (5, 1, 2.5), (7, 1, 2.5), (3, 2, 1.75), (2, 2, 1.0)],
)
def test_winograd_saves_so_much_at_most(taps: int, stride: int, saving: float) -> None:
    assert Axis(8, taps, stride, 1, 0, 8).saving == saving


@pytest.mark.parametrize(
    ("body", "shapes", "expected"),
    [
        (R.matmul, ((3, 5), (5, 7)), 2 * 3 * 5 * 7),
        (R.matmul, ((4, 3, 5), (5, 7)), 2 * 4 * 3 * 5 * 7),
        (convolution(), ((1, 6, 6, 8), (1, 1, 8, 16)), 2 * 36 * 8 * 16),
        (convolution(), ((2, 6, 6, 8), (3, 3, 8, 16)), 2 * 2 * 16 * 9 * 8 * 16 / 2.25**2),
        (convolution(padding=(1, 1)), ((1, 4, 4, 1), (3, 3, 1, 1)), 2 * 10 * 10 / 2.25**2),
        (convolution(groups=8), ((1, 6, 6, 8), (1, 1, 1, 8)), 2 * 36 * 8),
        (R.nn.relu, ((8, 8),), 0),
    ],
)
def test_the_arithmetic_of_an_operator(
    body: Body, shapes: tuple[tuple[int, ...], ...], expected: float
) -> None:
    assert work(body, *shapes).flops == pytest.approx(expected)


def test_a_transposed_convolution_counts_as_its_mirror_image() -> None:
    forward = work(convolution(strides=(2, 2), padding=(1, 1)), (1, 9, 9, 4), (3, 3, 4, 6))
    back = work(
        lambda x, w: R.nn.conv2d_transpose(
            x, w, strides=(2, 2), padding=(1, 1), data_layout="NHWC", kernel_layout="HWOI"
        ),
        (1, 5, 5, 6),
        (3, 3, 4, 6),
    )
    assert back.flops == forward.flops > 0


def test_narrow_types_may_be_many_times_as_fast() -> None:
    assert (
        0 < work(R.matmul, (8, 8), (8, 8), dtype="float16").flops < work(R.matmul, (8, 8), (8, 8)).flops / 8
    )


def test_what_a_result_does_not_depend_on_is_no_work() -> None:
    """One row of the product is wanted: neither the product nor its left operand is needed as a whole."""

    def first_row(x: relax.Var, w: relax.Var) -> relax.Expr:
        return R.strided_slice(R.matmul(x, w), [0], [0], [1])

    assert work(first_row, (64, 32), (32, 16), lifted=1) == Work(0.0, 0, 0, 16 * 4)


def test_padding_that_is_written_out_may_be_left_out() -> None:
    def padded(x: relax.Var, w: relax.Var) -> relax.Expr:
        return R.nn.conv2d(R.nn.pad(x, (0, 0, 0, 0, 1, 1, 1, 1)), w)

    found = work(padded, (1, 4, 6, 6), (8, 4, 3, 3), lifted=1)
    assert found.flops == 0 and found.weight_bytes == 8 * 4 * 9 * 4


def test_bytes_go_to_weights_inputs_and_results() -> None:
    found = work(lambda x, y, w: R.nn.relu(R.add(R.matmul(x, w), y)), (4, 8), (4, 6), (8, 6), lifted=1)
    assert found == Work(2 * 4 * 8 * 6, 4 * 8 * 6, 4 * (32 + 24), 4 * 24)


@pytest.mark.parametrize(
    ("body", "shape", "read"),
    [
        (lambda x: R.nn.max_pool2d(x, (2, 2), (2, 2)), (1, 1, 4, 4), 64),
        (lambda x: R.nn.max_pool2d(x, (1, 1), (2, 2)), (1, 1, 4, 4), 0),
        (lambda x: R.nn.max_pool2d(x, (2, 2), (2, 2)), (1, 1, 5, 5), 0),
        (lambda x: R.take(x, R.const(np.array([0]), "int64"), axis=0), (4, 4), 0),
        (lambda x: R.mean(x, [1]), (4, 4), 64),
        (lambda x: R.where(R.greater(x, R.const(0.0)), x, x), (4, 4), 0),
    ],
)
def test_only_operands_that_count_as_a_whole_are_read(body: Body, shape: tuple[int, ...], read: int) -> None:
    assert work(body, shape).read_bytes == read


def test_unknown_extents_are_no_work() -> None:
    rows = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((rows, 4), "float32"))
    y = relax.Var("y", relax.TensorType((4, 4), "float32"))
    assert flops(relax.BlockBuilder().normalize(R.matmul(x, y))) == 0


MACHINE = Machine(
    threads=2,
    flops=1e9,
    reads=((1 << 10, 8e9), (1 << 20, 4e9), (1 << 24, 2e9)),
    writes=((1 << 10, 2e9), (1 << 20, 1e9)),
    weights=((1 << 22, 1e9), (1 << 26, 0.5e9)),
)


@pytest.mark.parametrize(
    ("done", "evict_bytes", "seconds"),
    [
        (Work(4e9, 0, 0, 0), 0, 2 / MARGIN),
        (Work(0, 0, 1 << 10, 0), 0, (1 << 10) / 16e9 / MARGIN),
        (Work(0, 0, 1 << 26, 0), 0, (1 << 26) / 8e9 / MARGIN),
        (Work(0, 0, 1 << 30, 0), 0, (1 << 30) / 4e9 / SHARED_MARGIN),
        (Work(0, 0, 0, 1 << 30), 0, (1 << 30) / 2e9 / MARGIN),
        (Work(0, 1 << 10, 0, 0), 0, (1 << 10) / 16e9 / MARGIN),
        (Work(0, 1 << 10, 0, 0), 3 << 20, (1 << 10) / 16e9 / MARGIN),
        (Work(0, 1 << 10, 0, 0), 1 << 22, (1 << 10) / 2e9 / SHARED_MARGIN),
        (Work(0, 1 << 10, 0, 0), 1 << 25, (1 << 10) / 2e9 / SHARED_MARGIN),
        (Work(0, 1 << 10, 0, 0), 1 << 26, (1 << 10) / 1e9 / SHARED_MARGIN),
        (Work(4e9, 1 << 30, 1 << 10, 1 << 10), 1 << 22, 2 / MARGIN),
    ],
)
def test_the_roofline_is_the_slowest_part(done: Work, evict_bytes: int, seconds: float) -> None:
    assert least_seconds(done, evict_bytes, MACHINE) == pytest.approx(seconds)


def test_data_somewhat_larger_than_a_cache_may_still_be_in_it() -> None:
    """Two megabytes over two threads do not yet count as out of the second level's reach."""
    assert MACHINE.read_seconds(2 << 20) * MARGIN == pytest.approx((2 << 20) / 16e9)


def test_multiplications_count_only_for_backends_that_do_them_as_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A library that may reorder products needs the bytes all the same; so does one that is not known."""
    func = function(R.matmul, (512, 512), (512, 512))
    known = {
        "sure": replace(fake_backend("sure"), multiplies_as_written=True),
        "maybe": fake_backend("maybe"),
    }
    monkeypatch.setattr("unity_collage.cost.bounds.find", known.get)
    work = {
        name: work_for(Workload("digest", name, "matmul", func, 0)) for name in ("sure", "maybe", "other")
    }
    assert work["sure"].flops == 2 * 512**3
    assert work["maybe"] == work["other"] == replace(work["sure"], flops=0.0)
    assert work["maybe"].read_bytes == 2 * 4 * 512**2


def test_the_backends_of_this_package_say_whether_they_multiply_as_written() -> None:
    """An engine of cuDNN may use a Fourier transform; what others have registered with TVM says nothing."""
    sure = {name for name, backend in known().items() if backend.multiplies_as_written}
    assert {"onednn", "openblas", "kernels", "cublas", "tvm"} <= sure and "cudnn" not in sure
    assert not fake_backend("toy").multiplies_as_written


def test_bytes_that_a_schedule_widens_count_as_wider_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuned schedule may use instructions that multiply bytes, so its bound counts on them."""
    func = function(lambda x, y: R.matmul(x, y, out_dtype="int32"), (512, 512), (512, 512), dtype="int8")
    widening = replace(fake_backend("widening"), multiplies_as_written=True, widens_bytes=True)
    known = {"widening": widening, "library": replace(widening, widens_bytes=False)}
    monkeypatch.setattr("unity_collage.cost.bounds.find", known.get)

    def counted(backend: str, schedule: str = "") -> float:
        return work_for(Workload("digest", backend, "matmul", func, 0, schedule)).flops

    assert counted("library") == counted("widening", "tuned") == 2 * 512**3 / 32
    assert counted("widening") == 2 * 512**3 / 2
