#include "base/program_needs.h"

#include <sys/utsname.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <filesystem>
#include <map>

#include "base/json.h"

namespace collage {
namespace {

using tvm::ffi::Function;
using tvm::ffi::String;

// For each instruction set, by LLVM's name, whether this processor and its operating system support it. Sets
// that are not listed are not checked here: Python asks LLVM about them.
std::map<std::string, bool> InstructionSets() {
#ifdef __x86_64__
  return {{"amx-bf16", __builtin_cpu_supports("amx-bf16") != 0},
          {"amx-int8", __builtin_cpu_supports("amx-int8") != 0},
          {"amx-tile", __builtin_cpu_supports("amx-tile") != 0},
          {"avx", __builtin_cpu_supports("avx") != 0},
          {"avx2", __builtin_cpu_supports("avx2") != 0},
          {"avx512bf16", __builtin_cpu_supports("avx512bf16") != 0},
          {"avx512bitalg", __builtin_cpu_supports("avx512bitalg") != 0},
          {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
          {"avx512cd", __builtin_cpu_supports("avx512cd") != 0},
          {"avx512dq", __builtin_cpu_supports("avx512dq") != 0},
          {"avx512f", __builtin_cpu_supports("avx512f") != 0},
          {"avx512fp16", __builtin_cpu_supports("avx512fp16") != 0},
          {"avx512ifma", __builtin_cpu_supports("avx512ifma") != 0},
          {"avx512vbmi", __builtin_cpu_supports("avx512vbmi") != 0},
          {"avx512vbmi2", __builtin_cpu_supports("avx512vbmi2") != 0},
          {"avx512vl", __builtin_cpu_supports("avx512vl") != 0},
          {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0},
          {"avx512vp2intersect", __builtin_cpu_supports("avx512vp2intersect") != 0},
          {"avx512vpopcntdq", __builtin_cpu_supports("avx512vpopcntdq") != 0},
          {"avxvnni", __builtin_cpu_supports("avxvnni") != 0},
          {"bmi", __builtin_cpu_supports("bmi") != 0},
          {"bmi2", __builtin_cpu_supports("bmi2") != 0},
          {"f16c", __builtin_cpu_supports("f16c") != 0},
          {"fma", __builtin_cpu_supports("fma") != 0},
          {"fma4", __builtin_cpu_supports("fma4") != 0},
          {"gfni", __builtin_cpu_supports("gfni") != 0},
          {"lzcnt", __builtin_cpu_supports("lzcnt") != 0},
          {"popcnt", __builtin_cpu_supports("popcnt") != 0},
          {"sse4.1", __builtin_cpu_supports("sse4.1") != 0},
          {"sse4.2", __builtin_cpu_supports("sse4.2") != 0},
          {"vaes", __builtin_cpu_supports("vaes") != 0},
          {"vpclmulqdq", __builtin_cpu_supports("vpclmulqdq") != 0},
          {"xop", __builtin_cpu_supports("xop") != 0}};
#else
  return {};
#endif
}

std::string Processor() {
  utsname system;
  return uname(&system) == 0 ? system.machine : "not known";
}

Reason WhyNotThisProcessor(const json::Object& facts) {
  const std::string processor = json::Get<String>(facts, "processor");
  if (!processor.empty() && processor != Processor()) {
    return "it was compiled for " + processor + ", and this processor is " + Processor();
  }
  const std::map<std::string, bool> sets = InstructionSets();
  std::string missing;
  for (const String& name : json::GetAll<String>(facts, "instruction_sets")) {
    const auto found = sets.find(name);
    if (found != sets.end() && !found->second) missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (missing.empty()) return std::nullopt;
  return "it was compiled for a processor with " + missing + ", which this one lacks";
}

std::string FfiVersion() {
  TVMFFIVersion version;
  TVMFFIGetVersion(&version);
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

Reason WhyOtherLibraries(const json::Object& facts) {
  const std::string ffi = json::Get<String>(facts, "ffi");
  if (ffi != FfiVersion()) return "it was compiled with tvm_ffi " + ffi + ", and this is " + FfiVersion();
  for (const auto& [key, value] : json::Get<json::Object>(facts, "libraries")) {
    const std::string name = json::As<String>(key, "the name of a library"),
                      library = "libcollage_" + name + ".so";
    const auto ask = Function::GetGlobal("collage." + name + ".version");
    if (!ask.has_value()) return "it needs " + library + ", which is not loaded";
    const auto needed = json::As<int64_t>(value, "the version of a library");
    const auto here = (*ask)().cast<int64_t>();
    if (needed != here) {
      return "it needs version " + std::to_string(needed) + " of " + library + ", and this is version " +
             std::to_string(here) + ": compile the model again";
    }
  }
  return std::nullopt;
}

}  // namespace

Reason WhyNotHere(const std::string& facts) {
  const auto parsed = json::As<json::Object>(tvm::ffi::json::Parse(facts), "the facts about a program");
  const Reason reason = WhyNotThisProcessor(parsed);
  return reason.has_value() ? reason : WhyOtherLibraries(parsed);
}

void CheckProgram(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) TVM_FFI_THROW(ValueError) << path << " is not a file";
  Reason reason = WhyNotSealed(path);
  if (!reason.has_value()) reason = WhyNotHere(SealedFacts(path));
  if (reason.has_value()) TVM_FFI_THROW(ValueError) << path << " cannot be loaded as a program: " << *reason;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("collage.runtime.why_not_here", [](String path) { return Told(WhyNotHere(SealedFacts(path))); })
      .def("collage.runtime.ffi_version", [] { return String(FfiVersion()); })
      .def("collage.runtime.check_program", [](String path) { CheckProgram(path); });
}

}  // namespace collage
