"""Names of ONNX values as names of variables."""

import pytest

from unity_collage.frontend.onnx.names import safe


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conv1", "conv1"),
        ("/model/embed.in:0", "model_embed_in_0"),
        ("0", "v0"),
        ("lambda", "lambda_"),
        ("R", "R_"),
        ("隐藏", "u9690u85cf"),
        ("...", "value"),
    ],
)
def test_a_name_is_an_identifier(name: str, expected: str) -> None:
    assert safe(name) == expected
    assert safe(name).isidentifier()
