// c_api.cpp — implements braze/c.h by the C++ handles. Exceptions become statuses.
#include "runtime/package/c_api.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <string>

#include "braze/config.h"
#include "braze/custom_function.h"
#include "braze/dlpack.h"
#include "braze/stream.h"
#include "braze/version.h"
#include "ir/graph/origins.h"
#include "runtime/execution/plan.h"
#include "runtime/execution/stream.h"
#include "runtime/package/package.h"

struct braze_package {
  braze::Package value;
  std::vector<std::string> functions;
};
struct braze_array {
  braze::Array value;
  std::string device;

  explicit braze_array(braze::Array array)
      : value(std::move(array)), device(value.device().name()) {}
};
struct braze_stream {
  braze::Stream value;
};

braze_function::braze_function(braze::LoadedFunction function) : value(std::move(function)) {
  const auto& executable = value.state()->executable;
  const braze::Program& program = executable.program();
  name = program.name;
  device = executable.device().name();
  report = braze::with_locations(program.report, program.locations);
  std::vector<int64_t> arguments(program.inputs.size(), -1);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (value.state()->bound[i].valid()) continue;
    arguments[i] = static_cast<int64_t>(inputs.size());
    inputs.push_back({program.inputs[i].name, program.inputs[i].type.to_string()});
  }
  for (const auto& output : program.outputs)
    outputs.push_back(
        {output.name, output.type.to_string(), output.updates ? arguments[*output.updates] : -1});
}

