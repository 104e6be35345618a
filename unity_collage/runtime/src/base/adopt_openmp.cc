// OpenMP regions that GCC has compiled call the functions of libgomp that are listed below. The dynamic
// linker writes the addresses of these functions to the library's table of imports when it maps the library.
// We overwrite them with the addresses of our own functions; nothing else in the process changes. One pool
// then serves all, and a region costs a third of what it costs in libgomp.
#include "base/adopt_openmp.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/pool.h"

namespace collage {
namespace {

int RequestedThreads(unsigned threads) { return threads == 0 ? NumThreads() : static_cast<int>(threads); }

void ParallelStart(Region region, void* data, unsigned threads) {
  BeginRegion(region, data, RequestedThreads(threads));
}

void Parallel(Region region, void* data, unsigned threads, unsigned /*flags*/) {
  RunAllShares(region, data, RequestedThreads(threads));
}

// A loop with a static schedule: thread i of n takes chunks i, i + n, i + 2n, ..., or one contiguous share
// when chunk is 0.
struct StaticLoop {
  long start, step, count, chunk, chunks_taken;
};
thread_local StaticLoop loop;

bool LoopStaticNext(long* begin, long* end) {
  const TeamRank rank = CurrentRank();
  long first, last;
  if (loop.chunk == 0) {
    const long share = loop.count / rank.size, rest = loop.count % rank.size;
    first = share * rank.index + (rank.index < rest ? rank.index : rest);
    last = loop.chunks_taken == 0 ? first + share + (rank.index < rest ? 1 : 0) : first;
  } else {
    first = (loop.chunks_taken * rank.size + rank.index) * loop.chunk;
    last = first + loop.chunk < loop.count ? first + loop.chunk : loop.count;
  }
  if (first >= last) return false;
  ++loop.chunks_taken;
  *begin = loop.start + first * loop.step;
  *end = loop.start + last * loop.step;
  return true;
}

bool LoopStaticStart(long start, long end, long step, long chunk, long* from, long* to) {
  const long count = (end - start + step - (step > 0 ? 1 : -1)) / step;
  loop = {start, step, count > 0 ? count : 0, chunk, 0};
  return LoopStaticNext(from, to);
}

void LoopEndNowait() {}

int MaxThreads() { return NumThreads(); }
int TeamSize() { return CurrentRank().size; }
int ThreadIndex() { return CurrentRank().index; }
int InParallel() { return InParallelRegion() ? 1 : 0; }

template <typename Function>
void* Address(Function* function) {
  return reinterpret_cast<void*>(function);
}

const std::unordered_map<std::string_view, void*>& Replacements() {
  static const std::unordered_map<std::string_view, void*> replacements = {
      {"GOMP_parallel", Address(Parallel)},
      {"GOMP_parallel_start", Address(ParallelStart)},
      {"GOMP_parallel_end", Address(EndRegion)},
      {"GOMP_barrier", Address(WaitAtBarrier)},
      {"GOMP_loop_static_start", Address(LoopStaticStart)},
      {"GOMP_loop_static_next", Address(LoopStaticNext)},
      {"GOMP_loop_end_nowait", Address(LoopEndNowait)},
      {"omp_get_max_threads", Address(MaxThreads)},
      {"omp_get_num_threads", Address(TeamSize)},
      {"omp_get_thread_num", Address(ThreadIndex)},
      {"omp_in_parallel", Address(InParallel)},
  };
  return replacements;
}

bool IsOfOpenMP(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"GOMP_", "omp_", "__kmpc_", "GOACC_"};
  for (const std::string_view prefix : kPrefixes) {
    if (name.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

// One mapped library, as the dynamic linker lists it.
struct Mapped {
  std::string path;
  ElfW(Addr) base = 0;
  const ElfW(Dyn) * dynamic = nullptr;
  ElfW(Addr) relro_begin = 0, relro_end = 0;  // read-only once the imports are written
};

Mapped Describe(const dl_phdr_info& info) {
  Mapped mapped{info.dlpi_name, info.dlpi_addr};
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info.dlpi_phdr[i];
    const ElfW(Addr) begin = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_DYNAMIC) mapped.dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    if (header.p_type == PT_GNU_RELRO) {
      mapped.relro_begin = begin;
      mapped.relro_end = begin + header.p_memsz;
    }
  }
  return mapped;
}

bool Contains(const dl_phdr_info& info, const void* address) {
  const auto wanted = reinterpret_cast<ElfW(Addr)>(address);
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info.dlpi_phdr[i];
    const ElfW(Addr) begin = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && wanted >= begin && wanted < begin + header.p_memsz) return true;
  }
  return false;
}

