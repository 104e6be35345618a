"""``relax.build(mod, target, relax_pipeline="collage")`` in a process that has imported only TVM."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

SCRIPT = """
import sys
import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

assert "unity_collage.compiler" not in sys.modules
W = np.random.default_rng(0).standard_normal((16, 16), dtype="float32")
K = relax.const(W)

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 16), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, K))
            R.output(y)
        return y

def run(executable):
    x = np.random.default_rng(1).standard_normal((4, 16), dtype="float32")
    got = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(got, np.maximum(x @ W, 0), rtol=1e-4, atol=1e-5)

target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
run(relax.build(Module, target, relax_pipeline="collage"))
run(relax.build(Module, target, relax_pipeline=relax.get_pipeline("collage", backends=["tvm"])))
run(relax.build(relax.get_pipeline("collage")(Module), target))  # TVM's own pipeline behind ours
assert "unity_collage.pipeline" in sys.modules
"""


@pytest.mark.skipif(
    not entry_points(group="tvm.backends", name="unity_collage"), reason="the package is not installed"
)
def test_the_pipeline_is_known_to_tvm_alone(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
