"""Targets for CUDA as text: with the host and the limits that schedules ask for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

from unity_collage import target as targets
from unity_collage.annotations import UNSCHEDULED
from unity_collage.errors import CollageError
from unity_collage.lowering.fuse import fused
from unity_collage.target import device_of, fields_of, host_target, is_cuda, target_of, with_host
from unity_collage.testing.conformance.cases import function

H100 = "cuda -arch=sm_90"
OTHER_HOST = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"}


@pytest.mark.parametrize(
    "text",
    [
        H100,
        {"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 512},
        {"kind": "cuda", "arch": "sm_90", "host": OTHER_HOST},
        Target({"kind": "cuda", "arch": "sm_90", "tag": "", "keys": ["cuda", "gpu"]}),
        Target(Target({"kind": "cuda", "arch": "sm_90"}), host=Target(OTHER_HOST)),
    ],
    ids=["text", "fields", "fields with a host", "target", "target with a host"],
)
def test_a_target_is_the_same_after_json(text: str | Mapping[str, Any] | Target) -> None:
    made = target_of(text)
    again = Target(json.loads(str(made)))
    assert str(again) == str(made) and str(target_of(again)) == str(made)
    assert again.host is not None and str(again.host) == str(made.host)
    assert {**again.attrs} == {**made.attrs} and again.host.attrs.get("mcpu")


def test_the_host_is_this_machine_unless_it_is_named() -> None:
    here, made = fields_of(host_target()), fields_of(target_of(H100))["host"]
    assert all(made[name] == here[name] for name in ("kind", "mtriple", "mcpu"))
    named = fields_of(target_of({"kind": "cuda", "arch": "sm_90", "host": OTHER_HOST}))
    assert named["host"]["mcpu"] == "x86-64-v3"


def test_limits_are_those_of_all_gpus_unless_they_are_named() -> None:
    limits = ("max_threads_per_block", "max_shared_memory_per_block")
    plain = fields_of(with_host(Target({"kind": "cuda", "arch": "sm_90"})))
    assert [plain[name] for name in limits] == [1024, 49152]
    named = fields_of(target_of({"kind": "cuda", "arch": "sm_90", **dict.fromkeys(limits, 512)}))
    assert [named[name] for name in limits] == [512, 512]


def test_a_worker_that_reads_the_target_binds_loops_to_threads() -> None:
    """Workers get the target as text. Without its limits no rule schedules, and kernels run in one thread."""
    target = Target(json.loads(str(target_of(H100))))
    softmax = function(R.nn.softmax, [(64, 128)], "float16")
    for body in (softmax, function(R.nn.gelu, [(64, 128)])):
        with target:
            mod = fused(IRModule({"main": body}), target)
        kernels = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
        assert kernels and all("threadIdx.x" in kernel.script() for kernel in kernels)
        assert not any(UNSCHEDULED in (kernel.attrs or {}) for kernel in kernels)


def test_tensors_are_where_kernels_run() -> None:
    assert is_cuda(target_of(H100)) and not is_cuda(host_target())
    assert device_of(target_of(H100)) == tvm.cuda(0) and device_of(host_target()) == tvm.cpu(0)


@pytest.mark.parametrize("text", ["cuda", " cuda "])
def test_the_device_of_this_machine_must_be_there(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets.cuda, "why_unavailable", lambda: "libcuda.so.1 is missing")
    with pytest.raises(CollageError, match=r"no CUDA device to compile for: libcuda\.so\.1 is missing"):
        target_of(text)
