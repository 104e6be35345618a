"""Libraries of custom operators: ONNX Runtime registers them in programs, in comparisons and as a peer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm.target import Target

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.errors import CollageError, ModelError
from unity_collage.kept import surroundings
from unity_collage.making import last_resorts_for
from unity_collage.runtime.custom_op_libraries import libraries_at
from unity_collage.sessions import RUNTIMES

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to build a library"),
    pytest.mark.skipif(
        RUNTIMES["onnxruntime"].why_unavailable() is not None, reason="onnxruntime is not installed"
    ),
]
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
X = np.array([-1, 0, 1, 2], np.float32)

SOURCE = r"""
#include <cstddef>
#include <cstdint>
#include <vector>

using Api = const void* const*;  // a function at each position of onnxruntime_c_api.h
struct ApiBase {
  Api (*get)(uint32_t);
};

template <typename... Args>
void Call(Api api, size_t position, Args... args) {
  reinterpret_cast<void* (*)(Args...)>(const_cast<void*>(api[position]))(args...);
}

struct Op {
  uint32_t version;
  void* (*create)(const Op*, Api, const void*);
  const char* (*name)(const Op*);
  const char* (*provider)(const Op*);
  int (*input_type)(const Op*, size_t);
  size_t (*inputs)(const Op*);
  int (*output_type)(const Op*, size_t);
  size_t (*outputs)(const Op*);
  void (*compute)(void*, void*);
  void (*destroy)(void*);
  size_t (*kinds[7])(const Op*, size_t);  // of operands and results: all are required, on the CPU
  void* newer[10];
};

struct Kernel {
  Api api;
  float by = 0;

  const float* Input(void* context, std::vector<int64_t>* shape) const {
    const void* value = nullptr;
    void *info = nullptr, *data = nullptr;
    Call(api, 90, context, size_t{0}, &value);
    Call(api, 65, value, &info);
    size_t rank = 0;
    Call(api, 61, info, &rank);
    shape->resize(rank);
    Call(api, 62, info, shape->data(), rank);
    Call(api, 99, info);
    Call(api, 51, const_cast<void*>(value), &data);
    return static_cast<const float*>(data);
  }

  void* Output(void* context, const std::vector<int64_t>& shape) const {
    void *value = nullptr, *data = nullptr;
    Call(api, 91, context, size_t{0}, shape.data(), shape.size(), &value);
    Call(api, 51, value, &data);
    return data;
  }
};

size_t SizeOf(const std::vector<int64_t>& shape) {
  size_t size = 1;
  for (int64_t each : shape) size *= static_cast<size_t>(each);
  return size;
}

// x * by + PLUS
void Foo(void* kernel, void* context) {
  const Kernel& self = *static_cast<Kernel*>(kernel);
  std::vector<int64_t> shape;
  const float* x = self.Input(context, &shape);
  float* y = static_cast<float*>(self.Output(context, shape));
  for (size_t i = 0; i < SizeOf(shape); ++i) y[i] = x[i] * self.by + PLUS;
}

// The places of numbers that are not 0.
void Places(void* kernel, void* context) {
  const Kernel& self = *static_cast<Kernel*>(kernel);
  std::vector<int64_t> shape, found;
  const float* x = self.Input(context, &shape);
  for (size_t i = 0; i < SizeOf(shape); ++i) {
    if (x[i] != 0) found.push_back(static_cast<int64_t>(i));
  }
  auto* y = static_cast<int64_t*>(self.Output(context, {static_cast<int64_t>(found.size())}));
  for (size_t i = 0; i < found.size(); ++i) y[i] = found[i];
}

template <bool kHasBy>
void* Create(const Op*, Api api, const void* info) {
  auto* kernel = new Kernel{api};
  if (kHasBy) Call(api, 85, info, "by", &kernel->by);
  return kernel;
}

constexpr int kFloat = 1, kInt64 = 7;
template <int kType>
int Type(const Op*, size_t) { return kType; }
size_t One(const Op*) { return 1; }
const char* Cpu(const Op*) { return nullptr; }
void Destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

size_t Zero(const Op*, size_t) { return 0; }

#define KINDS {Zero, Zero, Zero, Zero, Zero, Zero, Zero}
const Op kFoo{12, Create<true>, [](const Op*) { return "Foo"; }, Cpu, Type<kFloat>, One, Type<kFloat>, One, Foo,
              Destroy, KINDS};
