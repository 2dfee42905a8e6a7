/* c.h — Braze for programs in C: packages, arrays, calls, streams. The functions of braze::runtime;
 * c_compile.h has those of the compiler.
 *
 * Every function that can fail returns a status; braze_last_error() and braze_last_error_code() say
 * more. Handles are made by
 * functions that end in a parameter `out`, and go with the _release function of their kind, which
 * takes NULL. Any other NULL handle is BRAZE_INVALID_ARGUMENT; functions that return no status
 * answer with 0 or NULL then. Handles of packages and functions may be used from any thread; arrays
 * are never changed once made. Strings are UTF-8 and belong to the handle or function that gave
 * them.
 *
 * The interface only grows: what a program was built with keeps its meaning in all releases with
 * the same major version. So do structures, whose first member is their size: a smaller one is an
 * older program's, whose missing members are as zeros; a larger one, of a program that knows more
 * than this library, is BRAZE_INVALID_ARGUMENT. */
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

/** How much a line of the log matters. */
typedef enum braze_log_level {
  BRAZE_LOG_DEBUG = 0,   /**< what BRAZE_DEBUG asks for */
  BRAZE_LOG_INFO = 1,    /**< what Braze did, for the record */
  BRAZE_LOG_WARNING = 2, /**< what the user should know although nothing failed */
  BRAZE_LOG_ERROR = 3    /**< what goes wrong where no status can tell */
} braze_log_level;

/** The configuration of the process; zeros are the defaults, but for the size. What is not set is
 * as the environment variable in parentheses says. */
typedef struct braze_config {
  size_t size;              /**< sizeof(braze_config) */
  const char* cache;        /**< programs on disk: "on", "readonly" or "off" (BRAZE_CACHE) */
  const char* cache_folder; /**< where they are (BRAZE_CACHE_DIR) */
  uint64_t cache_bytes;     /**< most bytes of them (BRAZE_CACHE_SIZE) */
  int threads;              /**< of each CPU device, the calling one included (BRAZE_THREADS) */
  /** The host application's thread pool in place of Braze's threads: calls task(context, i) once
   * for every i below `count`, on any threads, and returns when all calls have. */
  void (*parallel_for)(void* user, int count, void (*task)(void* context, int index),
                       void* context);
  void* parallel_for_user; /**< handed to it */
  uint64_t memory_limit;   /**< bytes that each device may allocate (BRAZE_MEMORY_LIMIT) */
  /** Receives the log in place of stderr, from any thread; must not call Braze. */
  void (*log)(void* user, braze_log_level level, const char* text);
  void* log_user;                /**< handed to it */
  const char* reproducer_folder; /**< where faults of Braze's leave a file; "": nowhere */
  const char* default_device;    /**< "cpu", "cuda:0"; else the first GPU, else "cpu" */
} braze_config;

/** Memory of the host application that an array shall lie over. */
typedef struct braze_memory {
  size_t size;            /**< sizeof(braze_memory) */
  const void* data;       /**< the first element */
  braze_dtype dtype;      /**< of the elements */
  size_t rank;            /**< how many axes */
  const int64_t* shape;   /**< their extents, outermost first */
  const int64_t* strides; /**< in elements, or NULL: dense and row-major */
  const char* device;     /**< "cpu": the host's memory; "cuda:0": that GPU's */
  /** Called once, on any thread, when nothing needs the memory any more; also where no array was
   * made. May be NULL. */
  void (*release)(void* user);
  void* user;        /**< handed to it */
  int must_not_copy; /**< not 0: memory that could only be copied is BRAZE_INVALID_ARGUMENT */
} braze_memory;

