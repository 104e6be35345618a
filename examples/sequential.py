"""The passes one by one, with the text edited by hand in between.

The module's text has all that a pass hands to the next one. So after AnnotateCandidates this program deletes the first
candidate of oneDNN from the text. The other passes continue from the edited text: the plan cannot use that candidate.
"""

import re

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import passes


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
        mod = passes.Prepare()(Layer)
        mod = passes.AnnotateCandidates(backends=("onednn", "tvm"))(mod)

        text = mod.script(show_meta=True)
        candidate = re.search(r'\{"backend": "onednn", [^{}]*\}, ', text)
        assert candidate is not None
        print("struck out:", candidate[0])
        mod = tvm.script.from_source(text.replace(candidate[0], "", 1))

        mod = passes.EstimateCosts()(mod)
        mod = passes.SearchPartition()(mod)
        print(f"\n# ---- the plan\n{mod.script()}")
        mod = passes.OffloadBYOC()(mod)
        mod = passes.FuseRemaining()(mod)
        print(f"\n# ---- what is built\n{mod.script()}")
        machine = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())

    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape, dtype="float32") for shape in ((32, 64), (64, 64), (64,)))
    got = machine["main"](*(tvm.runtime.tensor(value) for value in (x, w, b))).numpy()
    np.testing.assert_allclose(got, np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-4)
    print("numbers agree with numpy")


if __name__ == "__main__":
    main()
