"""Targets as text, and the instruction sets of a processor."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tvm.target import Target

from unity_collage.calling.processor import instruction_sets, why_not_here
from unity_collage.errors import CollageError
from unity_collage.target import fields_of, host_target, target_of


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("llvm", {}),
        ("llvm -mcpu=skylake -num-cores=4", {"mcpu": "skylake", "num-cores": 4}),
        ("llvm  -mattr=+avx2,-avx512f  -mcpu=znver4", {"mcpu": "znver4", "mattr": ["+avx2", "-avx512f"]}),
        ('{"kind": "llvm", "mcpu": "skylake"}', {"mcpu": "skylake"}),
        ({"kind": "llvm", "mcpu": "skylake"}, {"mcpu": "skylake"}),
        (Target({"kind": "llvm", "mcpu": "skylake"}), {"mcpu": "skylake"}),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", {"mcpu": "neoverse-n1"}),
    ],
)
def test_a_target_is_text_json_or_fields(
    text: Target | str | Mapping[str, object], fields: dict[str, object]
) -> None:
    found = fields_of(target_of(text))
    assert found["kind"] == "llvm" and {name: found[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "'nonsense' is not a target: "),
        ("llvm -mcpu skylake", "an option is -name=value, such as -mcpu=znver4, not '-mcpu'"),
        ("llvm mcpu=skylake", "not 'mcpu=skylake'"),
        ("llvm -mcpu=nosuch", "LLVM knows no processor 'nosuch' of "),
        ("llvm -nosuch=3", "Unknown config option 'nosuch'"),
        ("llvm -num-cores=two", "is not a target: "),
        ("llvm -mcpu='x", "No closing quotation"),
        ('{"kind": "llvm"', "is not a target: Expecting"),
        ('{"mcpu": "skylake"}', "is not a target: "),
        (3, "'3' is not a target: "),
    ],
)
def test_what_is_not_a_target_says_why_in_one_line(text: object, reason: str) -> None:
    with pytest.raises(CollageError) as refused:
        target_of(text)  # pyright: ignore[reportArgumentType]
    assert reason in str(refused.value) and "\n" not in str(refused.value)


def test_a_program_needs_the_instruction_sets_of_its_target() -> None:
    assert why_not_here(instruction_sets(host_target())) is None
    assert why_not_here([]) is None
    newer = instruction_sets(target_of("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"))
    assert {"amx-tile", "avx512fp16", "fma"} <= set(newer) and "clflushopt" not in newer
    reason = why_not_here([*instruction_sets(host_target()), "avx4096"])
    assert reason is not None and reason.startswith("it was compiled for a processor with avx4096, which ")
