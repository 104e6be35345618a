"""TVM's own tuning between our passes: extract tasks, tune, apply the database.

Our passes choose and outline the kernels. MetaSchedule tunes those of TVM; a kernel for which it finds no schedule gets
ours. Needs the extra ``tune``. ``EstimateCosts(tune_trials=N)`` is another way: it tunes before the plan is made, and
tunes only kernels that could change the plan.
"""

import logging
import tempfile

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.s_tir.meta_schedule import Database
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import passes
from unity_collage.measure import tuning

TRIALS = 4
"""For each kernel; hundreds are usual."""


@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor((32, 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor(
        (32, 64), "float32"
    ):
        with R.dataflow():
            product = R.matmul(x, w)
            result = R.nn.softmax(product)
            R.output(result)
        return result


def main() -> None:
    if (reason := tuning.why_unavailable()) is not None:
        raise SystemExit(reason)
    logging.disable(logging.INFO)
    with uc.host_target() as target, tempfile.TemporaryDirectory() as folder:
        mod = Layer
        *before, _fuse, _branches = uc.collage(backends=["tvm"]).passes
        for step in [*before, passes.FuseRemaining(schedule=False)]:
            mod = step(mod)
        with tune(mod, target, folder):
            mod = relax.transform.MetaScheduleApplyDatabase()(mod)
        done = [func for func in mod.functions.values() if "tirx.is_scheduled" in (func.attrs or {})]
        print("kernels with a tuned schedule:", sum(isinstance(func, tirx.PrimFunc) for func in done))
        mod = passes.FuseRemaining()(mod)
        machine = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, dtype="float32") for shape in ((32, 64), (64, 64)))
    got = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
    expected = np.exp(x @ w - (x @ w).max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, expected / expected.sum(axis=1, keepdims=True), rtol=1e-3, atol=1e-5)
    print("numbers agree with numpy")


def tune(mod: tvm.ir.IRModule, target: tvm.target.Target, folder: str) -> Database:
    """The ordinary flow, with kernels built and timed on the pool that will run them."""
    tuning.register_cpu_intrinsics()
    from tvm.s_tir.meta_schedule import relax_integration
    from tvm.s_tir.meta_schedule.tune import tune_tasks

    tasks = relax_integration.extract_tasks(mod, target)
    print("to be tuned:", ", ".join(task.task_name for task in tasks))
    contexts, weights = relax_integration.extracted_tasks_to_tune_contexts(tasks, folder, seed=0)
    database = tune_tasks(
        tasks=contexts,
        task_weights=weights,
        work_dir=folder,
        max_trials_global=TRIALS * len(tasks),
        max_trials_per_task=TRIALS,
        num_trials_per_iter=TRIALS,
        builder=tuning.local_builder(uc.num_threads()),
        runner=tuning.local_runner(uc.num_threads()),
    )
    print("tuned:", len(database), "schedules tried")
    return database


if __name__ == "__main__":
    main()