namespace braze {

namespace codes {
inline constexpr Code kBadDtype{"bad-dtype", ErrorKind::InvalidArgument,
                                "A number is not an element type."};
inline constexpr Code kBadRank{"bad-rank", ErrorKind::InvalidArgument,
                               "An array has more axes than Braze takes."};
inline constexpr Code kBadCustomKind{"bad-custom-kind", ErrorKind::InvalidArgument,
                                     "A kind of device is neither cpu nor cuda."};
inline constexpr Code kNoStream{"no-stream", ErrorKind::InvalidArgument,
                                "A stream is left that was not entered."};
}  // namespace codes

namespace {

static_assert(static_cast<int>(LogLevel::Debug) == BRAZE_LOG_DEBUG &&
              static_cast<int>(LogLevel::Error) == BRAZE_LOG_ERROR);
// Whether the numbers of dtypes in c.h are those of DType.
constexpr bool are_numbered_alike() {
  constexpr DTypeTable<braze_dtype> kNumbers = {
      {DType::Bool, BRAZE_BOOL}, {DType::I32, BRAZE_I32},       {DType::I64, BRAZE_I64},
      {DType::U32, BRAZE_U32},   {DType::F16, BRAZE_F16},       {DType::BF16, BRAZE_BF16},
      {DType::F32, BRAZE_F32},   {DType::F64, BRAZE_F64},       {DType::I8, BRAZE_I8},
      {DType::U8, BRAZE_U8},     {DType::I16, BRAZE_I16},       {DType::U16, BRAZE_U16},
      {DType::U64, BRAZE_U64},   {DType::F8E4M3, BRAZE_F8E4M3}, {DType::F8E5M2, BRAZE_F8E5M2},
  };
  for (const DType dtype : kAllDTypes)
    if (static_cast<int>(kNumbers[dtype]) != static_cast<int>(dtype)) return false;
  return true;
}
static_assert(are_numbered_alike());

constexpr size_t kMostAxes = 64;  // the limit of NumPy

// The least sizes of structures. A demand for a signature must not be cut off, and memory must have
// a device.
constexpr size_t kLeastPackageOptions = offsetof(braze_package_options, trust_keys) + sizeof(char*);
constexpr size_t kLeastMemory = offsetof(braze_memory, release);

thread_local std::string last_error, last_error_code;
thread_local int entered = 0;  // the number of streams that this thread has entered
thread_local std::vector<std::string> device_names;
thread_local std::string default_device_name;

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
  return c_guarded(std::ref(work));
}

template <class T>
T& need(T* pointer, std::string_view name) {
  return c_need(pointer, name);
}

// The answer of `question` for a handle. For a null handle it is zero, and the last error is set.
template <class Handle, class Question>
auto ask(const Handle* handle, std::string_view name, Question&& question) noexcept {
  decltype(question(*handle)) answer{};
  guarded([&] { answer = question(need(handle, name)); });
  return answer;
}

PackageOptions options_of(const braze_package_options* pointer) {
  PackageOptions options;
  if (!pointer) return options;
  const auto given = c_options(*pointer, "braze_package_options", kLeastPackageOptions);
  if (given.weights) options.weights = given.weights;
  options.trust_any_owner = given.trust_any_owner != 0;
  if (given.trust_keys) options.trust_keys = split_paths(given.trust_keys);
  return options;
}

Config config_of(const braze_config& pointer) {
  const auto given = c_options(pointer, "braze_config");
  Config config;
  const auto text = [](const char* value) {
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
  config.cache = text(given.cache);
  config.cache_folder = text(given.cache_folder);
  if (given.cache_bytes) config.cache_bytes = given.cache_bytes;
  if (given.threads) config.threads = given.threads;
  if (given.memory_limit) config.memory_limit = given.memory_limit;
  config.reproducer_folder = text(given.reproducer_folder);
  config.default_device = text(given.default_device);
  if (given.log) {
    config.log = [log = given.log, user = given.log_user](LogLevel level, std::string_view line) {
      log(user, static_cast<braze_log_level>(level), std::string(line).c_str());
    };
  }
  if (given.parallel_for) {
    config.parallel_for = [loop = given.parallel_for, user = given.parallel_for_user](
                              int count, const ParallelTask& task) {
      const auto call = [](void* context, int index) {
        (*static_cast<const ParallelTask*>(context))(index);
      };
      loop(user, count, call, const_cast<ParallelTask*>(&task));
    };
  }
  return config;
}

DType dtype_of(braze_dtype dtype) {
  if (static_cast<unsigned>(dtype) >= kDTypeCount)
    fail(codes::kBadDtype, fmt::format("{} is not an element type", static_cast<int>(dtype)));
  return static_cast<DType>(dtype);
}

std::vector<int64_t> shape_of(size_t rank, const int64_t* shape) {
  if (rank > kMostAxes)
    fail(codes::kBadRank, fmt::format("{} axes are more than {}", rank, kMostAxes));
  if (rank > 0) need(shape, "shape");
  return {shape, shape + rank};
}

/// Calls `release` when it is destroyed, unless it was taken out.
struct Release {
  void (*call)(void*);
  void* user;
  ~Release() {
    if (call) call(user);
  }
  std::function<void()> take() {
    if (!call) return {};
    return [call = std::exchange(call, nullptr), user = user] { call(user); };
  }
};

Array borrow(const braze_memory& pointer) {
  const auto given = c_options(pointer, "braze_memory", kLeastMemory);
  Release release{given.release, given.user};
  ForeignMemory memory;
  memory.data = const_cast<void*>(given.data);
  memory.dtype = dtype_of(given.dtype);
  memory.shape = shape_of(given.rank, given.shape);
  if (given.strides) memory.strides.assign(given.strides, given.strides + given.rank);
  memory.device = Device(&need(given.device, "device"));
  memory.may_copy = given.must_not_copy == 0;
  memory.release = release.take();
  return Array::borrow(std::move(memory));
}

DeviceKind custom_kind(std::string_view text) {
  if (text == "cpu") return DeviceKind::Cpu;
  if (text == "cuda") return DeviceKind::Cuda;
  fail(codes::kBadCustomKind, fmt::format("{} is neither \"cpu\" nor \"cuda\"", quote(text)));
}

/// The function of C as one of C++.
CustomFunction custom_function(braze_custom_function function, void* user) {
  return [function, user](const CustomArguments& call) {
    const auto tensor = [](const CustomTensor& x) {
      return braze_custom_tensor{sizeof(braze_custom_tensor),
                                 x.data,
                                 static_cast<braze_dtype>(x.dtype),
                                 x.shape.size(),
                                 x.shape.data(),
                                 x.bytes};
    };
    std::vector<braze_custom_tensor> operands;
    for (const CustomTensor& operand : call.operands) operands.push_back(tensor(operand));
    std::vector<const braze_custom_tensor*> pointers;
    for (const braze_custom_tensor& operand : operands) pointers.push_back(&operand);
    const braze_custom_tensor result = tensor(call.result);
    const std::string name(call.target), attributes(call.attributes);
    const braze_custom_arguments arguments{sizeof(braze_custom_arguments),
                                           user,
                                           name.c_str(),
                                           attributes.c_str(),
                                           attributes.size(),
                                           pointers.data(),
                                           pointers.size(),
                                           &result,
                                           call.stream};
    const char* const reason = function(&arguments);
    if (!reason) return std::string();
    return *reason ? std::string(reason) : std::string("it gives no reason");
  };
}

/// Makes an array and stores it in `out`. The array is made first, and takes over its memory, so
/// that this is released even if `out` is null.
void give(braze_array** out, const std::function<Array()>& make) {
  if (out) *out = nullptr;
  Array array = make();
  braze_array*& result = need(out, "out");
  result = new braze_array(std::move(array));
}

const char* at(const std::vector<braze_function::Tensor>& tensors, size_t index,
               std::string braze_function::Tensor::*what) {
  return index < tensors.size() ? (tensors[index].*what).c_str() : nullptr;
}

}  // namespace

braze_status c_guarded(const std::function<void()>& work) noexcept {
  const auto failed = [](braze_status status, const char* what, std::string_view code) noexcept {
    try {
      last_error = what;
      last_error_code = code;
    } catch (...) {
      last_error.clear();
      last_error_code.clear();
    }
    return status;
  };
  try {
    work();
    return BRAZE_OK;
  } catch (const Error& error) {
    return failed(status_of(error.kind()), error.what(), error.code().name);
  } catch (const std::bad_alloc&) {
    return failed(BRAZE_RESOURCE_EXHAUSTED, "the host has no memory left", "out-of-memory");
  } catch (const std::exception& error) {
    return failed(BRAZE_INTERNAL, error.what(), codes::kInternal.name);
  } catch (...) {
    return failed(BRAZE_INTERNAL,
                  "a function of the host program threw something that is no "
                  "std::exception",
                  codes::kInternal.name);
  }
}

void fail_options_size(std::string_view name, size_t given, size_t least, size_t here) {
  fail(codes::kOptionsSize,
       fmt::format("{} has the size {}, and this library takes multiples of 8 from {} to {}", name,
                   given, least, here),
       {.fix = fmt::format("set size to sizeof({}), in a program that is built with this library's "
                           "braze/c.h or an older one",
                           name)});
}

braze_function* c_function(Executable executable) {
  auto state = std::make_shared<LoadedFunction::State>();
  state->bound.resize(executable.program().inputs.size());
  state->executable = std::move(executable);
  return new braze_function(LoadedFunction(std::move(state)));
}

extern "C" {

const char* braze_version(void) { return BRAZE_VERSION; }

const char* braze_last_error(void) { return last_error.c_str(); }

const char* braze_last_error_code(void) { return last_error_code.c_str(); }

braze_status braze_configure(const braze_config* config) {
  return guarded([&] { configure(config_of(need(config, "config"))); });
}

size_t braze_devices(void) {
  guarded([&] {
    device_names.clear();
    for (const Device& device : devices()) device_names.push_back(device.name());
  });
  return device_names.size();
}

const char* braze_device_name(size_t index) {
  return index < device_names.size() ? device_names[index].c_str() : nullptr;
}

const char* braze_default_device(void) {
  const braze_status status = guarded([&] { default_device_name = default_device().name(); });
  return status == BRAZE_OK ? default_device_name.c_str() : nullptr;
}

braze_status braze_synchronize(const char* device) {
  return guarded([&] { synchronize(Device(&need(device, "device"))); });
}

braze_status braze_package_load(const char* path, const braze_package_options* options,
                                braze_package** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    Package package = Package::load(&need(path, "path"), options_of(options));
    std::vector<std::string> functions = package.functions();
    *out = new braze_package{std::move(package), std::move(functions)};
  });
}

