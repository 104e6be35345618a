"""A small network on two devices: the first layer on one, the second layer on the other, with one copy between.

The types of the module say where each value is, and ``R.to_vdevice`` copies a value to another device. Here both
devices are this machine's processor, under two numbers. Each kernel is measured and compiled for the target of its own
device.
"""

import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

import unity_collage as uc

RNG = np.random.default_rng(0)
FIRST, SECOND = (RNG.standard_normal(shape, dtype="float32") / 8 for shape in ((64, 128), (128, 10)))


def network() -> tvm.IRModule:
    """``relu(x @ FIRST) @ SECOND``, split behind the first layer."""
    near, far = (relax.VDevice(uc.host_target(), number, "global") for number in (0, 1))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 64), "float32", near))
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(relax.op.matmul(x, relax.const(FIRST))))
            there = builder.emit(relax.op.to_vdevice(hidden, far))
            scores = builder.emit_output(relax.op.matmul(there, relax.const(SECOND)))
        builder.emit_func_output(scores)
    return builder.get()


def main() -> None:
    program = uc.compile(network())
    print("devices:", ", ".join(program.devices))
    print(program.signature)
    for kernel in program.plan["main"].kernels:
        print(f"  {kernel.backend} {kernel.label}")

    x = RNG.standard_normal((8, 64), dtype="float32")
    scores = program(x)
    print("scores are on", scores.device)
    np.testing.assert_allclose(scores.numpy(), np.maximum(x @ FIRST, 0) @ SECOND, rtol=1e-4, atol=1e-4)
    print("numbers agree with numpy")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.so"
        program.save(path)
        loaded = uc.load(path)
        np.testing.assert_array_equal(loaded(x).numpy(), scores.numpy())
    print("loaded on", ", ".join(loaded.devices), "with the same numbers")


if __name__ == "__main__":
    main()