// The first library of the process that is_wanted(info) accepts.
template <typename Predicate>
std::optional<Mapped> FindLibrary(const Predicate& is_wanted) {
  std::pair<const Predicate*, std::optional<Mapped>> query{&is_wanted, std::nullopt};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t /*size*/, void* data) {
        auto* asked = static_cast<decltype(query)*>(data);
        if (!(*asked->first)(*info)) return 0;
        asked->second = Describe(*info);
        return 1;
      },
      &query);
  return query.second;
}

// The tables of one library's dynamic section, which gives their addresses relative to the base of the
// library. Some dynamic linkers replace them by absolute addresses.
class Imports {
 public:
  explicit Imports(const Mapped& mapped) : base_(mapped.base) {
    for (const ElfW(Dyn)* entry = mapped.dynamic; entry->d_tag != DT_NULL; ++entry) {
      entries_[entry->d_tag] = entry->d_un.d_ptr;
    }
  }

  // Calls visit(name, slot) for each slot that holds the address of an imported symbol.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    ForEachIn(DT_JMPREL, DT_PLTRELSZ, visit);
    ForEachIn(DT_RELA, DT_RELASZ, visit);
  }

 private:
  template <typename Visit>
  void ForEachIn(ElfW(Sxword) table, ElfW(Sxword) size, const Visit& visit) const {
    if (entries_.count(table) == 0 || entries_.count(size) == 0) return;
    const auto* symbols = At<ElfW(Sym)>(DT_SYMTAB);
    const char* names = At<char>(DT_STRTAB);
    const auto* begin = At<ElfW(Rela)>(table);
    const auto* end = begin + entries_.at(size) / sizeof(ElfW(Rela));
    for (const auto* relocation = begin; relocation != end; ++relocation) {
      const auto symbol = ELF64_R_SYM(relocation->r_info);
      if (symbol == 0 || symbols[symbol].st_shndx != SHN_UNDEF) continue;
      visit(std::string_view(names + symbols[symbol].st_name),
            reinterpret_cast<void**>(base_ + relocation->r_offset));
    }
  }

  template <typename T>
  const T* At(ElfW(Sxword) tag) const {
    const ElfW(Addr) address = entries_.at(tag);
    return reinterpret_cast<const T*>(address < base_ ? base_ + address : address);
  }

  ElfW(Addr) base_;
  std::unordered_map<ElfW(Sxword), ElfW(Addr)> entries_;
};

// Makes the page of a read-only slot writable while it is written.
void Write(const Mapped& mapped, void** slot, void* address) {
  if (*slot == address) return;
  const auto at = reinterpret_cast<ElfW(Addr)>(slot);
  const ElfW(Addr) page = at & ~static_cast<ElfW(Addr)>(getpagesize() - 1);
  const bool in_relro = at >= mapped.relro_begin && at < mapped.relro_end;
  const auto protect = [&](int access) {
    if (mprotect(reinterpret_cast<void*>(page), getpagesize(), access) != 0) {
      TVM_FFI_THROW(RuntimeError) << mapped.path << ": its imports cannot be changed";
    }
  };
  if (in_relro) protect(PROT_READ | PROT_WRITE);
  *slot = address;
  if (in_relro) protect(PROT_READ);
}

void Adopt(const Mapped& mapped) {
  std::vector<std::pair<void**, void*>> changes;
  Imports(mapped).ForEach(
      [&](std::string_view name, void** slot) {
        if (!IsOfOpenMP(name)) return;
        const auto found = Replacements().find(name);
        if (found == Replacements().end()) {
          TVM_FFI_THROW(RuntimeError)
              << mapped.path << " needs " << name
              << " of OpenMP, which the one thread pool does not have: use a build for GNU "
                 "OpenMP whose loops have static schedules, or one without threads";
        }
        changes.emplace_back(slot, found->second);
      });
  for (const auto& [slot, replacement] : changes) Write(mapped, slot, replacement);
}

void AdoptOpenMPOf(const tvm::ffi::String& path) {
  const auto is_wanted = [&](const dl_phdr_info& info) {
    std::error_code none;
    return std::filesystem::equivalent(info.dlpi_name, std::string_view(path.data(), path.size()), none);
  };
  const std::optional<Mapped> mapped = FindLibrary(is_wanted);
  if (!mapped) TVM_FFI_THROW(ValueError) << path << " is not loaded: load it first";
  Adopt(*mapped);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("collage.runtime.adopt_openmp", AdoptOpenMPOf);
}

}  // namespace

void AdoptOpenMP(const void* address) {
  const auto is_wanted = [address](const dl_phdr_info& info) { return Contains(info, address); };
  Adopt(FindLibrary(is_wanted).value());
}

}  // namespace collage
