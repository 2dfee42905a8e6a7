/** @file
 * The interface in C to the compiler: from the text of a graph to a function. The library
 * braze::braze has these functions. The rules of c.h hold here too. */
#pragma once

#include "braze/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How a graph is compiled. Zeros are the defaults, except for the size. */
typedef struct braze_compile_options {
  size_t size;             /**< sizeof(braze_compile_options) */
  const char* precision;   /**< which roundings may change: "standard", "strict" or "fast" */
  const char* dump_folder; /**< a folder that receives every step; NULL: none */
  int do_not_fuse;         /**< not 0: one kernel for each op, for comparison */
} braze_compile_options;

/** Compiles Graph IR text (docs/ir/graph.md), or finds it compiled in the cache, and loads it on
 * `device`. `name` is the name of the text in messages, such as its file name. `options` may be
 * NULL. BRAZE_INVALID_ARGUMENT, with the line, if the text is not a valid graph. */
braze_status braze_function_compile(const char* text, const char* name,
                                    const braze_compile_options* options, const char* device,
                                    braze_function** out);
/** A report for people: the kernels of the function and the reasons for them. Valid as long as the
 * function; "" for a function of a package without a report. */
const char* braze_function_explain(const braze_function* function);

#ifdef __cplusplus
}
#endif
