"""Where the system has no libgomp, a library of ours takes its name, and oneDNN runs on the pool as elsewhere."""

import json
import subprocess
import sys

import pytest
from native_program import Program

from unity_collage import runtime

SCRIPT = """
import json, sys
from dataclasses import replace
import numpy as np, tvm_ffi
from unity_collage import runtime
from unity_collage.runtime import libraries, vendors
vendors.VENDORS["onednn"] = replace(vendors.VENDORS["onednn"], system_library="libabsent.so.1")
print(json.dumps([path.name for path in libraries.needed_by(["onednn"])[-3:]]))
runtime.load("onednn")
runtime.set_num_threads(2)
main = tvm_ffi.get_global_func("collage.onednn.create")(sys.argv[1], b"").get_function("main")
x, y = np.eye(512, dtype="float32"), np.empty((512, 512), "float32")
main(*map(tvm_ffi.from_dlpack, (x, x, y)))
mapped = {line.split()[-1].rpartition("/")[2] for line in open("/proc/self/maps")}
print(json.dumps([bool((x == y).all()), "libgomp.so.1.0.0" in mapped, runtime.openmp_runtimes()]))
"""


def test_onednn_runs_where_the_system_has_no_libgomp() -> None:
    if reason := runtime.why_unavailable("onednn"):
        pytest.skip(reason)
    program = Program()
    left, right, result = program.input(512, 512), program.input(512, 512), program.output(512, 512)
    program.step("matmul", {"src": left, "weights": right, "dst": result})
    command = [sys.executable, "-c", SCRIPT, json.dumps({"programs": [program.text]})]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    needed, (is_right, has_libgomp, runtimes) = map(json.loads, done.stdout.splitlines())
    assert needed == ["libcollage_openmp.so", "libdnnl.so.3", "libcollage_onednn.so"]
    assert is_right
    assert not has_libgomp and not runtimes
