// Exercises the native libraries without Python, for a build with sanitizers: `make check-native`.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

using tvm::ffi::Bytes;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::String;

constexpr int64_t kSize = 32;

void Expect(bool holds, const std::string& what) {
  std::cout << (holds ? "ok      " : "FAILED  ") << what << "\n";
  if (!holds) std::exit(1);
}

// A square matrix that owns its memory.
class Matrix {
 public:
  explicit Matrix(float first) : values_(kSize * kSize) {
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = std::sin(first + static_cast<float>(i));
  }

  DLTensor Tensor() { return {values_.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape_, nullptr, 0}; }
  float At(int64_t i, int64_t j) const { return values_[i * kSize + j]; }
  void Set(int64_t place, float value) { values_[place] = value; }
  Bytes ToBytes() const {
    return Bytes(reinterpret_cast<const char*>(values_.data()), values_.size() * sizeof(float));
  }

 private:
  std::vector<float> values_;
  int64_t shape_[2] = {kSize, kSize};
};

void Call(const Function& function, Matrix* x, Matrix* result) {
  DLTensor from = x->Tensor(), to = result->Tensor();
  function(&from, &to);
}

// The element at row i, column j, in the layout that the backend is given.
using ElementReader = std::function<double(const Matrix&, int64_t, int64_t)>;

double ReadElement(const Matrix& matrix, int64_t i, int64_t j) { return matrix.At(i, j); }

// How a backend is asked for the product of two matrices.
struct Product {
  std::string primitive, a, b, c;
  // Dims and strides: of c, of b, and of a or each of its fields.
  std::string rows = R"("dims": [32, 32], "strides": [32, 1])", weights = rows, source = rows;
  std::string attrs = "{}";
  // The type of the first product, and the error that it may cause in the second.
  std::string between = "float32";
  double tolerance = 1e-3;
  int fields = 1;
  ElementReader read_source = ReadElement, read_weights = ReadElement;
};

// Images of one pixel: only the middle tap of a 3x3 filter lies on the pixel, so the convolution is a
// product.
Product OneByOne(const std::string& primitive, const std::string& attrs) {
  const std::string image = R"("dims": [32, 32, 1, 1], "strides": [32, 1, 32, 32])";
  Product product{primitive, "src", "weights", "dst", image};
  product.weights = R"("dims": [32, 32, 3, 3], "strides": [1, 32, 0, 0])";
  product.source = image;
  product.attrs = attrs;
  return product;
}

// Two groups: each half of the outputs reads half of the inputs, with the first 16 rows of the weights.
Product InTwoGroups(Product product) {
  product.weights = R"("dims": [32, 16, 3, 3], "strides": [1, 32, 0, 0])";
  product.read_weights = [](const Matrix& w, int64_t i, int64_t j) {
    return i / 16 == j / 16 ? ReadElement(w, i % 16, j) : 0.0;
  };
  return product;
}

// Two fields: the first half of the source's memory holds the first 16 channels of all images, the second
// half the others.
Product OfTwoFields(Product product) {
  product.fields = 2;
  product.source = R"("dims": [32, 16, 1, 1], "strides": [16, 1, 16, 16])";
  product.read_source = [](const Matrix& x, int64_t i, int64_t j) {
    const int64_t place = j / 16 * kSize * 16 + i * 16 + j % 16;
    return ReadElement(x, place / kSize, place % kSize);
  };
  return product;
}

// Volumes of two images, and filters that are three deep with equal taps: each result multiplies the sum of
// both images of a volume.
Product OfVolumes(Product product) {
  product.source = product.rows = R"("dims": [16, 32, 2, 1, 1], "strides": [64, 1, 32, 32, 32])";
  product.weights = R"("dims": [32, 32, 3, 3, 3], "strides": [1, 32, 0, 0, 0])";
  product.read_source = [](const Matrix& x, int64_t i, int64_t j) {
    return ReadElement(x, i / 2 * 2, j) + ReadElement(x, i / 2 * 2 + 1, j);
  };
  return product;
}

// x times w, where `from` reads the elements of x.
std::vector<double> Multiplied(const Product& product, const ElementReader& from, const Matrix& x,
                               const Matrix& w) {
  std::vector<double> result(kSize * kSize);
  for (int64_t i = 0; i < kSize; ++i) {
    for (int64_t j = 0; j < kSize; ++j) {
      for (int64_t k = 0; k < kSize; ++k)
        result[i * kSize + j] += from(x, i, k) * product.read_weights(w, k, j);
    }
  }
  return result;
}

