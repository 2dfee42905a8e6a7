/* c.h — Braze for programs in C: packages, arrays, calls. The functions of braze::runtime.
 *
 * Every function that can fail returns a status; braze_last_error() says more. Handles are made by
 * functions that end in a parameter `out`, and go with the _release function of their kind, which
 * takes NULL. Any other NULL handle is BRAZE_INVALID_ARGUMENT; functions that return no status
 * answer with 0 or NULL then. Handles of packages and functions may be used from any thread; arrays
 * are never changed once made. Strings are UTF-8 and belong to the handle or function that gave
 * them.
 *
 * The interface only grows: what a program was built with keeps its meaning in all releases with
 * the same major version. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What became of a call. */
typedef enum braze_status {
  BRAZE_OK = 0,
  BRAZE_INVALID_ARGUMENT = 1,   /**< the caller passed something that cannot be */
  BRAZE_UNSUPPORTED = 2,        /**< this version, device or processor cannot serve it */
  BRAZE_RESOURCE_EXHAUSTED = 3, /**< memory; a retry is possible */
  BRAZE_DEVICE = 4,             /**< a device or its driver failed */
  BRAZE_DATA_LOSS = 5,          /**< a file is truncated, altered or unreadable */
  BRAZE_INTERNAL = 6,           /**< a bug in Braze */
  BRAZE_NOT_FOUND = 7           /**< a file does not exist */
} braze_status;

/** Element types. f16 and bf16 are 16 bits, in C uint16_t; bool is one byte, 0 or 1. */
typedef enum braze_dtype {
  BRAZE_BOOL = 0,
  BRAZE_I32 = 1,
  BRAZE_I64 = 2,
  BRAZE_U32 = 3,
  BRAZE_F16 = 4,
  BRAZE_BF16 = 5,
  BRAZE_F32 = 6,
  BRAZE_F64 = 7
} braze_dtype;

typedef struct braze_package braze_package;   /**< a package file */
typedef struct braze_function braze_function; /**< one of its functions, ready on a device */
typedef struct braze_array braze_array;       /**< a tensor on a device */

/** How a package is loaded; zeros are the defaults, but for the size. */
typedef struct braze_package_options {
  size_t size;         /**< sizeof(braze_package_options); nothing else is taken */
  const char* weights; /**< a .safetensors file in place of the package's weights, or NULL */
  int trust_any_owner; /**< not 0: take code from a file that other users can write */
  /** Public keys, or folders of them, with colons between: the package must be signed by one of
   * them. NULL: those that the environment variable BRAZE_TRUST_KEYS names, if any. */
  const char* trust_keys;
} braze_package_options;

/** The version of the library, "0.1.0". */
const char* braze_version(void);
/** What went wrong in this thread's last call that failed; "" if none did. Good until the next. */
const char* braze_last_error(void);

/** Maps and checks a package. `options` may be NULL. BRAZE_INVALID_ARGUMENT for a file that is no
 * package or that others could have written, and for options of another size; BRAZE_UNSUPPORTED for
 * a version of the format that this library does not read; BRAZE_NOT_FOUND for one that does not
 * exist; BRAZE_DATA_LOSS for one that is damaged. */
braze_status braze_package_load(const char* path, const braze_package_options* options,
                                braze_package** out);
/** Lets go of a package; functions that were loaded from it stay. */
void braze_package_release(braze_package* package);

/** Loads a function on `device`, "cpu" or "cuda:0", with its weights. `name` NULL: the package's
 * only function. The package may be released before the function. BRAZE_INVALID_ARGUMENT if there
 * is no such function or device, or a weight has another type; BRAZE_UNSUPPORTED if no code of it
 * runs there. */
braze_status braze_function_load(const braze_package* package, const char* name, const char* device,
                                 braze_function** out);
/** Lets go of a function; results of its calls stay. */
void braze_function_release(braze_function* function);
/** How many arguments a call takes: the inputs without a weight. */
size_t braze_function_inputs(const braze_function* function);
/** How many results a call gives. */
size_t braze_function_outputs(const braze_function* function);
/** The device that the function was loaded on. */
const char* braze_function_device(const braze_function* function);

/** Copies row-major elements from `data`, as many as the product of the `rank` extents of `shape`,
 * to `device`. `rank` 0 is a scalar; `shape` may be NULL then. Of BRAZE_BOOL any byte but 0 is
 * true. BRAZE_INVALID_ARGUMENT for a negative extent, more than 64 axes or no such device,
 * BRAZE_RESOURCE_EXHAUSTED where memory ends. */
braze_status braze_array_from_host(braze_dtype dtype, size_t rank, const int64_t* shape,
                                   const void* data, const char* device, braze_array** out);
/** Lets go of an array. */
void braze_array_release(braze_array* array);
/** The type of its elements. */
braze_dtype braze_array_dtype(const braze_array* array);
/** How many axes it has; 0: a scalar. */
size_t braze_array_rank(const braze_array* array);
/** Its extents, outermost first: braze_array_rank() of them. */
const int64_t* braze_array_shape(const braze_array* array);
/** The size of its elements together, in bytes. */
size_t braze_array_bytes(const braze_array* array);
/** Waits for the value and copies it, row-major. `bytes` must be braze_array_bytes(), or it is
 * BRAZE_INVALID_ARGUMENT. An error of the call that computes the array is returned here. */
braze_status braze_array_to_host(const braze_array* array, void* data, size_t bytes);

/** Starts one call; `results` receives as many arrays as `result_count` says, which must be
 * braze_function_outputs(). They may still be computing: copying them waits. Arguments are in the
 * order of the inputs that have no weight. An argument whose memory an output takes over ("in place
 * of" in `braze inspect`) is dead: any use of it but its release is BRAZE_INVALID_ARGUMENT, as are
 * arguments that do not fit in number, type, shape or device. On failure there are no results. */
braze_status braze_run(const braze_function* function, const braze_array* const* arguments,
                       size_t argument_count, braze_array** results, size_t result_count);

/* Sizes in the headers that `braze compile --header` makes. */
static inline int64_t braze_floordiv(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t braze_mod(int64_t a, int64_t b) { return a - b * braze_floordiv(a, b); }
static inline int64_t braze_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t braze_max(int64_t a, int64_t b) { return a < b ? b : a; }

#ifdef __cplusplus
}
#endif
