"""The scripts that a new process runs up to its first result, in each runtime.

Each script is given files and a number of threads.

A script ends with ``done(result)``, which prints the time of the machine's monotonic clock, the peak of its memory, and
the libraries that are mapped.
"""

from __future__ import annotations

_BEGIN = """
import sys
file, shape, threads = sys.argv[1], [int(size) for size in sys.argv[2].split("x")], int(sys.argv[3])
import numpy as np
def done(result):
    import time
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    import json
    first = float(np.asarray(result).ravel()[0])
    peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
    mapped = {line.split()[-1].rsplit("/", 1)[-1] for line in open("/proc/self/maps") if ".so" in line}
    assert "torch" not in sys.modules
    print(json.dumps({"clock": now, "peak": peak, "first": first, "libraries": sorted(mapped)}))
x = np.ones(shape, "float32")
"""

SCRIPTS = {
    "import numpy": _BEGIN + "done(x)",
    "unity_collage": _BEGIN
    + """
import unity_collage as uc
done(uc.load(file)(x))
""",
    "onnxruntime": _BEGIN
    + """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
done(session.run(None, {session.get_inputs()[0].name: x})[0])
""",
    "onnxruntime, optimized file": _BEGIN
    + """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
done(session.run(None, {session.get_inputs()[0].name: x})[0])
""",
    "openvino": _BEGIN
    + """
import openvino
core = openvino.Core()
settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
compiled = core.compile_model(core.read_model(file), "CPU", settings)
done(compiled([x])[0])
""",
    "openvino, cached": _BEGIN
    + """
import openvino
core = openvino.Core()
settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
compiled = core.compile_model(file, "CPU", {**settings, "CACHE_DIR": file + ".cache"})
done(compiled([x])[0])
""",
    "MNN": _BEGIN
    + """
import MNN.expr, MNN.nn
settings = {"backend": "CPU", "precision": "high", "numThread": threads}
manager = MNN.nn.create_runtime_manager((settings,))
network = MNN.nn.load_module_from_file(file, [], [], runtime_manager=manager)
done(network.forward([MNN.expr.const(x, shape, MNN.expr.NCHW)])[0].read())
""",
}
"""The scripts by runtime. ``import numpy`` is what all of them do first."""

CONVERT_ONNXRUNTIME = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.optimized_model_filepath = sys.argv[2]
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""
"""Writes the file that ONNX Runtime has optimized for this machine."""
