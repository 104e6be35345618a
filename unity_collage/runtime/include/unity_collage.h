/* Runs programs that unity_collage has compiled: from C, and from every language that calls C.
 *
 *   collage_program* program = collage_open("bundle");
 *   collage_tensor image = {pixels, (const int64_t[]){1, 3, 224, 224}, 4, COLLAGE_FLOAT32};
 *   collage_tensor scores = {buffer, (const int64_t[]){1, 1000}, 2, COLLAGE_FLOAT32};
 *   if (program == NULL || collage_run(program, &image, 1, &scores, 1) != 0) puts(collage_error());
 *   collage_close(program);
 *
 * A program may be run from several threads at once. unity_collage.hpp is the interface for C++.
 */
#ifndef UNITY_COLLAGE_H_
#define UNITY_COLLAGE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct collage_program collage_program;

typedef enum {
  COLLAGE_OTHER = 0, /* a value that is not a tensor, or has a type that is not listed */
  COLLAGE_FLOAT32,
  COLLAGE_FLOAT16,
  COLLAGE_BFLOAT16,
  COLLAGE_FLOAT64,
  COLLAGE_INT8,
  COLLAGE_UINT8,
  COLLAGE_INT16,
  COLLAGE_UINT16,
  COLLAGE_INT32,
  COLLAGE_UINT32,
  COLLAGE_INT64,
  COLLAGE_UINT64,
  COLLAGE_BOOL
} collage_type;

/* A dense tensor in row-major order. */
typedef struct {
  void* data;
  const int64_t* shape;
  int32_t ndim;
  collage_type type;
} collage_tensor;

/* What is known of an input or a result before the program runs. */
typedef struct {
  const char* name;
  const int64_t* shape; /* -1: open */
  int32_t ndim;         /* -1: not known */
  collage_type type;
} collage_value;

/* Opens a folder that Program.save(..., bundle=True) wrote, or the file of a program after its libraries were
 * loaded. NULL if it fails: collage_error() says why. Before the program is loaded, its file is verified, and
 * that this processor and the loaded libraries have what it needs. */
collage_program* collage_open(const char* path);
/* Frees the program, and the results that this thread has views of. */
void collage_close(collage_program* program);

/* The number of inputs, or of results, and a pointer to their descriptions, which live as long as the
 * program. */
int32_t collage_inputs(const collage_program* program, const collage_value** values);
int32_t collage_results(const collage_program* program, const collage_value** values);

/* Runs the program: 0, or -1 if it fails. `inputs` are read where they are, or copied if they are not aligned
 * to 64 bytes. A result is copied to the `data` of its tensor; shape and type of the tensor must be those of
 * the result. If `data` is NULL, the tensor becomes a view of the program's own memory, never of an input
 * or a weight, valid until this thread runs or closes a program. */
int collage_run(collage_program* program, const collage_tensor* inputs, int32_t num_inputs,
                collage_tensor* results, int32_t num_results);

/* The number of threads that the program was measured for, or 0 if that is not known. */
int32_t collage_threads(const collage_program* program);
/* Sets how many threads the programs of this process use, from 1 to 1024: 0, or -1 for other numbers. */
int collage_set_threads(int32_t threads);

/* Why the last call of this thread failed, in one line. */
const char* collage_error(void);

#ifdef __cplusplus
}
#endif
#endif /* UNITY_COLLAGE_H_ */
