"""A native module inside an exported Relax program runs in a process that has no compiler part of ours."""

import subprocess
import sys

import numpy as np
import pytest
from native_program import Program, random
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage import runtime

pytestmark = pytest.mark.skipif(
    runtime.why_unavailable("onednn") is not None, reason=str(runtime.why_unavailable("onednn"))
)


@I.ir_module
class Offloaded:
    """What is left of a program when its product went to a library."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 6), "float32"):
        with R.dataflow():
            y = R.call_dps_packed("native_product", (x,), out_ty=R.Tensor((4, 6), "float32"))
            z = R.add(y, y)
            R.output(z)
        return z


RUN = """
import sys
import numpy as np, tvm
from tvm import relax
from unity_collage import runtime
runtime.load("onednn")
vm = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
x, w = np.load(sys.argv[2]).values()
result = vm["main"](tvm.runtime.tensor(x)).numpy()
loaded_by_all = ("unity_collage.tvm_plugin", "unity_collage.ffi")
ours = [name for name in sys.modules if name.startswith("unity_collage.") and name not in loaded_by_all]
compiler = [name for name in ours if "runtime" not in name]
print(np.allclose(result, 2 * (x @ w), rtol=1e-4, atol=1e-5), compiler)
"""


def test_an_exported_program_brings_its_native_module_with_it(tmp_path):
    x, w = random(4, 8), random(8, 6, seed=1)
    program = Program("native_product")
    args = {"src": program.input(4, 8), "weights": program.constant(w), "dst": program.output(4, 6)}
    native = program.step("matmul", args).create("onednn")
    built = relax.build(Offloaded.with_attr("external_mods", [native]), "llvm")
    built.export_library(str(tmp_path / "model.so"))
    np.savez(tmp_path / "values.npz", x, w)
    command = [sys.executable, "-c", RUN, str(tmp_path / "model.so"), str(tmp_path / "values.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "[]"], done.stderr
