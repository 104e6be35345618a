"""Why an operator does not follow its operands into channels-last form, and that nothing is said where it does."""

from __future__ import annotations

import pytest
from test_channels_last import built, conv
from tvm import relax
from tvm.relax import op

from unity_collage.annotations import UNRECOGNISED
from unity_collage.passes.channels_last import ChannelsLast
from unity_collage.passes.prepare import Prepare

IMAGE = (1, 3, 8, 6)


def refusals(body) -> list[tuple[str, str]]:
    """The operators of a function of one image that stay, and why."""
    main = ChannelsLast()(built(IMAGE, lambda builder, x: body(builder.emit(conv(x)))))["main"]
    return [(miss.op, miss.reason) for miss in UNRECOGNISED.read(main)] if UNRECOGNISED.on(main) else []


@pytest.mark.parametrize(
    ("body", "operator", "reason"),
    [
        (
            lambda y: op.argmax(y),
            "argmax",
            "relax.argmax over all axes counts in the order of the original layout",
        ),
        (
            lambda y: op.image.resize2d(y, (4, 4), roi=(0.0, 0.0, 0.5, 0.5)),
            "image.resize2d",
            "a resize has a region of interest",
        ),
        (
            lambda y: op.nn.prelu(y, relax.const([[[0.1]], [[0.2]], [[0.3]], [[0.4]]], "float32")),
            "nn.prelu",
            "the second operand of relax.nn.prelu is not a vector",
        ),
    ],
)
def test_an_operator_that_stays_has_a_reason(body, operator: str, reason: str):
    ((found, why),) = refusals(body)
    assert found == f"relax.{operator}" and reason in why


@pytest.mark.parametrize(
    "body", [op.nn.relu, lambda y: op.concat((y, y), 1), lambda y: op.sum(y, 1), lambda y: op.permute_dims(y)]
)
def test_nothing_is_said_of_an_operator_that_follows(body):
    assert refusals(body) == []


def test_what_prepare_has_said_is_kept():
    mod = built(IMAGE, lambda builder, x: op.power(op.argmax(builder.emit(conv(x))), relax.const(3, "int64")))
    main = ChannelsLast()(Prepare()(mod))["main"]
    assert [miss.rule for miss in UNRECOGNISED.read(main)] == ["power_form", "channels_last"]
