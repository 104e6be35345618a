#include "base/seal.h"

#include <elf.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/checksum.h"

namespace collage {
namespace {

constexpr std::string_view kName = "unity_collage ";
// Raise it when the footer, the facts or what they mean changes.
constexpr int kFormat = 3;
constexpr uint64_t kChunk = uint64_t{1} << 18;  // a chunk fits into a second-level cache

// The end of a file, in the byte order of all processors that run programs: little-endian.
struct Footer {
  uint64_t program_nbytes;
  uint64_t facts_nbytes;
  uint64_t checksum;
  std::array<char, 16> mark;  // kName, the number of the format, and a line feed
};

std::array<char, 16> Mark() {
  std::array<char, 16> mark{};
  const std::string text = std::string(kName) + std::to_string(kFormat) + "\n";
  text.copy(mark.data(), mark.size());
  return mark;
}

// The number of the format, which another version may have written; 0 where there is no mark.
int FormatOf(const Footer& footer) {
  const std::string text(footer.mark.data(), footer.mark.size());
  return text.rfind(kName, 0) == 0 ? std::atoi(text.c_str() + kName.size()) : 0;
}

template <typename Part>
std::optional<Part> Read(std::ifstream* file, uint64_t offset) {
  Part part;
  file->seekg(static_cast<std::streamoff>(offset));
  if (!file->read(reinterpret_cast<char*>(&part), sizeof(part))) return std::nullopt;
  return part;
}

// The length of a file, 0 where it cannot be read.
uint64_t SizeOf(std::ifstream* file) {
  const std::streamoff end = file->seekg(0, std::ios::end).tellg();
  return *file && end > 0 ? static_cast<uint64_t>(end) : 0;
}

std::optional<Footer> FooterOf(std::ifstream* file, uint64_t size) {
  return size < sizeof(Footer) ? std::nullopt : Read<Footer>(file, size - sizeof(Footer));
}

// The checksum of the first `nbytes` of a file, or nothing where they cannot be read.
std::optional<Checksum> ChecksumOf(std::istream* file, uint64_t nbytes) {
  Checksum checksum;
  std::vector<char> chunk(std::min(kChunk, nbytes));
  file->seekg(0);
  while (nbytes > 0) {
    const uint64_t count = std::min(kChunk, nbytes);
    if (!file->read(chunk.data(), static_cast<std::streamsize>(count))) return std::nullopt;
    checksum.Add(chunk.data(), count);
    nbytes -= count;
  }
  return checksum;
}

// Why a file without a mark is not a saved program, by what it seems to be.
std::string WhyUnmarked(std::ifstream* file, uint64_t size) {
  const auto magic = Read<std::array<char, SELFMAG>>(file, 0);
  if (!magic.has_value() || !std::equal(magic->begin(), magic->end(), ELFMAG)) {
    return "it is not a saved program, or only a part of one";
  }
  file->clear();
  const auto header = Read<Elf64_Ehdr>(file, 0);
  const auto is_inside = [size](uint64_t begin, uint64_t count, uint64_t nbytes) {
    return begin < size && size - begin >= count * nbytes;
  };
  if (header.has_value() && is_inside(header->e_shoff, header->e_shnum, header->e_shentsize) &&
      is_inside(header->e_phoff, header->e_phnum, header->e_phentsize)) {
    return "it is a library, but not a saved program, or the end of one is missing";
  }
  return "its end is missing: it has " + std::to_string(size) + " bytes of a longer library";
}

std::string SystemReason() { return std::strerror(errno); }

}  // namespace

void Seal(const std::string& path, const std::string& facts) {
  errno = 0;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const std::streamoff end = file.seekg(0, std::ios::end).tellg();
  auto checksum = ChecksumOf(&file, file ? static_cast<uint64_t>(end) : 0);
  if (!file || !checksum.has_value()) TVM_FFI_THROW(RuntimeError) << "it cannot be read: " << SystemReason();
  Footer footer{static_cast<uint64_t>(end), facts.size(), 0, Mark()};
  checksum->Add(facts.data(), facts.size());
  checksum->Add(reinterpret_cast<const char*>(&footer), offsetof(Footer, checksum));
  footer.checksum = checksum->Value();
  file.seekp(0, std::ios::end);
  file.write(facts.data(), static_cast<std::streamsize>(facts.size()));
  file.write(reinterpret_cast<const char*>(&footer), sizeof(footer));
  file.close();
  if (!file) TVM_FFI_THROW(RuntimeError) << SystemReason();
}

Reason WhyNotSealed(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return "it cannot be read: " + SystemReason();
  const uint64_t size = SizeOf(&file);
  if (size == 0) return "it is empty";
  const Footer footer = FooterOf(&file, size).value_or(Footer{});
  const int format = FormatOf(footer);
  file.clear();
  if (format != 0 && format != kFormat) {
    return "it has format " + std::to_string(format) + ", and this version of unity_collage has format " +
           std::to_string(kFormat) + ": compile the model again";
  }
  if (footer.mark != Mark()) return WhyUnmarked(&file, size);
  const uint64_t content = size - sizeof(Footer);
  if (footer.facts_nbytes > content || footer.program_nbytes != content - footer.facts_nbytes) {
    return "it has another length than when it was saved";
  }
  const auto checksum = ChecksumOf(&file, size - sizeof(Footer) + offsetof(Footer, checksum));
  if (!checksum.has_value()) return "it cannot be read: " + SystemReason();
  if (checksum->Value() != footer.checksum) return "it has changed since it was saved";
  return std::nullopt;
}

std::string SealOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const uint64_t size = SizeOf(&file);
  const Footer footer = FooterOf(&file, size).value_or(Footer{});
  std::string text = std::to_string(size) + " ";
  return text.append(reinterpret_cast<const char*>(&footer), sizeof(footer));
}

std::string SealedFacts(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::optional<Footer> footer = FooterOf(&file, SizeOf(&file));
  if (!footer.has_value()) TVM_FFI_THROW(ValueError) << path << " is not a saved program";
  std::string facts(footer->facts_nbytes, '\0');
  file.seekg(static_cast<std::streamoff>(footer->program_nbytes));
  file.read(facts.data(), static_cast<std::streamsize>(facts.size()));
  return facts;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  using tvm::ffi::String;
  tvm::ffi::reflection::GlobalDef()
      .def("collage.runtime.seal", [](String path, String facts) { Seal(path, facts); })
      .def("collage.runtime.why_not_sealed", [](String path) { return Told(WhyNotSealed(path)); })
      .def("collage.runtime.sealed_facts", [](String path) { return String(SealedFacts(path)); });
}

}  // namespace collage
