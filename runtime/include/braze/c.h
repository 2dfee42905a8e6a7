/** @file
 * The interface in C: packages, arrays, calls and streams. The library braze::runtime has these
 * functions; c_compile.h declares those of the compiler.
 *
 * Every function that can fail returns a status; braze_last_error() and braze_last_error_code() say
 * more. A function whose last parameter is `out` makes a handle. The _release function of its kind
 * destroys it, and accepts NULL. Any other function returns BRAZE_INVALID_ARGUMENT for a NULL
 * handle, or 0 or NULL if it returns no status. Any thread may use the handles of packages and
 * functions. An array does not change after it was made. Strings are UTF-8 and belong to the handle
 * or function that returned them.
 *
 * The interface only grows: everything keeps its meaning in all releases with the same major
 * version. The first member of every structure is its size. A smaller structure comes from an older
 * program, and its missing members count as zeros; it may end behind any member that is not marked
 * as needed. A larger structure comes from a program that needs a newer library, and is
 * BRAZE_INVALID_ARGUMENT. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The result of a call. */
typedef enum braze_status {
  BRAZE_OK = 0,
  BRAZE_INVALID_ARGUMENT = 1,   /**< the caller passed something impossible */
  BRAZE_UNSUPPORTED = 2,        /**< this version, device or processor cannot do it */
  BRAZE_RESOURCE_EXHAUSTED = 3, /**< not enough memory; you can retry */
  BRAZE_DEVICE = 4,             /**< a device or its driver failed */
  BRAZE_DATA_LOSS = 5,          /**< a file is truncated, altered or unreadable */
  BRAZE_INTERNAL = 6,           /**< a bug in Braze */
  BRAZE_NOT_FOUND = 7           /**< a file does not exist */
} braze_status;

/** Element types. f16 and bf16 are 16 bits, in C uint16_t, f8e4m3 and f8e5m2 are uint8_t; bool is
 * one byte, 0 or 1. */
typedef enum braze_dtype {
  BRAZE_BOOL = 0,
  BRAZE_I32 = 1,
  BRAZE_I64 = 2,
  BRAZE_U32 = 3,
  BRAZE_F16 = 4,
  BRAZE_BF16 = 5,
  BRAZE_F32 = 6,
  BRAZE_F64 = 7,
  BRAZE_I8 = 8,
  BRAZE_U8 = 9,
  BRAZE_I16 = 10,
  BRAZE_U16 = 11,
  BRAZE_U64 = 12,
  BRAZE_F8E4M3 = 13,
  BRAZE_F8E5M2 = 14
} braze_dtype;

typedef struct braze_package braze_package;   /**< a package file */
typedef struct braze_function braze_function; /**< one of its functions, ready on a device */
typedef struct braze_array braze_array;       /**< a tensor on a device */
typedef struct braze_stream braze_stream;     /**< an order of work on a device */
struct DLManagedTensor;                       /* of <dlpack/dlpack.h> */
struct DLManagedTensorVersioned;

/** The importance of a line of the log. */
typedef enum braze_log_level {
  BRAZE_LOG_DEBUG = 0,   /**< what BRAZE_DEBUG asks for */
  BRAZE_LOG_INFO = 1,    /**< what Braze did, for the record */
  BRAZE_LOG_WARNING = 2, /**< what the user should know although nothing failed */
  BRAZE_LOG_ERROR = 3    /**< a failure that no status can report */
} braze_log_level;

/** The configuration of the process. Zeros are the defaults, except for the size. For a member that
 * is not set, the environment variable in parentheses decides. */
typedef struct braze_config {
  size_t size;              /**< sizeof(braze_config) */
  const char* cache;        /**< cache on disk: "on", "readonly" or "off" (BRAZE_CACHE) */
  const char* cache_folder; /**< its folder (BRAZE_CACHE_DIR) */
  uint64_t cache_bytes;     /**< its size limit (BRAZE_CACHE_SIZE) */
  int threads;              /**< of each CPU device, with the calling thread (BRAZE_THREADS) */
  /** The thread pool of the host program, in place of Braze's threads. It calls task(context, i)
   * once for every i below `count`, on any threads, and returns when all calls have returned. */
  void (*parallel_for)(void* user, int count, void (*task)(void* context, int index),
                       void* context);
  void* parallel_for_user; /**< the first argument of parallel_for */
  uint64_t memory_limit;   /**< bytes that each device may allocate (BRAZE_MEMORY_LIMIT) */
  /** Receives the log in place of stderr, from any thread. It must not call Braze. */
  void (*log)(void* user, braze_log_level level, const char* text);
  void* log_user;                /**< the first argument of log */
  const char* reproducer_folder; /**< receives a file after a fault of Braze; "": no file */
  const char* default_device;    /**< "cpu", "cuda:0"; NULL: the first GPU, or "cpu" */
} braze_config;

