// c_api.cpp — braze/c.h over the C++ handles: exceptions become statuses.
#include <new>
#include <string>

#include "braze/c.h"
#include "braze/package.h"
#include "braze/version.h"
#include "ir/support/text.h"
#include "runtime/execution/plan.h"
#include "runtime/package/package.h"

struct braze_package {
  braze::Package value;
};
struct braze_function {
  braze::LoadedFunction value;
  std::string device;
  size_t inputs = 0, outputs = 0;
};
struct braze_array {
  braze::Array value;
};

namespace braze {

namespace codes {
inline constexpr Code kNullHandle{"null-handle", ErrorKind::InvalidArgument,
                                  "A pointer that a C function needs is NULL."};
inline constexpr Code kBadDtype{"bad-dtype", ErrorKind::InvalidArgument,
                                "A number is no element type."};
inline constexpr Code kBadRank{"bad-rank", ErrorKind::InvalidArgument,
                               "An array has more axes than Braze takes."};
inline constexpr Code kOptionsSize{"options-size", ErrorKind::InvalidArgument,
                                   "A structure of options does not say which version it is of."};
}  // namespace codes

namespace {

static_assert(static_cast<int>(DType::Bool) == BRAZE_BOOL &&
              static_cast<int>(DType::BF16) == BRAZE_BF16 &&
              static_cast<int>(DType::F64) == BRAZE_F64);

constexpr size_t kMostAxes = 64;  // as in NumPy

thread_local std::string last_error;

braze_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::InvalidArgument:
      return BRAZE_INVALID_ARGUMENT;
    case ErrorKind::Unsupported:
      return BRAZE_UNSUPPORTED;
    case ErrorKind::ResourceExhausted:
      return BRAZE_RESOURCE_EXHAUSTED;
    case ErrorKind::Device:
      return BRAZE_DEVICE;
    case ErrorKind::DataLoss:
      return BRAZE_DATA_LOSS;
    case ErrorKind::NotFound:
      return BRAZE_NOT_FOUND;
    case ErrorKind::Internal:
      break;
  }
  return BRAZE_INTERNAL;
}

template <class Work>
braze_status guarded(Work&& work) noexcept {
  const auto failed = [](braze_status status, const char* what) noexcept {
    try {
      last_error = what;
    } catch (...) {
      last_error.clear();
    }
    return status;
  };
  try {
    work();
    return BRAZE_OK;
  } catch (const Error& error) {
    return failed(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(BRAZE_RESOURCE_EXHAUSTED, "the host has no memory left");
  } catch (const std::exception& error) {
    return failed(BRAZE_INTERNAL, error.what());
  }
}

template <class T>
T& need(T* pointer, std::string_view name) {
  if (!pointer) fail(codes::kNullHandle, fmt::format("{} is NULL", name));
  return *pointer;
}

// What `question` says of a handle; a zero, and a last error, without one.
template <class Handle, class Question>
auto ask(const Handle* handle, std::string_view name, Question&& question) noexcept {
  decltype(question(*handle)) answer{};
  guarded([&] { answer = question(need(handle, name)); });
  return answer;
}

// A smaller size would leave out members that make demands, a larger one has members that are
// unknown here: both would be a demand that is dropped without a word.
void check_size(size_t size) {
  if (size == sizeof(braze_package_options)) return;
  fail(codes::kOptionsSize,
       fmt::format("braze_package_options of size {}, where this library has {}", size,
                   sizeof(braze_package_options)),
       {.fix = "set size to sizeof(braze_package_options), in a program that is built with this "
               "library's braze/c.h"});
}

PackageOptions options_of(const braze_package_options* given) {
  PackageOptions options;
  if (!given) return options;
  check_size(given->size);
  if (given->weights) options.weights = given->weights;
  options.trust_any_owner = given->trust_any_owner != 0;
  if (given->trust_keys) options.trust_keys = split_paths(given->trust_keys);
  return options;
}

size_t free_inputs(const LoadedFunction& function) {
  size_t count = 0;
  for (const Array& bound : function.state()->bound) count += !bound.valid();
  return count;
}

}  // namespace