const Op kPlaces{12, Create<false>, [](const Op*) { return "Places"; }, Cpu, Type<kFloat>, One, Type<kInt64>, One,
                 Places, Destroy, KINDS};

extern "C" void* ENTRY(void* options, const ApiBase* base) {
  const Api api = base->get(12);
  void* domain = nullptr;  // lives as long as the process
  Call(api, 26, "of.nobody", &domain);
  Call(api, 27, domain, &kFoo);
  Call(api, 27, domain, &kPlaces);
  Call(api, 28, options, domain);
  return nullptr;
}
"""


def _built(path: Path, plus: int = 1, entry: str = "RegisterCustomOps") -> Path:
    """A library with the operators Foo and Places, which is put in the place of an earlier one."""
    draft = path.with_suffix(".draft")
    command = ["g++", "-xc++", "-std=c++17", "-shared", "-fPIC", f"-DPLUS={plus}", f"-DENTRY={entry}", "-"]
    subprocess.run([*command, "-o", str(draft)], input=SOURCE, text=True, check=True)
    return draft.replace(path)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(tmp_path_factory.mktemp("operators") / "libfoo.so")


def _model(nodes: list[Any], shape: list[Any], result: tuple[Any, ...] = (FLOAT, None)) -> onnx.ModelProto:
    element, sizes = result
    graph = helper.make_graph(
        nodes,
        "custom",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", element, shape if sizes is None else sizes)],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("of.nobody", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _with_foo(*shape: int | str, op: str = "Foo") -> onnx.ModelProto:
    return _model(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node(op, ["r"], ["f"], domain="of.nobody", name="foo", by=3.0),
            helper.make_node("Neg", ["f"], ["y"]),
        ],
        list(shape),
    )


def _right(x: np.ndarray, plus: int = 1) -> np.ndarray:
    return -(np.maximum(x, 0) * 3 + plus)


@pytest.mark.parametrize("shape", [(4,), (2, 3), ("n", 3)])
def test_onnx_runtime_computes_the_operators_of_a_library(library, shape) -> None:
    program = uc.compile(_with_foo(*shape), custom_op_libraries=[library], measure=False)
    for rows in (2, 5) if "n" in shape else (shape[0],):
        x = np.random.default_rng(0).standard_normal((rows, *shape[1:]), dtype=np.float32)
        np.testing.assert_array_equal(program(x).numpy(), _right(x))
    remark = (
        "ONNX Runtime with libfoo.so computes of.nobody.Foo 'foo': there is no converter for operators of"
    )
    assert any(line.startswith(remark) for line in program.plan["main"].remarks)


def test_results_may_depend_on_the_data(library) -> None:
    places = helper.make_node("Places", ["x"], ["p"], domain="of.nobody")
    model = _model([places, helper.make_node("Neg", ["p"], ["y"])], [5], (INT, ["found"]))
    program = uc.compile(model, custom_op_libraries=library, measure=False)
    for x in ([0, 2, 0, 1, 3], [0, 0, 0, 0, 0]):
        np.testing.assert_array_equal(program(np.array(x, np.float32)).numpy(), -np.flatnonzero(x))


def test_a_whole_model_without_shapes_is_one_call(library) -> None:
    """Sequences connect nodes, and the model does not say the shape of its result."""
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        helper.make_node("ConcatFromSequence", ["s"], ["c"], axis=0),
        helper.make_node("Foo", ["c"], ["y"], domain="of.nobody", by=3.0),
    ]
    model = _model(nodes, [4])
    model.graph.output[0].type.tensor_type.ClearField("shape")
    program = uc.compile(model, custom_op_libraries=library, measure=False)
    np.testing.assert_array_equal(program(X).numpy(), X * 3 + 1)
    assert any("computes the whole model: SplitToSequence" in line for line in program.plan["main"].remarks)


def test_a_process_that_loads_the_program_needs_the_same_library(library, tmp_path, capsys) -> None:
    own, path = tmp_path / "libown.so", tmp_path / "program.so"
    shutil.copyfile(library, own)
    program = uc.compile(_with_foo(4), custom_op_libraries=own, measure=False)
    program.save(path)
    script = f"""
