/* A library of functions for graphs, loaded by main.cpp and by `braze run --load`. It has one
 * function, example.roll, which moves all elements of a tensor by a number of places; what leaves
 * at the end comes in at the beginning. The attributes are that number, in decimal. */
#include <braze/c.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Where the parts go: bytes [0, split) of x become the end of y, and the rest its beginning.
 * Returns NULL, or what is wrong with the call. */
static const char* split_of(const braze_custom_arguments* call, size_t* split) {
  const braze_custom_tensor *x, *y = call->result;
  long long count, places;
  char* end;
  if (call->operand_count != 1) return "it takes one operand";
  x = call->operands[0];
  if (x->dtype != y->dtype || x->bytes != y->bytes)
    return "the result must have the type of the operand";
  places = strtoll(call->attributes, &end, 10);
  if (end == call->attributes || *end != '\0') return "its attributes must be a number of places";
  count = 1;
  for (size_t axis = 0; axis < x->rank; ++axis) count *= x->shape[axis];
  if (count == 0) {
    *split = 0;
    return NULL;
  }
  places = ((places % count) + count) % count;
  *split = (size_t)(count - places) * (x->bytes / (size_t)count);
  return NULL;
}

static const char* roll_on_host(const braze_custom_arguments* call) {
  size_t split;
  const char* const wrong = split_of(call, &split);
  const char* const from = call->operands ? call->operands[0]->data : NULL;
  char* const to = call->result->data;
  const size_t rest = call->result->bytes - (wrong ? 0 : split);
  if (wrong) return wrong;
  if (call->result->bytes == 0) return NULL;
  memcpy(to, from + split, rest);
  memcpy(to + rest, from, split);
  return NULL;
}

/* One function of the CUDA driver, declared here so that no toolkit is needed. */
typedef int (*copy_function)(unsigned long long to, unsigned long long from, size_t bytes,
                             void* stream);

/* The copies are put into the stream, and are done in its order. Nothing waits for them here. */
static const char* roll_in_stream(const braze_custom_arguments* call) {
  size_t split;
  const char* const wrong = split_of(call, &split);
  void* driver;
  copy_function copy;
  unsigned long long from, to;
  size_t rest;
  if (wrong) return wrong;
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  copy = driver ? (copy_function)dlsym(driver, "cuMemcpyDtoDAsync_v2") : NULL;
  if (!copy) return "the CUDA driver is not there";
  from = (unsigned long long)(size_t)call->operands[0]->data;
  to = (unsigned long long)(size_t)call->result->data;
  rest = call->result->bytes - split;
  if (rest > 0 && copy(to, from + split, rest, call->stream) != 0) return "a copy failed";
  if (split > 0 && copy(to + rest, from, split, call->stream) != 0) return "a copy failed";
  return NULL;
}

braze_status braze_custom_calls(braze_status (*add)(const char* name, const char* kind,
                                                    braze_custom_function function, void* user)) {
  const braze_status status = add("example.roll", "cpu", roll_on_host, NULL);
  return status != BRAZE_OK ? status : add("example.roll", "cuda", roll_in_stream, NULL);
}