/** Memory of the host program that an array is made over. */
typedef struct braze_memory {
  size_t size;            /**< sizeof(braze_memory) */
  const void* data;       /**< the first element */
  braze_dtype dtype;      /**< of the elements */
  size_t rank;            /**< the number of axes */
  const int64_t* shape;   /**< their extents, outermost first */
  const int64_t* strides; /**< in elements, or NULL: dense and row-major */
  const char*
      device; /**< "cpu": host memory; "cuda:0": memory of that GPU; needed, as is all before */
  /** Called once, on any thread, when nothing needs the memory any more, also if no array could be
   * made, unless `size` is wrong. May be NULL. */
  void (*release)(void* user);
  void* user;        /**< the argument of release */
  int must_not_copy; /**< not 0: memory that must be copied is BRAZE_INVALID_ARGUMENT */
} braze_memory;

/** How a package is loaded. Zeros are the defaults, except for the size. */
typedef struct braze_package_options {
  size_t size;         /**< sizeof(braze_package_options) */
  const char* weights; /**< a .safetensors file in place of the package's weights, or NULL */
  int trust_any_owner; /**< not 0: accept code from a file that other users can write */
  /** Public keys, or folders of them, separated by colons. One of them must have signed the
   * package. NULL: the keys that the environment variable BRAZE_TRUST_KEYS names, if any. Needed,
   * so that no wrong size drops the demand. */
  const char* trust_keys;
} braze_package_options;

/** The version of the library, "0.1.0". */
const char* braze_version(void);
/** The message of this thread's last failed call, or "". Valid until the next failure. */
const char* braze_last_error(void);
/** The stable name of that failure for programs, such as "no-such-device", or "". Valid until the
 * next failure. */
const char* braze_last_error_code(void);

/** Sets the configuration of the process. Call it once, before every function except those above.
 * BRAZE_INVALID_ARGUMENT if it comes later, and for impossible values. */
braze_status braze_configure(const braze_config* config);

/** How many devices the process has. Asking opens CUDA's driver. */
size_t braze_devices(void);
/** The name of device `index`, below what this thread's last braze_devices() returned, such as
 * "cuda:0"; else NULL. Good until this thread's next braze_devices(). */
const char* braze_device_name(size_t index);
/** The device of whoever names none: the configured one, else the first GPU, else "cpu". NULL if
 * the configured one is no device. Good until this thread asks again. */
const char* braze_default_device(void);
/** Waits until all work that was given to the device is done. An error of that work is returned. */
braze_status braze_synchronize(const char* device);

/** Maps and checks a package. `options` may be NULL. BRAZE_INVALID_ARGUMENT if the file is not a
 * package or others could have written it, and for options of a wrong size. BRAZE_UNSUPPORTED if
 * this library cannot read the version of the format, BRAZE_NOT_FOUND if the file does not exist,
 * BRAZE_DATA_LOSS if it is damaged. */
braze_status braze_package_load(const char* path, const braze_package_options* options,
                                braze_package** out);
/** Releases a package. Functions that were loaded from it remain. */
void braze_package_release(braze_package* package);

/** The number of functions of a package. */
size_t braze_package_functions(const braze_package* package);
/** The name of function `index`; NULL unless it is below braze_package_functions(). */
const char* braze_package_function_name(const braze_package* package, size_t index);

/** Loads a function and its weights on `device`, such as "cpu" or "cuda:0". If `name` is NULL, it
 * is the only function of the package. The package may be released before the function.
 * BRAZE_INVALID_ARGUMENT if there is no such function or device, or a weight has another type;
 * BRAZE_UNSUPPORTED if the package has no code for the device. */
braze_status braze_function_load(const braze_package* package, const char* name, const char* device,
                                 braze_function** out);
