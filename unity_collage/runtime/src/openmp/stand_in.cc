// A libgomp.so.1 for systems without one: the functions of it that oneDNN's library imports, for a team of one thread.
// The loader needs them to map oneDNN. AdoptOpenMP replaces them by the pool's before oneDNN runs, as it does those of
// the real libgomp. The versions of the symbols are in symbols.map.
extern "C" {

void GOMP_parallel_start(void (*/*region*/)(void*), void* /*data*/, unsigned /*threads*/) {}
void GOMP_parallel_end() {}
void GOMP_barrier() {}

bool GOMP_loop_static_start(long start, long end, long step, long /*chunk*/, long* from, long* to) {
  *from = start;
  *to = end;
  return step > 0 ? start < end : start > end;
}
bool GOMP_loop_static_next(long* /*from*/, long* /*to*/) { return false; }
void GOMP_loop_end_nowait() {}

int omp_get_max_threads() { return 1; }
int omp_get_num_threads() { return 1; }
int omp_get_thread_num() { return 0; }
int omp_in_parallel() { return 0; }
}
