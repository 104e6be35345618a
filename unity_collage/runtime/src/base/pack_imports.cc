#include "base/pack_imports.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstring>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/borrowed.h"
#include "base/vm_constants.h"

namespace collage {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Bytes;
using tvm::ffi::Module;
using tvm::ffi::ModuleObj;
using tvm::ffi::Shape;
using tvm::ffi::Tensor;

constexpr size_t kLeastBytes = 4096;  // smaller constants are copied

Tensor FlatBytes(std::shared_ptr<const std::byte> data, size_t nbytes) {
  const auto extent = static_cast<int64_t>(nbytes);
  return Borrowed(std::move(data), {&extent, 1}, DLDataType{kDLUInt, 8, 1});
}

// The constants that a program is packed without, in the order of their marks. For each its bytes as a row,
// its type, its shape, and its place among the constants of its executable; -1 for the blob of a module of
// ours.
struct Apart {
  std::string mark;
  std::vector<Any> contents;

  // The text that stands for the next content.
  std::string Next(const Tensor& bytes, DLDataType dtype, const Shape& shape, int64_t place) {
    const auto number = static_cast<uint64_t>(contents.size());
    contents.emplace_back(Array<Any>{bytes, dtype, shape, place});
    std::string text = mark;
    text.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return text;
  }
};

thread_local Apart* packing = nullptr;

// Whether the bytes of a constant are those that TVM writes.
bool IsLarge(const Tensor& tensor) {
  const DLDataType type = tensor.dtype();
  return tensor.device().device_type == kDLCPU && tensor.IsContiguous() && type.bits % 8 == 0 &&
         type.lanes == 1 && tensor.GetDLTensorPtr()->byte_offset == 0 &&
         tvm::ffi::GetDataSize(tensor) >= kLeastBytes;
}

Any MarkFor(const Tensor& tensor, int64_t place, Apart* apart) {
  const auto owner = std::make_shared<Tensor>(tensor);
  const auto* data = static_cast<const std::byte*>(tensor.data_ptr());
  const size_t nbytes = tvm::ffi::GetDataSize(tensor);
  const std::string text =
      apart->Next(FlatBytes({owner, data}, nbytes), tensor.dtype(), tensor.shape(), place);
  const auto buffer = std::make_shared<AlignedBuffer>(text.size());
  std::memcpy(buffer->data(), text.data(), text.size());
  return FlatBytes({buffer, buffer->data()}, text.size());
}

// Marks in place of large constants of executables, as long as it lives.
class Marked {
 public:
  // By way of another constructor: if Mark throws, the destructor runs.
  Marked(const Module& root, Apart* apart) : Marked() { Mark(root, apart); }
  ~Marked() {
    for (auto& [place, constant] : replaced_) *place = std::move(constant);
  }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;

 private:
  Marked() = default;

  void Mark(const Module& module, Apart* apart) {
    auto* object = const_cast<ModuleObj*>(module.operator->());
    if (!seen_.insert(object).second) return;
    if (std::vector<Any>* constants = ConstantsOf(object)) {
      for (size_t place = 0; place < constants->size(); ++place) {
        Any& constant = (*constants)[place];
        const auto tensor = constant.as<Tensor>();
        if (!tensor.has_value() || !IsLarge(*tensor)) continue;
        replaced_.emplace_back(&constant, constant);
        constant = MarkFor(*tensor, static_cast<int64_t>(place), apart);
      }
    }
    for (const Any& imported : module->imports()) Mark(imported.cast<Module>(), apart);
  }

  std::unordered_set<const ModuleObj*> seen_;
  std::vector<std::pair<Any*, Any>> replaced_;
};

// What TVM writes of `module` and all that it imports, with marks in place of large constants; then each of
// the constants as Apart has it. A mark is `mark` and the number of its constant in eight bytes. Nothing may
// start the program meanwhile.
Array<Any> PackImports(const Module& module, const Bytes& mark) {
  Apart apart{std::string(mark.data(), mark.size()), {}};
  struct Packing {
    explicit Packing(Apart* apart) { packing = apart; }
    ~Packing() { packing = nullptr; }
  };
  Array<Any> result;
  {
    const Marked marked(module, &apart);
    const Packing scope(&apart);
    result.push_back(tvm::ffi::Function::GetGlobalRequired("runtime.ModulePackImportsToTensor")(module));
  }
  for (const Any& content : apart.contents) result.push_back(content);
  return result;
}

}  // namespace

void AppendBlob(const Blob& blob, std::string* saved) {
  if (packing == nullptr || blob.nbytes < kLeastBytes) {
    saved->append(reinterpret_cast<const char*>(blob.data.get()), blob.nbytes);
    return;
  }
  const Shape shape({static_cast<int64_t>(blob.nbytes)});
  saved->append(packing->Next(FlatBytes(blob.data, blob.nbytes), DLDataType{kDLUInt, 8, 1}, shape, -1));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("collage.runtime.pack_imports", PackImports);
}

}  // namespace collage