void braze_package_release(braze_package* package) { delete package; }

size_t braze_package_functions(const braze_package* package) {
  return ask(package, "package", [](const auto& p) { return p.functions.size(); });
}

const char* braze_package_function_name(const braze_package* package, size_t index) {
  return ask(package, "package", [&](const auto& p) {
    return index < p.functions.size() ? p.functions[index].c_str() : nullptr;
  });
}

braze_status braze_function_load(const braze_package* package, const char* name, const char* device,
                                 braze_function** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    const PackagedFunction function = need(package, "package").value.function(name ? name : "");
    *out = new braze_function(function.load(Device(&need(device, "device"))));
  });
}

void braze_function_release(braze_function* function) { delete function; }

size_t braze_function_inputs(const braze_function* function) {
  return ask(function, "function", [](const auto& f) { return f.inputs.size(); });
}

size_t braze_function_outputs(const braze_function* function) {
  return ask(function, "function", [](const auto& f) { return f.outputs.size(); });
}

const char* braze_function_name(const braze_function* function) {
  return ask(function, "function", [](const auto& f) { return f.name.c_str(); });
}

const char* braze_function_input_name(const braze_function* function, size_t index) {
  return ask(function, "function",
             [&](const auto& f) { return at(f.inputs, index, &braze_function::Tensor::name); });
}

const char* braze_function_input_type(const braze_function* function, size_t index) {
  return ask(function, "function",
             [&](const auto& f) { return at(f.inputs, index, &braze_function::Tensor::type); });
}

const char* braze_function_output_name(const braze_function* function, size_t index) {
  return ask(function, "function",
             [&](const auto& f) { return at(f.outputs, index, &braze_function::Tensor::name); });
}

