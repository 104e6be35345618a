"""The MNIST program of the Collage RFC, stage by stage as TVMScript.

Run it to see what each pass adds: candidates, costs, the plan, calls of libraries, kernels.
"""

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc

rng = np.random.default_rng(0)
W1 = relax.const(rng.standard_normal((8, 1, 5, 5), dtype="float32") * 0.2)
B1 = relax.const(rng.standard_normal((1, 8, 1, 1), dtype="float32") * 0.1)
W2 = relax.const(rng.standard_normal((16, 8, 5, 5), dtype="float32") * 0.1)
B2 = relax.const(rng.standard_normal((1, 16, 1, 1), dtype="float32") * 0.1)
W3 = relax.const(rng.standard_normal((256, 10), dtype="float32") * 0.1)
B3 = relax.const(rng.standard_normal((10,), dtype="float32") * 0.1)


@I.ir_module
class Mnist:
    @R.function
    def main(x: R.Tensor((1, 1, 28, 28), "float32")) -> R.Tensor((1, 10), "float32"):
        with R.dataflow():
            conv1 = R.nn.conv2d(x, W1, padding=(2, 2))
            relu1 = R.nn.relu(R.add(conv1, B1))
            pool1 = R.nn.max_pool2d(relu1, (2, 2), strides=(2, 2))
            conv2 = R.nn.conv2d(pool1, W2, padding=(2, 2))
            relu2 = R.nn.relu(R.add(conv2, B2))
            pool2 = R.nn.max_pool2d(relu2, (3, 3), strides=(3, 3))
            flat = R.reshape(pool2, (1, 256))
            result = R.add(R.matmul(flat, W3), B3)
            R.output(result)
        return result


def main() -> None:
    mod = Mnist
    with uc.host_target() as target:
        for stage in uc.collage().passes:
            mod = stage(mod)
            print(f"\n# ---- after {stage.info.name}\n{mod.script()}")
        machine = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())
    image = rng.standard_normal((1, 1, 28, 28), dtype="float32")
    print("scores:", machine["main"](tvm.runtime.tensor(image)).numpy().round(3))


if __name__ == "__main__":
    main()
