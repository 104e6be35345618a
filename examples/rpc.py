"""Another machine measures the kernels that this one makes. Here the tracker and the server run on this machine too.

On a real farm the tracker runs on any machine, and each machine that measures runs

    python -m unity_collage.measure.remote.server --tracker TRACKER:9190 --key board

Needs the extra ``rpc``.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import passes
from unity_collage.annotations import COSTS
from unity_collage.measure.remote import RemoteCost, why_unavailable


@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor((32, 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor(
        (32, 64), "float32"
    ):
        with R.dataflow():
            product = R.matmul(x, w)
            result = R.nn.relu(product)
            R.output(result)
        return result


def main() -> None:
    if (reason := why_unavailable()) is not None:
        raise SystemExit(reason)
    from tvm.rpc.tracker import Tracker

    tracker = Tracker("127.0.0.1", 9190, 9290, silent=True)
    address = f"127.0.0.1:{tracker.port}"
    command = ["-m", "unity_collage.measure.remote.server", "--tracker", address, "--key", "board"]
    command = [sys.executable, *command, "--host", "127.0.0.1"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            compile_for(address, Path(folder) / "costs.sqlite")
    finally:
        tracker.terminate()  # closed before the server; otherwise it would print a lost connection on standard error
        # With its own processes, which would look for the tracker for a minute.
        os.killpg(server.pid, signal.SIGTERM)


def compile_for(tracker: str, database: Path) -> None:
    model = RemoteCost(uc.CostDatabase(database), tracker=tracker, key="board")
    with model, model.target() as target:
        mod = passes.AnnotateCandidates(backends=("onednn", "tvm"))(passes.Prepare()(Layer))
        mod = passes.EstimateCosts(model)(mod)
        costs = COSTS.read(mod["main"]).by_key
        print("measured by 'board':", ", ".join(key.split(":")[0] for key in costs))
        again = COSTS.read(passes.EstimateCosts(model)(mod)["main"]).by_key
        if all(cost.origin == "database" for cost in again.values()):
            print("asked again: all from the database")
        for step in (passes.SearchPartition(), passes.OffloadBYOC(), passes.FuseRemaining()):
            mod = step(mod)
        machine = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, dtype="float32") for shape in ((32, 64), (64, 64)))
    got = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
    np.testing.assert_allclose(got, np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)
    print("numbers agree with numpy")


if __name__ == "__main__":
    main()