const char* braze_function_output_type(const braze_function* function, size_t index) {
  return ask(function, "function",
             [&](const auto& f) { return at(f.outputs, index, &braze_function::Tensor::type); });
}

int64_t braze_function_output_replaces(const braze_function* function, size_t index) {
  int64_t replaced = -1;
  guarded([&] {
    const auto& outputs = need(function, "function").outputs;
    if (index < outputs.size()) replaced = outputs[index].replaces;
  });
  return replaced;
}

const char* braze_function_device(const braze_function* function) {
  return ask(function, "function", [](const auto& f) { return f.device.c_str(); });
}

braze_status braze_array_from_host(braze_dtype dtype, size_t rank, const int64_t* shape,
                                   const void* data, const char* device, braze_array** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    const DType type = dtype_of(dtype);
    std::vector<int64_t> extents = shape_of(rank, shape);
    const size_t bytes = static_cast<size_t>(checked_numel(extents)) * size_of(type);
    if (bytes > 0) need(static_cast<const std::byte*>(data), "data");
    *out = new braze_array(Array::from_bytes({static_cast<const std::byte*>(data), bytes}, type,
                                             std::move(extents), Device(&need(device, "device"))));
  });
}

braze_status braze_array_borrow(const braze_memory* memory, braze_array** out) {
  return guarded([&] { give(out, [&] { return borrow(need(memory, "memory")); }); });
}

braze_status braze_array_from_dlpack(struct DLManagedTensorVersioned* tensor, braze_array** out) {
  return guarded([&] { give(out, [&] { return from_dlpack(&need(tensor, "tensor")); }); });
}

braze_status braze_array_from_dlpack_unversioned(struct DLManagedTensor* tensor,
                                                 braze_array** out) {
  return guarded([&] { give(out, [&] { return from_dlpack(&need(tensor, "tensor")); }); });
}

braze_status braze_array_to_dlpack(const braze_array* array,
                                   struct DLManagedTensorVersioned** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    *out = to_dlpack(need(array, "array").value);
  });
}

braze_status braze_array_to_dlpack_unversioned(const braze_array* array,
                                               struct DLManagedTensor** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    *out = to_dlpack_unversioned(need(array, "array").value);
  });
}

braze_status braze_array_to_device(const braze_array* array, const char* device,
                                   braze_array** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    *out = new braze_array(need(array, "array").value.to(Device(&need(device, "device"))));
  });
}

braze_status braze_array_wait(const braze_array* array) {
  return guarded([&] { need(array, "array").value.wait(); });
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

const char* braze_array_device(const braze_array* array) {
  return ask(array, "array", [](const auto& a) { return a.device.c_str(); });
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
    if (result_count > 0) need(results, "results");
    std::fill_n(results, result_count, nullptr);
    const braze_function& f = need(function, "function");
    if (result_count != f.outputs.size())
      fail(codes::kArgument, fmt::format("the function gives {} results, and there is room for {}",
                                         f.outputs.size(), result_count));
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

braze_status braze_stream_new(const char* device, braze_stream** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    *out = new braze_stream{Stream(Device(&need(device, "device")))};
  });
}

braze_status braze_stream_of_host(const char* device, void* cuda_stream, braze_stream** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    *out = new braze_stream{Stream::of_host(Device(&need(device, "device")), cuda_stream)};
  });
}

braze_status braze_stream_current(const char* device, braze_stream** out) {
  return guarded([&] {
    need(out, "out") = nullptr;
    *out = new braze_stream{current_stream(Device(&need(device, "device")))};
  });
}

void braze_stream_release(braze_stream* stream) { delete stream; }

braze_status braze_stream_enter(const braze_stream* stream) {
  return guarded([&] {
    enter_stream(need(stream, "stream").value);
    ++entered;
  });
}

braze_status braze_stream_leave(void) {
  return guarded([&] {
    if (entered == 0)
      fail(codes::kNoStream, "this thread has not entered a stream",
           {.fix = "call braze_stream_leave() once for each braze_stream_enter()"});
    leave_stream();
    --entered;
  });
}

braze_status braze_stream_synchronize(const braze_stream* stream) {
  return guarded([&] { need(stream, "stream").value.synchronize(); });
}

braze_status braze_register_custom_call(const char* name, const char* kind,
                                        braze_custom_function function, void* user) {
  return guarded([&] {
    register_custom_call(&need(name, "name"), custom_kind(&need(kind, "kind")),
                         custom_function(&need(function, "function"), user));
  });
}

braze_status braze_load_custom_calls(const char* path) {
  return guarded([&] { load_custom_calls(&need(path, "path")); });
}

void* braze_stream_native(const braze_stream* stream) {
  return ask(stream, "stream", [](const auto& s) { return s.value.native(); });
}

}  // extern "C"
}  // namespace braze
