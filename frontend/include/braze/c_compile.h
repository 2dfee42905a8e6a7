/* c_compile.h — for programs in C: from the text of a graph to a function. The functions of
 * braze::braze, over those of c.h, whose rules hold here. */
#pragma once

#include "braze/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How a graph is compiled; zeros are the defaults, but for the size. */
typedef struct braze_compile_options {
  size_t size;             /**< sizeof(braze_compile_options) */
  const char* precision;   /**< what rounding may change: "standard", "strict" or "fast" */
  const char* dump_folder; /**< receives every phase of the compilation; NULL: none does */
  int do_not_fuse;         /**< not 0: one kernel an op, for comparison */
} braze_compile_options;

/** Compiles Graph IR text (docs/ir/graph.md), or finds it compiled in the cache, and loads it on
 * `device`. `name` is the text's in messages, such as its file's. `options` may be NULL.
 * BRAZE_INVALID_ARGUMENT, with the line, for a text that is no sound graph. */
braze_status braze_function_compile(const char* text, const char* name,
                                    const braze_compile_options* options, const char* device,
                                    braze_function** out);
/** What the function was compiled to, for people: its kernels, and why each was made. Good as long
 * as the function; "" for those of packages that hold no report. */
const char* braze_function_explain(const braze_function* function);

#ifdef __cplusplus
}
#endif