/** Releases a function. The results of its calls remain. */
void braze_function_release(braze_function* function);
/** The number of arguments of a call, which are the inputs without a weight. */
size_t braze_function_inputs(const braze_function* function);
/** The number of results of a call. */
size_t braze_function_outputs(const braze_function* function);
/** The function's name. */
const char* braze_function_name(const braze_function* function);
/** The name of argument `index`; NULL unless it is below braze_function_inputs(). */
const char* braze_function_input_name(const braze_function* function, size_t index);
/** The type of that argument, such as "f32[n, 64]", or NULL. */
const char* braze_function_input_type(const braze_function* function, size_t index);
/** The name of result `index` ("" if none); NULL unless it is below braze_function_outputs(). */
const char* braze_function_output_name(const braze_function* function, size_t index);
/** The type of that result, or NULL. */
const char* braze_function_output_type(const braze_function* function, size_t index);
/** The argument whose memory result `index` takes over, and which is dead after a call; -1 if there
 * is none. */
int64_t braze_function_output_replaces(const braze_function* function, size_t index);
/** The device that the function was loaded on. */
const char* braze_function_device(const braze_function* function);

/** Copies elements in row-major order from `data` to `device`. Their number is the product of the
 * `rank` extents of `shape`. With `rank` 0 the array is a scalar, and `shape` may be NULL. For
 * BRAZE_BOOL, every byte except 0 means true. BRAZE_INVALID_ARGUMENT for a negative extent, more
 * than 64 axes or an unknown device, BRAZE_RESOURCE_EXHAUSTED if there is not enough memory. */
braze_status braze_array_from_host(braze_dtype dtype, size_t rank, const int64_t* shape,
                                   const void* data, const char* device, braze_array** out);
/** Makes an array over memory of the host program, which must not change until it is released. On a
 * GPU the memory must be ready in the order of this thread's stream (braze_stream_enter). Memory
 * that is strided, or not aligned to 64 bytes, is copied, and a line of the log says so. Memory of
 * a GPU that is strided along more than 16 axes is BRAZE_INVALID_ARGUMENT. No call can overwrite
 * the array. */
braze_status braze_array_borrow(const braze_memory* memory, braze_array** out);
/** The same over a tensor of another library. Its deleter is called when nothing needs it any more,
 * also if no array could be made. BRAZE_UNSUPPORTED for a version, type or device that Braze does
 * not have. */
braze_status braze_array_from_dlpack(struct DLManagedTensorVersioned* tensor, braze_array** out);
/** The same for tensors in the form before DLPack 1.0. */
braze_status braze_array_from_dlpack_unversioned(struct DLManagedTensor* tensor, braze_array** out);
/** Exports the array as a tensor for another library, which must not write to it and must call its
 * deleter. On a GPU the tensor is ready for this thread's stream, in which the receiver uses it. */
braze_status braze_array_to_dlpack(const braze_array* array, struct DLManagedTensorVersioned** out);
/** The same for libraries that know only the form before DLPack 1.0. */
braze_status braze_array_to_dlpack_unversioned(const braze_array* array,
                                               struct DLManagedTensor** out);
/** The same value on another device, as an array of its own; a copy where it is not there yet. */
braze_status braze_array_to_device(const braze_array* array, const char* device, braze_array** out);
/** Waits until the value is computed. An error of the call that computes it is returned here. */
braze_status braze_array_wait(const braze_array* array);
/** Releases an array. */
void braze_array_release(braze_array* array);
/** The type of its elements. */
braze_dtype braze_array_dtype(const braze_array* array);
/** The number of its axes; 0 for a scalar. */
size_t braze_array_rank(const braze_array* array);
/** Its extents, outermost first: braze_array_rank() of them. */
const int64_t* braze_array_shape(const braze_array* array);
/** The size of all its elements in bytes. */
size_t braze_array_bytes(const braze_array* array);
/** The device that it is on. */
const char* braze_array_device(const braze_array* array);
/** Waits for the value and copies it in row-major order. BRAZE_INVALID_ARGUMENT unless `bytes` is
 * braze_array_bytes(). If the call that computes the array failed, this returns its error. */
braze_status braze_array_to_host(const braze_array* array, void* data, size_t bytes);

/** Starts one call. `results` receives `result_count` arrays, which must be the number of
 * braze_function_outputs(). They may still be under computation; copying them waits. The arguments
 * have the order of the inputs without a weight. If an output takes over the memory of an argument
 * ("in place of" in `braze inspect`), the argument is dead: any use except its release is
 * BRAZE_INVALID_ARGUMENT. So are arguments of a wrong number, type, shape or device. After a
 * failure there are no results. */