bool IsProductOfProduct(const Product& product, const Matrix& x, const Matrix& w, const Matrix& result) {
  const std::vector<double> first = Multiplied(product, product.read_source, x, w);
  Matrix between(0);
  for (int64_t i = 0; i < kSize * kSize; ++i) between.Set(i, static_cast<float>(first[i]));
  const std::vector<double> second = Multiplied(product, product.read_source, between, w);
  for (int64_t i = 0; i < kSize * kSize; ++i) {
    if (std::abs(second[i] - result.At(i / kSize, i % kSize)) > product.tolerance) return false;
  }
  return true;
}

std::string View(int buffer, const std::string& layout, const std::string& dtype = "float32",
                 int offset = 0) {
  return "{\"buffer\": " + std::to_string(buffer) + ", " + layout +
         ", \"offset\": " + std::to_string(offset) + R"(, "dtype": ")" + dtype + "\"}";
}

// Input 0 -> temporary 2 -> output 3, multiplied by constant 1 in each step.
std::string TwoProducts(const Product& product) {
  const auto type_of = [&](int buffer) { return buffer == 2 ? product.between : "float32"; };
  const auto nbytes_of = [&](int buffer) { return type_of(buffer) == "float32" ? 4096 : 2048; };
  const auto step = [&](int from, int to) {
    std::string args;
    for (int field = 0; field < product.fields; ++field) {
      const int offset = field * nbytes_of(from) / product.fields;
      args += "\"" + product.a + (field == 0 ? "" : std::to_string(field)) +
              "\": " + View(from, product.source, type_of(from), offset) + ", ";
    }
    args += "\"" + product.b + "\": " + View(1, product.weights) + ", \"" + product.c +
            "\": " + View(to, product.rows, type_of(to));
    return "{\"primitive\": \"" + product.primitive + "\", \"attrs\": " + product.attrs + ", \"args\": {" +
           args + "}}";
  };
  std::string buffers;
  for (int buffer = 0; buffer < 4; ++buffer) {
    buffers += (buffer == 0 ? "{\"nbytes\": " : ", {\"nbytes\": ") + std::to_string(nbytes_of(buffer)) +
               R"(, "dtype": ")" + type_of(buffer) + "\"}";
  }
  return R"({"programs": [{"name": "main", "inputs": [0], "outputs": [3],
             "constants": [{"buffer": 1, "offset": 0, "nbytes": 4096}], "buffers": [)" +
         buffers + "], \"steps\": [" + step(0, 2) + ", " + step(2, 3) + "]}]}";
}

Module Create(const std::string& kind, const std::string& json, const Matrix& w) {
  return (*Function::GetGlobal(kind + ".create"))(String(json), w.ToBytes()).cast<Module>();
}

