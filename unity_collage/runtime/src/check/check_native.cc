// The native part without Python, for a build with sanitizers: `make check-native`.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cmath>
#include <cstdlib>
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

bool IsProductOfProduct(const Matrix& x, const Matrix& w, const Matrix& result, double tolerance) {
  for (int64_t i = 0; i < kSize; ++i) {
    for (int64_t j = 0; j < kSize; ++j) {
      double expected = 0;
      for (int64_t k = 0; k < kSize; ++k) {
        double inner = 0;
        for (int64_t l = 0; l < kSize; ++l) inner += x.At(i, l) * w.At(l, k);
        expected += inner * w.At(k, j);
      }
      if (std::abs(expected - result.At(i, j)) > tolerance) return false;
    }
  }
  return true;
}

// How a backend names and sees the product of two matrices.
struct Product {
  std::string primitive, a, b, c;
  // Dims and strides of a and c, and of b.
  std::string rows = R"("dims": [32, 32], "strides": [32, 1])", weights = rows;
  std::string attrs = "{}";
  // Of the first product, and how far the second may be off for that.
  std::string between = "float32";
  double tolerance = 1e-3;
};

// Images of one pixel: of filters of 3x3 only the middle counts, and that is a product.
Product OneByOne(const std::string& primitive, const std::string& attrs, const std::string& between,
                 double tolerance) {
  return {primitive,
          "src",
          "weights",
          "dst",
          R"("dims": [32, 32, 1, 1], "strides": [32, 1, 32, 32])",
          R"("dims": [32, 32, 3, 3], "strides": [1, 32, 0, 0])",
          attrs,
          between,
          tolerance};
}

std::string View(int buffer, const std::string& layout, const std::string& dtype = "float32") {
  return "{\"buffer\": " + std::to_string(buffer) + ", " + layout + R"(, "offset": 0, "dtype": ")" + dtype +
         "\"}";
}

// input 0 -> temporary 2 -> output 3, each time multiplied by constant 1.
std::string TwoProducts(const Product& product) {
  const auto step = [&](int from, int to) {
    return "{\"primitive\": \"" + product.primitive + "\", \"attrs\": " + product.attrs + ", \"args\": {\"" +
           product.a + "\": " + View(from, product.rows, from == 2 ? product.between : "float32") + ", \"" +
           product.b + "\": " + View(1, product.weights) + ", \"" + product.c +
           "\": " + View(to, product.rows, to == 2 ? product.between : "float32") + "}}";
  };
  const std::string buffer = R"({"nbytes": 4096, "dtype": "float32"})";
  return R"({"programs": [{"name": "main", "inputs": [0], "outputs": [3],
             "constants": [{"buffer": 1, "offset": 0, "nbytes": 4096}], "buffers": [)" +
         buffer + ", " + buffer + ", " + R"({"nbytes": )" + (product.between == "float32" ? "4096" : "2048") +
         R"(, "dtype": ")" + product.between + "\"}, " + buffer + "], \"steps\": [" + step(0, 2) + ", " +
         step(2, 3) + "]}]}";
}

Module Create(const std::string& kind, const std::string& json, const Matrix& w) {
  return (*Function::GetGlobal(kind + ".create"))(String(json), w.ToBytes()).cast<Module>();
}

void CheckConcurrentCalls(const std::string& kind, const Module& module, const Matrix& w, double tolerance) {
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
    Expect(IsProductOfProduct(inputs[i], w, results[i], tolerance), kind + ": concurrent call");
}

void CheckSaveAndLoad(const std::string& kind, const Module& module, const Matrix& w, double tolerance) {
  const Module loaded =
      (*Function::GetGlobal("ffi.Module.load_from_bytes." + kind))(module->SaveToBytes()).cast<Module>();
  Matrix x(5), result(0);
  Call(*loaded->GetFunction("main"), &x, &result);
  Expect(IsProductOfProduct(x, w, result, tolerance), kind + ": saved and loaded");
}

void CheckThreadCounts(const std::string& kind, const Module& module, const Matrix& w, double tolerance) {
  const Function set_num_threads = *Function::GetGlobal("collage.runtime.set_num_threads");
  for (const int threads : {1, 3, 2}) {
    set_num_threads(threads);
    Matrix x(threads), result(0);
    Call(*module->GetFunction("main"), &x, &result);
    Expect(IsProductOfProduct(x, w, result, tolerance), kind + ": " + std::to_string(threads) + " threads");
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
  CheckConcurrentCalls(kind, module, w, product.tolerance);
  CheckSaveAndLoad(kind, module, w, product.tolerance);
  CheckThreadCounts(kind, module, w, product.tolerance);
  CheckErrors(kind, product, module, w);
}

}  // namespace

int main() {
  CheckBackend("collage.onednn", {"matmul", "src", "weights", "dst"});
  CheckBackend("collage.openblas", {"gemm", "a", "b", "c"});
  const std::vector<std::pair<std::string, double>> types = {{"float32", 1e-3}, {"bfloat16", 1.0}};
  for (const auto& [between, tolerance] : types) {
    const auto check = [&type = between, off = tolerance](const char* primitive, const char* attrs) {
      CheckBackend("collage.kernels", OneByOne(primitive, attrs, type, off));
    };
    check("winograd", R"({"tile": 4, "padding_l": [1, 1]})");
    check("grouped", R"({"stride": 1, "padding_l": [1, 1]})");
  }
  return 0;
}
