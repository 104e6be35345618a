// The functions of the CUDA runtime that we call, with the numbers of its headers (CUDA 13).
#pragma once

#include <cstddef>

namespace collage::cuda {

// cudaStream_t, cudaEvent_t, cudaGraph_t and cudaGraphExec_t: pointers to structures that only the library knows.
using Stream = void*;
using Event = void*;
using Graph = void*;
using GraphExec = void*;

constexpr int kSuccess = 0;
constexpr int kCopyOfAnyKind = 4;          // cudaMemcpyDefault
constexpr int kCaptureGlobal = 0;          // cudaStreamCaptureModeGlobal
constexpr int kCaptureRelaxed = 2;         // cudaStreamCaptureModeRelaxed
constexpr int kCapturing = 1;              // cudaStreamCaptureStatusActive
constexpr unsigned kStreamNonBlocking = 1;  // cudaStreamNonBlocking

struct RuntimeApi {
  int (*malloc)(void** pointer, size_t nbytes);
  int (*free)(void* pointer);
  int (*memcpy_async)(void* to, const void* from, size_t nbytes, int kind, Stream stream);
  int (*memset_async)(void* pointer, int value, size_t nbytes, Stream stream);
  int (*stream_create)(Stream* stream, unsigned flags);
  int (*stream_destroy)(Stream stream);
  int (*stream_synchronize)(Stream stream);
  int (*stream_begin_capture)(Stream stream, int mode);
  int (*stream_end_capture)(Stream stream, Graph* graph);
  int (*stream_get_capture_info)(Stream stream, int* status, unsigned long long* id, Graph* graph,
                                 const void** dependencies, const void** edges, size_t* count);
  int (*thread_exchange_capture_mode)(int* mode);
  int (*graph_instantiate)(GraphExec* exec, Graph graph, unsigned long long flags);
  int (*graph_launch)(GraphExec exec, Stream stream);
  int (*graph_destroy)(Graph graph);
  int (*graph_exec_destroy)(GraphExec exec);
  int (*event_create)(Event* event);
  int (*event_destroy)(Event event);
  int (*event_record)(Event event, Stream stream);
  int (*event_synchronize)(Event event);
  int (*event_elapsed_time)(float* milliseconds, Event begin, Event end);
  int (*get_device)(int* device);
  int (*get_last_error)();
  const char* (*get_error_name)(int status);
  const char* (*get_error_string)(int status);
};

// The library, opened with the first call; throws a RuntimeError where it cannot be opened.
const RuntimeApi& Runtime();

// Throws a RuntimeError that names `what` and CUDA's error unless `status` is a success.
void Check(int status, const char* what);

// The stream on which TVM's kernels of this thread run now.
Stream CurrentStream();

}  // namespace collage::cuda