void CheckConcurrentCalls(const std::string& kind, const Product& product, const Module& module,
                          const Matrix& w) {
  const Function function = *module->GetFunction("main");
  std::vector<Matrix> inputs, results;
  for (int i = 0; i < 4; ++i) {
    inputs.emplace_back(i);
    results.emplace_back(0);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) Call(function, &inputs[i], &results[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 4; ++i)
    Expect(IsProductOfProduct(product, inputs[i], w, results[i]), kind + ": concurrent call");
}

void CheckSaveAndLoad(const std::string& kind, const Product& product, const Module& module,
                      const Matrix& w) {
  const Module loaded =
      (*Function::GetGlobal("ffi.Module.load_from_bytes." + kind))(module->SaveToBytes()).cast<Module>();
  Matrix x(5), result(0);
  Call(*loaded->GetFunction("main"), &x, &result);
  Expect(IsProductOfProduct(product, x, w, result), kind + ": saved and loaded");
}

void CheckThreadCounts(const std::string& kind, const Product& product, const Module& module,
                       const Matrix& w) {
  const Function set_num_threads = *Function::GetGlobal("collage.runtime.set_num_threads");
  for (const int threads : {1, 3, 2}) {
    set_num_threads(threads);
    Matrix x(threads), result(0);
    Call(*module->GetFunction("main"), &x, &result);
    Expect(IsProductOfProduct(product, x, w, result), kind + ": " + std::to_string(threads) + " threads");
  }
}

template <typename Body>
void ExpectError(const std::string& what, const std::string& text, const Body& body) {
  std::string message;
  try {
    body();
  } catch (const tvm::ffi::Error& error) {
    message = error.message();
  }
  Expect(message.find(text) != std::string::npos, what + ": " + message);
}

void CheckErrors(const std::string& kind, Product product, const Module& module, const Matrix& w) {
  ExpectError(kind, "takes 2 tensors, not 0", [&] { (*module->GetFunction("main"))(); });
  product.primitive = "fft";
  ExpectError(kind, "no primitive 'fft'", [&] { Create(kind, TwoProducts(product), w); });
}

void CheckBackend(const std::string& kind, const Product& product) {
  const Matrix w(1);
  const Module module = Create(kind, TwoProducts(product), w);
  CheckConcurrentCalls(kind, product, module, w);
  CheckSaveAndLoad(kind, product, module, w);
  CheckThreadCounts(kind, product, module, w);
  CheckErrors(kind, product, module, w);
}

// A sequence of RNN cells on two threads: each reads in every step what the other has just written.
void CheckRecurrent() {
  constexpr int64_t kSteps = 20, kBatch = 4, kHidden = 128, kState = kBatch * kHidden;
  std::vector<float> inputs(kSteps * kState), state(kState), result(kSteps * kState),
      weights(kHidden * kHidden);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = std::sin(static_cast<float>(3 * i)) / 16;
  const std::string sequence = R"("dims": [20, 4, 128], "strides": [512, 128, 1])",
                    row = R"("dims": [4, 128], "strides": [128, 1])",
                    square = R"("dims": [128, 128], "strides": [128, 1])";
  const auto buffer = [](size_t numbers) {
    return "{\"nbytes\": " + std::to_string(numbers * sizeof(float)) + R"(, "dtype": "float32"})";
  };
  const std::string json =
      R"({"programs": [{"name": "main", "inputs": [0, 1], "outputs": [3], "constants": [{"buffer": 2, "offset": 0,
          "nbytes": 65536}], "buffers": [)" +
      buffer(inputs.size()) + ", " + buffer(state.size()) + ", " + buffer(weights.size()) + ", " +
      buffer(result.size()) + R"(], "steps": [{"primitive": "recurrent", "attrs": {"cell": "rnn", "f": "tanh",
          "reverse": 0}, "args": {"src": )" +
      View(0, sequence) + ", \"state\": " + View(1, row) + ", \"weights\": " + View(2, square) +
      ", \"dst\": " + View(3, sequence) + "}}]}]}";
  const Bytes blob(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float));
  const Module module = (*Function::GetGlobal("collage.kernels.create"))(String(json), blob).cast<Module>();
  int64_t long_shape[] = {kSteps, kBatch, kHidden}, shape[] = {kBatch, kHidden};
  const auto tensor = [](std::vector<float>* values, int rank, int64_t* sizes) {
    return DLTensor{values->data(), {kDLCPU, 0}, rank, {kDLFloat, 32, 1}, sizes, nullptr, 0};
  };
  DLTensor from = tensor(&inputs, 3, long_shape), first = tensor(&state, 2, shape),
           to = tensor(&result, 3, long_shape);
  (*module->GetFunction("main"))(&from, &first, &to);
  double worst = 0;
  for (int64_t at = 0; at < kSteps * kState; ++at) {
    const int64_t before = at / kHidden * kHidden - kState;
    double sum = inputs[at];
    for (int64_t k = 0; k < kHidden; ++k)
      sum += (before < 0 ? state[before + kState + k] : result[before + k]) *
             weights[k * kHidden + at % kHidden];
    worst = std::max(worst, std::abs(std::tanh(sum) - result[at]));
  }
  Expect(worst < 1e-5, "collage.kernels: a sequence of cells");
}

}  // namespace

int main() {
  CheckBackend("collage.onednn", {"matmul", "src", "weights", "dst"});
  CheckBackend("collage.openblas", {"gemm", "a", "b", "c"});
  CheckRecurrent();
  const char *tile = R"({"tile": 4, "padding_l": [1, 1]})",
             *strides = R"({"tile": 4, "stride": 2, "padding_l": [1, 1]})",
             *steps = R"({"stride": 1, "padding_l": [1, 1]})",
             *groups = R"({"tile": 4, "groups": 2, "padding_l": [1, 1]})",
             *volumes = R"({"tile": 4, "padding_l": [1, 1, 1]})";
  for (Product product :
       {OneByOne("winograd", tile), OneByOne("winograd", strides), OneByOne("grouped", steps),
        InTwoGroups(OneByOne("winograd", groups)), InTwoGroups(OneByOne("grouped", steps)),
        OfTwoFields(OneByOne("winograd", tile)), OfVolumes(OneByOne("winograd", volumes))}) {
    CheckBackend("collage.kernels", product);
    product.between = "bfloat16";
    product.tolerance = 1.0;
    CheckBackend("collage.kernels", product);
  }
  return 0;
}