extern "C" {

const char* braze_version(void) { return BRAZE_VERSION; }

const char* braze_last_error(void) { return last_error.c_str(); }

braze_status braze_package_load(const char* path, const braze_package_options* options,
                                braze_package** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    *out = new braze_package{Package::load(&need(path, "path"), options_of(options))};
  });
}

void braze_package_release(braze_package* package) { delete package; }

braze_status braze_function_load(const braze_package* package, const char* name, const char* device,
                                 braze_function** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    const PackagedFunction function = need(package, "package").value.function(name ? name : "");
    LoadedFunction loaded = function.load(Device(&need(device, "device")));
    const size_t inputs = free_inputs(loaded);
    const size_t outputs = loaded.state()->executable.program().outputs.size();
    std::string where = loaded.device().name();
    *out = new braze_function{std::move(loaded), std::move(where), inputs, outputs};
  });
}

void braze_function_release(braze_function* function) { delete function; }

size_t braze_function_inputs(const braze_function* function) {
  return ask(function, "function", [](const auto& f) { return f.inputs; });
}

size_t braze_function_outputs(const braze_function* function) {
  return ask(function, "function", [](const auto& f) { return f.outputs; });
}

const char* braze_function_device(const braze_function* function) {
  return ask(function, "function", [](const auto& f) { return f.device.c_str(); });
}

braze_status braze_array_from_host(braze_dtype dtype, size_t rank, const int64_t* shape,
                                   const void* data, const char* device, braze_array** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    if (static_cast<unsigned>(dtype) >= kDTypeCount)
      fail(codes::kBadDtype, fmt::format("{} is no element type", static_cast<int>(dtype)));
    if (rank > kMostAxes)
      fail(codes::kBadRank, fmt::format("{} axes are more than {}", rank, kMostAxes));
    if (rank > 0) need(shape, "shape");
    std::vector<int64_t> extents(shape, shape + rank);
    const auto type = static_cast<DType>(dtype);
    const size_t bytes = static_cast<size_t>(checked_numel(extents)) * size_of(type);
    if (bytes > 0) need(static_cast<const std::byte*>(data), "data");
    *out = new braze_array{Array::from_bytes({static_cast<const std::byte*>(data), bytes}, type,
                                             std::move(extents), Device(&need(device, "device")))};
  });
}

void braze_array_release(braze_array* array) { delete array; }

braze_dtype braze_array_dtype(const braze_array* array) {
  return ask(array, "array",
             [](const auto& a) { return static_cast<braze_dtype>(a.value.dtype()); });
}

size_t braze_array_rank(const braze_array* array) {
  return ask(array, "array", [](const auto& a) { return a.value.shape().size(); });
}

const int64_t* braze_array_shape(const braze_array* array) {
  return ask(array, "array", [](const auto& a) { return a.value.shape().data(); });
}

size_t braze_array_bytes(const braze_array* array) {
  return ask(array, "array", [](const auto& a) { return a.value.size_bytes(); });
}

braze_status braze_array_to_host(const braze_array* array, void* data, size_t bytes) {
  return guarded([&] {
    if (bytes > 0) need(static_cast<std::byte*>(data), "data");
    need(array, "array").value.copy_to_host({static_cast<std::byte*>(data), bytes});
  });
}

braze_status braze_run(const braze_function* function, const braze_array* const* arguments,
                       size_t argument_count, braze_array** results, size_t result_count) {
  return guarded([&] {
    const braze_function& f = need(function, "function");
    if (result_count > 0) need(results, "results");
    if (result_count != f.outputs)
      fail(codes::kArgument, fmt::format("the function gives {} results, and there is room for {}",
                                         f.outputs, result_count));
    std::vector<Array> given;
    for (size_t i = 0; i < argument_count; ++i)
      given.push_back(
          need(need(arguments, "arguments") ? arguments[i] : nullptr, "an argument").value);
    std::vector<Array> made = f.value.run(given);
    std::vector<std::unique_ptr<braze_array>> owned;
    for (Array& array : made) owned.push_back(std::make_unique<braze_array>(std::move(array)));
    for (size_t i = 0; i < owned.size(); ++i) results[i] = owned[i].release();
  });
}

}  // extern "C"
}  // namespace braze
