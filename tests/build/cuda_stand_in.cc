// A CUDA driver and a CUDA runtime for a device that is not there. Its kernels compute nothing. What compiles
// for a GPU, starts workers and launches kernels runs with it, and no number is right. Its memory is the
// device's own: the host that reads or writes it without a copy crashes, as on a GPU.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

thread_local bool capturing = false;

template <typename T>
int Made(T* handle) {
  *handle = reinterpret_cast<T>(std::malloc(1));
  return 0;
}

template <typename T>
int Ended(T handle) {
  std::free(reinterpret_cast<void*>(handle));
  return 0;
}

// Of an H100, as far as somebody asks; 1 for all others.
const std::map<int, int> kAttributes = {
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, 227 << 10},
    {cudaDevAttrMaxRegistersPerBlock, 64 << 10},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMultiProcessorCount, 132},
    {cudaDevAttrClockRate, 1980000},
    {cudaDevAttrMemoryClockRate, 2619000},
    {cudaDevAttrGlobalMemoryBusWidth, 5120},
    {cudaDevAttrL2CacheSize, 50 << 20},
    {cudaDevAttrComputeCapabilityMajor, 9},
    {cudaDevAttrComputeCapabilityMinor, 0},
};

cudaError_t Ok(int = 0) { return cudaSuccess; }

// Memory of the device. Its address belongs to pages that nobody may touch; copies use a second mapping of
// the same pages.
struct Allocation {
  size_t nbytes;
  char* pages;
};
std::mutex mutex;
std::map<uintptr_t, Allocation> allocations;

void* Allocated(size_t nbytes) {
  const int file = memfd_create("device memory", 0);
  if (nbytes == 0) nbytes = 1;
  if (file < 0 || ftruncate(file, static_cast<off_t>(nbytes)) != 0) std::abort();
  void* address = mmap(nullptr, nbytes, PROT_NONE, MAP_SHARED, file, 0);
  void* pages = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (address == MAP_FAILED || pages == MAP_FAILED) std::abort();
  std::lock_guard<std::mutex> lock(mutex);
  allocations[reinterpret_cast<uintptr_t>(address)] = {nbytes, static_cast<char*>(pages)};
  return address;
}

void Free(void* address) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = allocations.find(reinterpret_cast<uintptr_t>(address));
  if (found == allocations.end()) return;
  munmap(address, found->second.nbytes);
  munmap(found->second.pages, found->second.nbytes);
  allocations.erase(found);
}

// Where a copy reads or writes an address of the device; other addresses are the host's.
template <typename T>
T* Reached(T* pointer) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) return pointer;
  --found;
  const size_t offset = address - found->first;
  return offset < found->second.nbytes ? found->second.pages + offset : pointer;
}

}  // namespace

extern "C" {

// Memory

cudaError_t cudaMalloc(void** pointer, size_t nbytes) {
  *pointer = Allocated(nbytes);
  return Ok();
}
cudaError_t cudaMallocHost(void** pointer, size_t nbytes) {
  *pointer = std::aligned_alloc(512, (nbytes + 1023) / 512 * 512);
  return Ok();
}
cudaError_t cudaFree(void* pointer) {
  Free(pointer);
  return Ok();
}
cudaError_t cudaFreeHost(void* pointer) { return Ok(Ended(pointer)); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t nbytes, cudaMemcpyKind) {
  std::memmove(Reached(to), Reached(from), nbytes);
  return Ok();
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t nbytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, nbytes, kind);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t nbytes, cudaStream_t) {
  return cudaMemcpy(to, from, nbytes, cudaMemcpyDefault);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t nbytes, cudaStream_t) {
  std::memset(Reached(to), value, nbytes);
  return Ok();
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{16} << 30;
  return Ok();
}

// The device

cudaError_t cudaGetDeviceCount(int* count) { return Ok(*count = 1); }
cudaError_t cudaGetDevice(int* device) { return Ok(*device = 0); }
cudaError_t cudaSetDevice(int) { return Ok(); }
cudaError_t cudaDeviceSynchronize() { return Ok(); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const auto found = kAttributes.find(attribute);
  return Ok(*value = found == kAttributes.end() ? 1 : found->second);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  return Ok();
}
cudaError_t cudaGetLastError() { return Ok(); }
cudaError_t cudaPeekAtLastError() { return Ok(); }
const char* cudaGetErrorName(cudaError_t) { return "no error"; }
const char* cudaGetErrorString(cudaError_t) { return "no error"; }

// Streams, events and graphs: all work is done when it is given

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return Ok(Made(stream)); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return Ok(Made(stream)); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return Ok(Ended(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return Ok(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return Ok(); }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return Ok(capturing = true); }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  capturing = false;
  return Ok(Made(graph));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return Ok();
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return Ok(); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t, unsigned long long) {
  return Ok(Made(exec));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t, unsigned long long) {
  return Ok(Made(exec));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return Ok(); }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return Ok(Ended(graph)); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return Ok(Ended(exec)); }
cudaError_t cudaEventCreate(cudaEvent_t* event) { return Ok(Made(event)); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return Ok(Made(event)); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return Ok(Ended(event)); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return Ok(); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return Ok(); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0.01f;
  return Ok();
}

// The driver. NVRTC asks it too, and does without it where it does not start.

CUresult cuInit(unsigned) { return CUDA_ERROR_NO_DEVICE; }
CUresult cuGetExportTable(const void**, const CUuuid*) { return CUDA_ERROR_INVALID_VALUE; }
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::strncpy(name, "Stand-in", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** text) {
  *text = "no error";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult status, const char** text) { return cuGetErrorName(status, text); }
CUresult cuModuleLoadData(CUmodule* module, const void*) {
  Made(module);
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  Ended(module);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char*) {
  *function = reinterpret_cast<CUfunction>(module);
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        CUstream, void**, void**) {
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void**, void**) { return CUDA_SUCCESS; }
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  return CUDA_SUCCESS;
}

}  // extern "C"
