// Single primitives of oneDNN alone, as its own benchmark runs them: every layout is the library's choice, weights are
// reordered beforehand, OpenMP of its own.
//
// Reads a line for each request, and answers each with one line:
//   convolution SIZE CHANNELS OUT_CHANNELS KERNEL GROUPS STRIDE   the name of the implementation
//   product ROWS INNER COLUMNS                                    the name of the implementation
//   time INDEX SECONDS                                            the median seconds of the primitive with this index
// Convolutions have a bias and a ReLU, and are padded so that each stride has a result.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "dnnl.hpp"

namespace {

using dnnl::memory;
using Clock = std::chrono::steady_clock;

struct Primitive {
  dnnl::primitive run;
  std::unordered_map<int, memory> arguments;
};

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& Stream() {
  static dnnl::stream stream(Engine());
  return stream;
}

memory::desc Any(const memory::dims& dims) {
  return {dims, memory::data_type::f32, memory::format_tag::any};
}

memory Filled(const memory::desc& desc) {
  memory made(desc, Engine());
  auto* values = static_cast<float*>(made.get_data_handle());
  unsigned state = 1;
  for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = static_cast<float>(state >> 8) / (1 << 23) - 1.0f;
  }
  return made;
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Primitive Convolution(std::istream& line, std::string* name) {
  memory::dim size, channels, outputs, kernel, groups, stride;
  line >> size >> channels >> outputs >> kernel >> groups >> stride;
  const memory::dim before = (kernel - 1) / 2, after = kernel / 2, result = (size - 1) / stride + 1;
  const memory::dims weights = groups == 1
                                   ? memory::dims{outputs, channels, kernel, kernel}
                                   : memory::dims{groups, outputs / groups, channels / groups, kernel, kernel};
  dnnl::primitive_attr attr = UserScratchpad();
  dnnl::post_ops relu;
  relu.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
  attr.set_post_ops(relu);
  const dnnl::convolution_forward::primitive_desc desc(
      Engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, Any({1, channels, size, size}),
      Any(weights), Any({outputs}), Any({1, outputs, result, result}), {stride, stride}, {before, before},
      {after, after}, attr);
  *name = desc.impl_info_str();
  return {dnnl::convolution_forward(desc),
          {{DNNL_ARG_SRC, Filled(desc.src_desc())},
           {DNNL_ARG_WEIGHTS, Filled(desc.weights_desc())},
           {DNNL_ARG_BIAS, Filled(desc.bias_desc())},
           {DNNL_ARG_DST, Filled(desc.dst_desc())},
           {DNNL_ARG_SCRATCHPAD, memory(desc.scratchpad_desc(), Engine())}}};
}

Primitive Product(std::istream& line, std::string* name) {
  memory::dim rows, inner, columns;
  line >> rows >> inner >> columns;
  const dnnl::matmul::primitive_desc desc(Engine(), Any({rows, inner}), Any({inner, columns}), Any({rows, columns}),
                                          UserScratchpad());
  *name = desc.impl_info_str();
  return {dnnl::matmul(desc),
          {{DNNL_ARG_SRC, Filled(desc.src_desc())},
           {DNNL_ARG_WEIGHTS, Filled(desc.weights_desc())},
           {DNNL_ARG_DST, Filled(desc.dst_desc())},
           {DNNL_ARG_SCRATCHPAD, memory(desc.scratchpad_desc(), Engine())}}};
}

double Seconds(const std::function<void()>& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The median of the runs that fit into `seconds`, after a fifth of that for warming up.
double Median(const Primitive& primitive, double seconds) {
  const auto run = [&] {
    primitive.run.execute(Stream(), primitive.arguments);
    Stream().wait();
  };
  for (double spent = 0; spent < seconds / 5;) spent += Seconds(run);
  std::vector<double> runs;
  for (double spent = 0; spent < seconds || runs.size() < 5; spent += runs.back()) runs.push_back(Seconds(run));
  std::nth_element(runs.begin(), runs.begin() + runs.size() / 2, runs.end());
  return runs[runs.size() / 2];
}

}  // namespace

int main() {
  std::vector<Primitive> made;
  for (std::string text; std::getline(std::cin, text);) {
    std::istringstream line(text);
    std::string request, name;
    line >> request;
    if (request == "time") {
      size_t index;
      double seconds;
      line >> index >> seconds;
      std::cout << Median(made.at(index), seconds) << std::endl;
      continue;
    }
    made.push_back(request == "convolution" ? Convolution(line, &name) : Product(line, &name));
    std::cout << name << std::endl;
  }
}