import numpy as np, unity_collage as uc
print(uc.load({str(path)!r})(np.array({X.tolist()}, np.float32)).numpy().tolist())
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(_right(X).tolist())
    assert cli.main(["info", str(path)]) == 0
    assert f"registers{own}(SHA-256" in "".join(capsys.readouterr().out.split())
    with pytest.raises(CollageError, match=rf"a bundle may be moved, .* registers operators from {own}"):
        program.save(tmp_path / "bundle", bundle=True)
    _built(own, plus=2)
    with pytest.raises(CollageError, match=rf"custom operators {own}, which has changed since: compile"):
        uc.load(path)
    own.unlink()
    with pytest.raises(CollageError, match=rf"custom operators {own}, which cannot be read: No such file"):
        uc.load(path)


@pytest.mark.skipif(RUNTIMES["openvino"].why_unavailable() is not None, reason="openvino is not installed")
def test_whole_models_have_the_library_and_openvino_says_why_not(library, tmp_path) -> None:
    program = uc.compile(
        _with_foo(4),
        custom_op_libraries=library,
        backends=["openvino", "onnxruntime"],
        database=tmp_path / "costs.sqlite",
    )
    np.testing.assert_array_equal(program(X).numpy(), _right(X))
    remarks = program.plan["main"].remarks
    assert any("computes the whole model" in line for line in remarks)
    (left_out,) = [line for line in remarks if "OpenVINO was left out" in line]
    assert "OpenVINO lacks operators of the model, which ONNX Runtime has from libfoo.so" in left_out


def test_a_kept_program_is_for_one_content_of_the_library(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(surroundings, "_code", lambda: "code")
    own = _built(tmp_path / "libown.so")
    model = tmp_path / "model.onnx"
    onnx.save(_with_foo(4), model)

    def compiled() -> uc.Program:
        with tvm.transform.PassContext():  # without instruments, with which nothing is kept
            costs = tmp_path / "costs.sqlite"
            return uc.compile(model, custom_op_libraries=[own], measure=False, database=costs)

    assert compiled().kept_since is None
    program = compiled()
    assert program.kept_since is not None
    np.testing.assert_array_equal(program(X).numpy(), _right(X))
    _built(own, plus=2)
    with pytest.raises(CollageError, match=r"this process still runs an earlier libown\.so: start a new one"):
        compiled()
    np.testing.assert_array_equal(program(X).numpy(), _right(X))
    script = f"""
import numpy as np, unity_collage as uc
from unity_collage.kept import surroundings
surroundings._code = lambda: "code"
options = dict(custom_op_libraries={str(own)!r}, measure=False, database={str(tmp_path / "costs.sqlite")!r})
program = uc.compile({str(model)!r}, **options)
print(program.kept_since, program(np.array({X.tolist()}, np.float32)).numpy().tolist())
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == f"None {_right(X, plus=2).tolist()}"


def test_the_command_registers_it_for_the_program_and_the_reference(library, tmp_path, capsys) -> None:
    model = tmp_path / "model.onnx"
    onnx.save(_with_foo(4), model)
    options = ["--custom-op-library", str(library), "--database", str(tmp_path / "costs.sqlite")]
    assert cli.main(["compile", str(model), *options, "--no-measure", "--verify", "random"]) == 0
    assert "against onnxruntime: 'y': error 0.0e+00" in capsys.readouterr().out
    assert cli.main(["compile", str(model), "--dry-run", *options]) == 0


def test_each_refusal_has_a_reason(library, tmp_path) -> None:
    text, other = tmp_path / "text.so", _built(tmp_path / "libother.so", entry="Register")
    text.write_text("text")

    def refused(reason: str, libraries: Any, model: onnx.ModelProto, **options: Any) -> None:
        with pytest.raises(CollageError, match=reason) as error:
            uc.compile(model, custom_op_libraries=libraries, measure=False, **options)
        assert "\n" not in str(error.value)

    foo = _with_foo(4)
    refused("the library of custom operators .*/none.so is not a file", tmp_path / "none.so", foo)
    refused("text.so is not a library of custom operators: .*file too short", text, foo)
    refused("libother.so is not a library of custom operators: .*RegisterCustomOps", other, foo)
    refused("computed by ONNX Runtime: name onnxruntime among the backends", library, foo, backends=["tvm"])
    refused(
        "there is no converter .*; ONNX Runtime with libfoo.so does not .*Bar",
        library,
        _with_foo(4, op="Bar"),
    )
    with pytest.raises(ModelError, match=r"there is no converter for operators of of\.nobody"):
        uc.compile(foo, measure=False)
    with pytest.raises(CollageError, match="computed by ONNX Runtime: they are for CPUs"):
        last_resorts_for({}, [RUNTIMES["onnxruntime"]], False, Target("cuda"), libraries_at(library))