braze_status braze_run(const braze_function* function, const braze_array* const* arguments,
                       size_t argument_count, braze_array** results, size_t result_count);

/** Makes a new stream on `device`, beside its main stream, which calls use by default. */
braze_status braze_stream_new(const char* device, braze_stream** out);
/** Wraps a CUDA stream of the host program; NULL is CUDA's default stream. The stream must live as
 * long as this handle and the arrays that are made in it. */
braze_status braze_stream_of_host(const char* device, void* cuda_stream, braze_stream** out);
/** The stream in which this thread's calls on `device` run. */
braze_status braze_stream_current(const char* device, braze_stream** out);
/** Releases a stream. Work in it continues. */
void braze_stream_release(braze_stream* stream);
/** Until the next braze_stream_leave(), this thread's calls on the device of the stream run in the
 * stream. */
braze_status braze_stream_enter(const braze_stream* stream);
/** Ends the innermost braze_stream_enter() of this thread. */
braze_status braze_stream_leave(void);
/** Waits until everything in the stream is complete. */
braze_status braze_stream_synchronize(const braze_stream* stream);
/** The CUDA handle of the stream; NULL on other devices. */
void* braze_stream_native(const braze_stream* stream);

/** A dense row-major tensor of a custom call, in memory that is aligned to 64 bytes. */
typedef struct braze_custom_tensor {
  size_t size;          /**< sizeof(braze_custom_tensor) of the library */
  void* data;           /**< the first element; may be NULL if there are no elements */
  braze_dtype dtype;    /**< of the elements */
  size_t rank;          /**< the number of axes; 0 for a scalar */
  const int64_t* shape; /**< their extents, outermost first */
  size_t bytes;         /**< the size of all elements */
} braze_custom_tensor;

/** One call of a function of the host program. Everything in it is valid until the function
 * returns. */
typedef struct braze_custom_arguments {
  size_t size;             /**< sizeof(braze_custom_arguments) of the library */
  void* user;              /**< what was registered with the function */
  const char* name;        /**< the name under which the function is registered */
  const char* attributes;  /**< the bytes that the op gives it, with a zero behind them */
  size_t attributes_bytes; /**< their number without that zero */
  const braze_custom_tensor* const* operands; /**< must not be written */
  size_t operand_count;                       /**< their number */
  /** Must be written, all of it; its bytes begin undefined. */
  const braze_custom_tensor* result;
  /** The CUDA stream that the work must be put into; NULL on the host, where the work must be
   * complete when the function returns. */
  void* stream;
} braze_custom_arguments;

/** A function of the host program that graphs call by name (`custom_call`). It returns NULL, or the
 * reason why the call failed, as a text that stays valid until this thread calls the function
 * again. Several threads may call it at the same time. It must not run functions of Braze, read
 * arrays or wait for a device, and nothing may be thrown through it. */
typedef const char* (*braze_custom_function)(const braze_custom_arguments* arguments);

/** Registers the function that graphs call by `name` on devices of a kind: "cpu", which includes
 * simulators and the interpreter, or "cuda", where operands and result are memory of a GPU whose
 * context is current. It stays until the process ends, and so must `user`. A function of Braze is
 * loaded with those that are registered then. BRAZE_INVALID_ARGUMENT for another kind, an empty
 * name, and a name that the kind has already. */
braze_status braze_register_custom_call(const char* name, const char* kind,
                                        braze_custom_function function, void* user);
/** What a shared library must define under the name braze_custom_calls, for `--load` of the tools
 * and braze_load_custom_calls(). It calls `add`, which is braze_register_custom_call, for each of
 * its functions, and returns the first status that is not BRAZE_OK. So the library need not be
 * linked with Braze. */
typedef braze_status (*braze_custom_library)(braze_status (*add)(const char* name, const char* kind,
                                                                 braze_custom_function function,
                                                                 void* user));
/** Loads such a library, which stays loaded. BRAZE_NOT_FOUND if the file does not exist,
 * BRAZE_INVALID_ARGUMENT if it cannot be loaded or its function fails. */
braze_status braze_load_custom_calls(const char* path);

/* Arithmetic of sizes for the headers that `braze compile --header` makes. */
static inline int64_t braze_floordiv(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t braze_mod(int64_t a, int64_t b) { return a - b * braze_floordiv(a, b); }
static inline int64_t braze_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t braze_max(int64_t a, int64_t b) { return a < b ? b : a; }

#ifdef __cplusplus
}
#endif