/** How a package is loaded; zeros are the defaults, but for the size. */
typedef struct braze_package_options {
  size_t size;         /**< sizeof(braze_package_options) */
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
/** The stable name of what went wrong in that call, "no-such-device", for programs; "" if none did.
 * Good until the next. */
const char* braze_last_error_code(void);

/** Sets the configuration of the process. Once, before anything else of Braze but the above:
 * BRAZE_INVALID_ARGUMENT afterwards, and for values that cannot be. */
braze_status braze_configure(const braze_config* config);

/** Maps and checks a package. `options` may be NULL. BRAZE_INVALID_ARGUMENT for a file that is no
 * package or that others could have written, and for options of another size; BRAZE_UNSUPPORTED for
 * a version of the format that this library does not read; BRAZE_NOT_FOUND for one that does not
 * exist; BRAZE_DATA_LOSS for one that is damaged. */
braze_status braze_package_load(const char* path, const braze_package_options* options,
                                braze_package** out);
/** Lets go of a package; functions that were loaded from it stay. */
void braze_package_release(braze_package* package);

/** How many functions a package has. */
size_t braze_package_functions(const braze_package* package);
/** The name of function `index`, below braze_package_functions(); NULL beyond. */
const char* braze_package_function_name(const braze_package* package, size_t index);

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
/** The function's name. */
const char* braze_function_name(const braze_function* function);
/** The name of argument `index`, below braze_function_inputs(); NULL beyond. */
const char* braze_function_input_name(const braze_function* function, size_t index);
/** Its type: "f32[n, 64]"; NULL beyond. */
const char* braze_function_input_type(const braze_function* function, size_t index);
/** The name of result `index`, below braze_function_outputs(), "" if it has none; NULL beyond. */
const char* braze_function_output_name(const braze_function* function, size_t index);
/** Its type; NULL beyond. */
const char* braze_function_output_type(const braze_function* function, size_t index);
/** The device that the function was loaded on. */
const char* braze_function_device(const braze_function* function);

/** Copies row-major elements from `data`, as many as the product of the `rank` extents of `shape`,
 * to `device`. `rank` 0 is a scalar; `shape` may be NULL then. Of BRAZE_BOOL any byte but 0 is
 * true. BRAZE_INVALID_ARGUMENT for a negative extent, more than 64 axes or no such device,
 * BRAZE_RESOURCE_EXHAUSTED where memory ends. */
braze_status braze_array_from_host(braze_dtype dtype, size_t rank, const int64_t* shape,
                                   const void* data, const char* device, braze_array** out);
/** An array over the host application's memory, which must stay as it is until it is released. On a
 * GPU it is ready where this thread's stream has come to (braze_stream_enter). Memory that is
 * strided, or not aligned to 64 bytes, is copied, and a line of the log says so; strided memory of
 * a GPU is BRAZE_INVALID_ARGUMENT. No call can take the array over. */
braze_status braze_array_borrow(const braze_memory* memory, braze_array** out);
/** The same over another library's tensor, whose deleter is called when nothing needs it any more,
 * also where no array was made. BRAZE_UNSUPPORTED for a version, type or device that Braze does not
 * have. */
braze_status braze_array_from_dlpack(struct DLManagedTensorVersioned* tensor, braze_array** out);
/** The same for what libraries handed over before DLPack 1.0. */
braze_status braze_array_from_dlpack_unversioned(struct DLManagedTensor* tensor, braze_array** out);
/** The array as a tensor for another library, which must not write it, and calls its deleter. On a
 * GPU it is ready for this thread's stream, where the receiver uses it. */
braze_status braze_array_to_dlpack(const braze_array* array, struct DLManagedTensorVersioned** out);
/** The same for libraries that know no version. */
braze_status braze_array_to_dlpack_unversioned(const braze_array* array,
                                               struct DLManagedTensor** out);
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
/** The device that it is on. */
const char* braze_array_device(const braze_array* array);
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

/** A new stream on `device`, beside the main one that calls use otherwise. */
braze_status braze_stream_new(const char* device, braze_stream** out);
/** A stream of CUDA's that the host application has, NULL for CUDA's default one. It must live as
 * long as this handle and the arrays made in it. */
braze_status braze_stream_of_host(const char* device, void* cuda_stream, braze_stream** out);
/** Lets go of a stream; what is in it goes on. */
void braze_stream_release(braze_stream* stream);
/** This thread's calls on the stream's device run there, until the next
 * braze_stream_leave(). */
braze_status braze_stream_enter(const braze_stream* stream);
/** Ends the innermost braze_stream_enter() of this thread. */
braze_status braze_stream_leave(void);
/** Waits until everything in the stream is complete. */
braze_status braze_stream_synchronize(const braze_stream* stream);
/** CUDA's own handle of it; NULL on other devices. */
void* braze_stream_native(const braze_stream* stream);

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
