"""Whether a program can run on this processor: Linux is asked first, and LLVM only where that does not settle it."""

from __future__ import annotations

import pytest
from tvm.target import codegen

from unity_collage.calling import processor


@pytest.fixture
def without_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("LLVM was asked")

    monkeypatch.setattr(codegen, "llvm_get_cpu_features", asked)


@pytest.mark.parametrize(
    ("linux", "required"),
    [
        ("avx512_vnni avx512_bf16 avx512f", ["avx512bf16", "avx512f", "avx512vnni"]),
        ("sse4_1 sse4_2 pni ssse3 abm", ["lzcnt", "sse3", "sse4.1", "sse4.2", "ssse3"]),
        ("bmi1 bmi2 sha_ni amx_tile", ["amx-tile", "bmi", "bmi2", "sha"]),
        ("", []),
    ],
)
def test_names_of_linux_are_those_of_llvm(
    linux: str, required: list[str], monkeypatch: pytest.MonkeyPatch, without_llvm: None
) -> None:
    monkeypatch.setattr(
        processor.Path, "read_text", lambda *_, **__: f"processor\t: 0\nflags\t\t: {linux}\nbugs\t\t: x\n"
    )
    processor._names_of_linux.cache_clear()
    try:
        assert processor.why_not_here(required) is None
    finally:
        processor._names_of_linux.cache_clear()


def test_llvm_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_names_of_linux", frozenset)
    cpu = codegen.llvm_get_system_cpu()
    assert (
        processor.why_not_here(["avx4096"])
        == f"it was compiled for a processor with avx4096, which {cpu} lacks"
    )
