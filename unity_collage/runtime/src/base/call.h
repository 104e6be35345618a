// A function with its arguments, converted in advance, so that a timed call converts nothing.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>

#include <chrono>
#include <utility>
#include <vector>

namespace collage {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Call {
 public:
  Call(tvm::ffi::Function function, const tvm::ffi::Array<tvm::ffi::Any>& args)
      : function_(std::move(function)) {
    for (const tvm::ffi::Any& arg : args) args_.push_back(arg);
    views_.assign(args_.begin(), args_.end());
  }

  void Run(int64_t times = 1) {
    for (int64_t i = 0; i < times; ++i) {
      tvm::ffi::Any result;
      function_.CallPacked(views_.data(), static_cast<int32_t>(views_.size()), &result);
    }
  }

  double Seconds(int64_t times = 1) {
    const Clock::time_point start = Clock::now();
    Run(times);
    return SecondsSince(start);
  }

 private:
  tvm::ffi::Function function_;
  std::vector<tvm::ffi::Any> args_;
  std::vector<tvm::ffi::AnyView> views_;
};

}  // namespace collage
