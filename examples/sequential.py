"""The passes one by one, with the text edited by hand in between.

After AnnotateCandidates the module is printed, the first candidate of oneDNN is struck out of the text, and
the edited text goes on through the other passes.
"""

import re

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc


@I.ir_module
class Layer:
    @R.function
    def main(
        x: R.Tensor((32, 64), "float32"), w: R.Tensor((64, 64), "float32"), b: R.Tensor((64,), "float32")
    ) -> R.Tensor((32, 64), "float32"):
        with R.dataflow():
            product = R.matmul(x, w)
            biased = R.add(product, b)
            result = R.nn.relu(biased)
            R.output(result)
        return result


def main() -> None:
    with uc.host_target() as target:
        annotated = uc.passes.AnnotateCandidates(backends=("onednn", "tvm"))(uc.passes.Prepare()(Layer))
        text = annotated.script(show_meta=True)
        edited, count = re.subn(r'\{"backend": "onednn", [^{}]*\}, ', "", text, count=1)
        assert count == 1
        mod = tvm.script.from_source(edited)
        finish = tvm.transform.Sequential(
            [
                uc.passes.EstimateCosts(),
                uc.passes.SearchPartition(),
                uc.passes.OffloadBYOC(),
                uc.passes.FuseRemaining(),
            ]
        )
        mod = finish(mod)
        print(mod.script())
        machine = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape, dtype="float32") for shape in ((32, 64), (64, 64), (64,)))
    got = machine["main"](*(tvm.runtime.tensor(value) for value in (x, w, b))).numpy()
    np.testing.assert_allclose(got, np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-4)
    print("numbers agree with numpy")


if __name__ == "__main__":
    main()
