"""Whether a program can run on this processor: Linux is asked first, and LLVM only where that does not settle it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from io import StringIO

import pytest
from tvm.target import codegen

from unity_collage import target
from unity_collage.calling import processor
from unity_collage.runtime import instruction_sets
from unity_collage.schedule.cpu import CpuTraits


@pytest.fixture
def without_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("LLVM was asked")

    monkeypatch.setattr(codegen, "llvm_get_cpu_features", asked)


@pytest.fixture
def cpuinfo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A function that sets what Linux lists."""

    def lists(flags: str) -> None:
        text = f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: x\n"
        monkeypatch.setattr(instruction_sets.Path, "open", lambda *_, **__: StringIO(text))

    caches = (instruction_sets._names_of_linux, target._hidden)
    for each in caches:
        each.cache_clear()
    yield lists
    for each in caches:
        each.cache_clear()


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
    linux: str, required: list[str], cpuinfo: Callable[[str], None], without_llvm: None
) -> None:
    cpuinfo(linux)
    assert processor.why_not_here(required) is None


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="Linux has other names for ARM's instruction sets")
def test_linux_says_what_is_missing(cpuinfo: Callable[[str], None], without_llvm: None) -> None:
    cpuinfo("avx avx2")
    assert (
        processor.why_not_here(["amx-tile", "avx2"])
        == "it was compiled for a processor with amx-tile, which this one lacks"
    )


def test_llvm_says_what_is_missing_where_linux_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruction_sets, "_names_of_linux", frozenset)
    cpu = codegen.llvm_get_system_cpu()
    assert (
        processor.why_not_here(["avx4096"])
        == f"it was compiled for a processor with avx4096, which {cpu} lacks"
    )


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="Linux has other names for ARM's instruction sets")
def test_a_virtual_machine_may_hide_instruction_sets_of_its_model(
    cpuinfo: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codegen, "llvm_get_system_cpu", lambda: "emeraldrapids")
    cpuinfo(
        "pni ssse3 sse4_1 sse4_2 popcnt avx f16c fma avx2 bmi1 bmi2 movbe sse2"
    )  # neither AVX-512 nor AMX
    here = target.host_target()
    assert {"-amx-tile", "-avx512f", "-avxvnni"} <= set(here.attrs["mattr"])
    assert processor.instruction_sets(here) == sorted(
        [
            "sse2",
            "sse3",
            "ssse3",
            "sse4.1",
            "sse4.2",
            "popcnt",
            "avx",
            "f16c",
            "fma",
            "avx2",
            "bmi",
            "bmi2",
            "movbe",
        ]
    )
    assert processor.why_not_here(processor.instruction_sets(here)) is None
    assert CpuTraits.of(here).vector_bytes == 32
    assert target.fields_of(target.target_of(target.text_of(here))) == target.fields_of(here)
