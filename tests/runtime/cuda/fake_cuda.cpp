#include "tests/runtime/cuda/fake_cuda.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/runtime/cuda/fake_streams.h"

using namespace braze::cuda;
using braze::test::FakeCuda;
using braze::test::FakeLaunch;

namespace braze::cuda {

struct CUstream_st;

struct CUctx_st {
  int device = 0;
  CUstream_st* default_stream = nullptr;
  CUresult fault = CUDA_SUCCESS;
  std::map<uintptr_t, size_t> blocks;  // live device memory
  uint64_t bytes = 0;
};

using Actions = std::vector<std::function<CUresult()>>;

struct CUgraph_st {
  Actions actions;
};

struct CUgraphExec_st {
  Actions actions;
};

struct CUstream_st {
  CUcontext context;
  CUgraph capture = nullptr;
  std::deque<std::function<CUresult()>> pending = {};
  uint64_t done = 0;
  bool busy = false;  // a thread does the next thing, and has left the driver to wait for something
  bool destroyed = false;
  uint64_t issued() const { return done + busy + pending.size(); }
};

struct CUevent_st {
  CUcontext context;
  CUstream stream = nullptr;
  uint64_t position = 0;
};

struct CUmod_st {
  CUcontext context;
  std::string text;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

using Parameters = std::vector<std::vector<char>>;

/// What a kernel of this name does, whatever its text says.
struct FakeKernel {
  std::string name;
  std::vector<size_t> parameters;  // bytes of each
  std::function<CUresult(CUcontext, const FakeLaunch&, const Parameters&)> run;
};

struct CUfunc_st {
  CUmodule module;
  std::shared_ptr<const FakeKernel> kernel;
  int shared_bytes = 48 << 10;
};

}  // namespace braze::cuda

namespace {

FakeCuda state;
std::recursive_mutex mutex;
// Without a destructor: the driver may still be called after those of the main thread.
struct ContextStack {
  CUcontext entries[8];
  int size;
};
thread_local ContextStack current;
CUctx_st contexts[64];
std::map<uintptr_t, size_t> pinned;
std::set<CUmodule> modules;

constexpr CUresult kInvalidContext{201};

void misuse(std::string what) { state.misuse.push_back(std::move(what)); }

CUcontext here() { return current.size == 0 ? nullptr : current.entries[current.size - 1]; }

// Counts the call, and says how it shall fail, if it shall.
CUresult enter(const char* name, bool needs_context = true) {
  ++state.calls[name];
  if (needs_context && !here()) {
    misuse(std::string(name) + " without a context");
    return kInvalidContext;
  }
  if (here() && here()->fault != CUDA_SUCCESS && needs_context) return here()->fault;
  const auto failure = state.failures.find(name);
  if (failure == state.failures.end() || failure->second.after-- > 0) return CUDA_SUCCESS;
  return failure->second.times-- > 0 ? failure->second.result : CUDA_SUCCESS;
}

thread_local int depth = 0;

// While one exists, the thread is in the driver.
struct Inside {
  Inside() { ++depth; }
  ~Inside() { --depth; }
};

#define ENTER(...)                   \
  const Inside inside;               \
  const std::lock_guard lock(mutex); \
  if (const CUresult failed = enter(__VA_ARGS__)) return failed

bool within(const std::map<uintptr_t, size_t>& blocks, const void* data, size_t size) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  auto block = blocks.upper_bound(address);
  if (block == blocks.begin()) return false;
  --block;
  return address + size <= block->first + block->second;
}

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

// Of any device: peers may copy.
bool is_device(const void* data, size_t size) {
  return std::any_of(std::begin(contexts), std::end(contexts),
                     [&](const CUctx_st& c) { return within(c.blocks, data, size); });
}

// Of null: the default stream.
CUstream existing(CUstream stream) {
  if (stream) return stream;
  CUstream& standing = here()->default_stream;
  if (!standing) standing = new CUstream_st{here()};
  return standing;
}

CUresult run(CUstream stream, uint64_t position) {
  while (stream->done < position) {
    if (stream->busy) {
      braze::test::fake_leave(std::chrono::microseconds(50));
      continue;
    }
    const auto next = std::move(stream->pending.front());
    stream->pending.pop_front();
    stream->busy = true;
    CUresult& fault = stream->context->fault;
    // It may run, and fault, another stream.
    const CUresult result = fault == CUDA_SUCCESS ? next() : CUDA_SUCCESS;
    if (fault == CUDA_SUCCESS) fault = result;
    stream->busy = false;
    ++stream->done;
  }
  return stream->context->fault;
}

CUresult push(CUstream given, std::function<CUresult()> action) {
  CUstream const stream = existing(given);
  if (stream->destroyed) misuse("a stream that was destroyed");
  if (stream->context != here()) misuse("a stream of another context");
  if (stream->capture) {
    stream->capture->actions.push_back(std::move(action));
    return CUDA_SUCCESS;
  }
  stream->pending.push_back(std::move(action));
  return CUDA_SUCCESS;
}

CUresult copy(void* to, const void* from, size_t size, bool to_device, bool from_device) {
  if ((to_device && !is_device(to, size)) || (from_device && !is_device(from, size))) {
    misuse("a copy of memory that is not there");
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  std::memcpy(to, from, size);
  return CUDA_SUCCESS;
}

template <class T>
T value(const std::vector<char>& bytes) {
  T result;
  std::memcpy(&result, bytes.data(), sizeof result);
  return result;
}

float* floats(CUcontext context, const std::vector<char>& parameter, int64_t count) {
  auto* const data = value<float*>(parameter);
  const bool inside = within(context->blocks, data, static_cast<size_t>(count) * sizeof(float));
  return inside ? data : nullptr;
}

// z = x + y
CUresult run_add(CUcontext context, const FakeLaunch& launch, const Parameters& p) {
  const auto n = value<int64_t>(p[3]);
  const float* x = floats(context, p[0], n);
  const float* y = floats(context, p[1], n);
  float* z = floats(context, p[2], n);
  if (!x || !y || !z) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const int64_t threads = int64_t{launch.blocks} * launch.threads;
  for (int64_t i = 0; i < std::min(n, threads); ++i) z[i] = x[i] + y[i];
  return CUDA_SUCCESS;
}

// The same, for two members.
CUresult run_add_all(CUcontext context, const FakeLaunch& launch, const Parameters& p) {
  if (launch.members != 2) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t member = 0; member < 2 && result == CUDA_SUCCESS; ++member) {
    Parameters own;
    for (size_t i = 3 * member; i < 3 * member + 3; ++i)
      own.emplace_back(p[0].begin() + static_cast<ptrdiff_t>(8 * i),
                       p[0].begin() + static_cast<ptrdiff_t>(8 * i + 8));
    own.push_back(p[1]);
    result = run_add(context, launch, own);
  }
  return result;
}

// y[i] = rank of block i in its cluster
CUresult run_rank(CUcontext context, const FakeLaunch& launch, const Parameters& p) {
  float* y = floats(context, p[0], launch.blocks);
  if (!y) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (unsigned i = 0; i < launch.blocks; ++i) y[i] = static_cast<float>(i % launch.cluster);
  return CUDA_SUCCESS;
}

struct FakeMap {
  void* address;
  uint64_t rank, columns, rows, row_bytes, box_columns, box_rows;
};

// y[8, 32] = the box of x at row 4, column 16, zero outside
CUresult run_box(CUcontext context, const FakeLaunch&, const Parameters& p) {
  const auto map = value<FakeMap>(p[2]);
  float* y = floats(context, p[1], 8 * 32);
  if (!y || map.rank != 2 || map.box_columns != 32 || map.box_rows != 8) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  for (uint64_t r = 0; r < 8; ++r) {
    for (uint64_t c = 0; c < 32; ++c) {
      const bool inside = r + 4 < map.rows && c + 16 < map.columns;
      const char* row = static_cast<const char*>(map.address) + (r + 4) * map.row_bytes;
      y[r * 32 + c] = inside ? reinterpret_cast<const float*>(row)[c + 16] : 0;
    }
  }
  return CUDA_SUCCESS;
}

// As StridedCopies::Parameters; the innermost axis first.
struct FakeStridedCopy {
  uint64_t to, from, units, axes;
  struct {
    uint64_t extent, stride;
  } axis[17];
};

// What the text of StridedCopies says, of units of so many bytes.
template <uint64_t unit>
CUresult run_strided_copy(CUcontext context, const FakeLaunch&, const Parameters& p) {
  const auto given = value<FakeStridedCopy>(p[0]);
  const auto is_there = [&](uint64_t address) {
    return address % unit == 0 && within(context->blocks, reinterpret_cast<void*>(address), unit);
  };
  for (uint64_t i = 0; i < given.units; ++i) {
    uint64_t rest = i, from = given.from;
    for (uint64_t k = 0; k < given.axes; ++k) {
      from += rest % given.axis[k].extent * given.axis[k].stride;
      rest /= given.axis[k].extent;
    }
    const uint64_t to = given.to + i * unit;
    if (!is_there(to) || !is_there(from)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), unit);
  }
  return CUDA_SUCCESS;
}

const std::vector<FakeKernel> kKernels = {
    {"strided_copy_1", {sizeof(FakeStridedCopy)}, run_strided_copy<1>},
    {"strided_copy_2", {sizeof(FakeStridedCopy)}, run_strided_copy<2>},
    {"strided_copy_4", {sizeof(FakeStridedCopy)}, run_strided_copy<4>},
    {"strided_copy_8", {sizeof(FakeStridedCopy)}, run_strided_copy<8>},
    {"strided_copy_16", {sizeof(FakeStridedCopy)}, run_strided_copy<16>},
    {"add_p0", {8, 8, 8, 8}, run_add},
    {"add_all_p0", {48, 8}, run_add_all},
    {"rank_p0", {8}, run_rank},
    {"box_p0", {8, 8, 128}, run_box},
    {"slow_p0", {8, 8}, [](auto...) { return CUDA_SUCCESS; }},
    {"fault_p0", {8}, [](auto...) { return CUDA_ERROR_ILLEGAL_ADDRESS; }},
};

// --- The driver ---

CUresult init(unsigned) { return state.init_result; }

CUresult get_error_name(CUresult result, const char** text) {
  const Inside inside;
  static std::map<unsigned, std::string> names;
  const std::lock_guard lock(mutex);
#define VALUE(type, name, number) \
  if (std::string_view(#type) == "CUresult") names.emplace(number, #name);
#include "runtime/devices/cuda/driver_api.def"
  const auto found = names.find(result);
  *text = found == names.end() ? nullptr : found->second.c_str();
  return CUDA_SUCCESS;
}

CUresult get_error_string(CUresult, const char** text) {
  *text = "said by the fake driver";
  return CUDA_SUCCESS;
}

CUresult device_get(CUdevice* device, int index) {
  *device = index;
  return index < state.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult device_get_count(int* count) {
  *count = state.devices;
  return CUDA_SUCCESS;
}

CUresult device_get_name(char* name, int size, CUdevice) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(size));
  return CUDA_SUCCESS;
}

CUresult device_total_mem(size_t* bytes, CUdevice) {
  *bytes = state.memory_bytes;
  return CUDA_SUCCESS;
}

CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  const std::map<unsigned, int> values = {
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1'980'000},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 66},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2'619'000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10}};
  const auto found = values.find(attribute);
  if (found == values.end()) return CUDA_ERROR_INVALID_VALUE;
  *value = found->second;
  return CUDA_SUCCESS;
}

// FAKE_LINKS says how the GPUs are linked: "none", "pcie", or as with NVLink.
bool linked_by(std::string_view what) {
  const char* const links = std::getenv("FAKE_LINKS");
  return links && links == what;
}

CUresult device_can_access_peer(int* can, CUdevice, CUdevice) {
  *can = !linked_by("none");
  return CUDA_SUCCESS;
}

CUresult device_get_p2p_attribute(int* value, CUdevice_P2PAttribute, CUdevice, CUdevice) {
  *value = !linked_by("none") && !linked_by("pcie");
  return CUDA_SUCCESS;
}

CUresult device_primary_ctx_retain(CUcontext* context, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain", false);
  *context = &contexts[device];
  (*context)->device = device;
  return CUDA_SUCCESS;
}

CUresult ctx_get_current(CUcontext* context) {
  *context = here();
  return CUDA_SUCCESS;
}

CUresult ctx_push_current(CUcontext context) {
  const Inside inside;
  if (current.size == std::ssize(current.entries)) return CUDA_ERROR_INVALID_VALUE;
  current.entries[current.size++] = context;
  return CUDA_SUCCESS;
}

CUresult ctx_pop_current(CUcontext* context) {
  *context = here();
  --current.size;
  return CUDA_SUCCESS;
}

CUresult ctx_enable_peer_access(CUcontext peer, unsigned) {
  ENTER("cuCtxEnablePeerAccess");
  return peer == here() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult mem_alloc(CUdeviceptr* memory, size_t size) {
  ENTER("cuMemAlloc");
  if (size > state.memory_bytes - here()->bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const data = std::aligned_alloc(512, (size + 511) / 512 * 512);
  std::memset(data, 0xa5, std::min<size_t>(size, 1 << 20));  // no zeros by luck
  here()->blocks[reinterpret_cast<uintptr_t>(data)] = size;
  here()->bytes += size;
  ++state.live_blocks;
  *memory = reinterpret_cast<uintptr_t>(data);
  return CUDA_SUCCESS;
}

CUresult mem_free(CUdeviceptr memory) {
  ENTER("cuMemFree");
  const auto block = here()->blocks.find(static_cast<uintptr_t>(memory));
  if (block == here()->blocks.end()) {
    misuse("freeing what is not there");
    return CUDA_ERROR_INVALID_VALUE;
  }
  here()->bytes -= block->second;
  here()->blocks.erase(block);
  --state.live_blocks;
  std::free(pointer(memory));
  return CUDA_SUCCESS;
}

CUresult mem_host_alloc(void** memory, size_t size, unsigned) {
  ENTER("cuMemHostAlloc");
  *memory = std::malloc(size);
  pinned[reinterpret_cast<uintptr_t>(*memory)] = size;
  return CUDA_SUCCESS;
}

CUresult mem_free_host(void* memory) {
  ENTER("cuMemFreeHost");
  if (pinned.erase(reinterpret_cast<uintptr_t>(memory)) == 0) misuse("freeing what is not pinned");
  std::free(memory);
  return CUDA_SUCCESS;
}

CUresult pointer_get_attribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  ENTER("cuPointerGetAttribute");
  for (const CUctx_st& context : contexts) {
    if (!within(context.blocks, pointer(address), 1)) continue;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      *static_cast<unsigned*>(value) = CU_MEMORYTYPE_DEVICE;
    else
      *static_cast<int*>(value) = context.device;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult memcpy_h_to_d_async(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  ENTER("cuMemcpyHtoDAsync");
  if (!within(pinned, from, size)) misuse("a copy from pageable memory");
  return push(stream, [=] { return copy(pointer(to), from, size, true, false); });
}

CUresult memcpy_d_to_h_async(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER("cuMemcpyDtoHAsync");
  if (!within(pinned, to, size)) misuse("a copy to pageable memory");
  return push(stream, [=] { return copy(to, pointer(from), size, false, true); });
}

CUresult memcpy_d_to_d_async(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER("cuMemcpyDtoDAsync");
  return push(stream, [=] { return copy(pointer(to), pointer(from), size, true, true); });
}

CUresult memcpy_peer_async(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t size, CUstream stream) {
  ENTER("cuMemcpyPeerAsync");
  if (!within(to_context->blocks, pointer(to), size) ||
      !within(from_context->blocks, pointer(from), size)) {
    misuse("a copy between the wrong devices");
  }
  return push(stream, [=] { return copy(pointer(to), pointer(from), size, true, true); });
}

CUresult memset_d8_async(CUdeviceptr to, unsigned char byte, size_t size, CUstream stream) {
  ENTER("cuMemsetD8Async");
  return push(stream, [=] {
    if (!is_device(pointer(to), size)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memset(pointer(to), byte, size);
    return CUDA_SUCCESS;
  });
}

CUresult stream_create(CUstream* stream, unsigned) {
  ENTER("cuStreamCreate");
  *stream = new CUstream_st{here()};
  return CUDA_SUCCESS;
}

CUresult stream_create_with_priority(CUstream* stream, unsigned, int) {
  ENTER("cuStreamCreateWithPriority");
  *stream = new CUstream_st{here()};
  return CUDA_SUCCESS;
}

CUresult stream_synchronize(CUstream stream) {
  ENTER("cuStreamSynchronize");
  stream = existing(stream);
  return run(stream, stream->issued());
}

// What is in it is done as late as ever, and events may name it to the end of the process.
CUresult stream_destroy(CUstream stream) {
  ENTER("cuStreamDestroy");
  static auto& destroyed = *new std::vector<CUstream>();
  destroyed.push_back(stream);
  stream->destroyed = true;
  return CUDA_SUCCESS;
}

CUresult stream_wait_event(CUstream stream, CUevent event, unsigned) {
  ENTER("cuStreamWaitEvent");
  if (!event->stream) return CUDA_SUCCESS;
  return push(stream, [other = event->stream, position = event->position] {
    run(other, position);
    return CUDA_SUCCESS;
  });
}

CUresult event_create(CUevent* event, unsigned) {
  ENTER("cuEventCreate");
  *event = new CUevent_st{here()};
  ++state.live_events;
  return CUDA_SUCCESS;
}

CUresult event_destroy(CUevent event) {
  ENTER("cuEventDestroy");
  delete event;
  --state.live_events;
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent event, CUstream stream) {
  ENTER("cuEventRecord");
  stream = existing(stream);
  if (event->context != stream->context) misuse("an event of another context");
  if (stream->capture) misuse("an event in a record");
  event->stream = stream;
  event->position = stream->issued();
  return CUDA_SUCCESS;
}

CUresult event_synchronize(CUevent event) {
  ENTER("cuEventSynchronize");
  return event->stream ? run(event->stream, event->position) : CUDA_SUCCESS;
}

CUresult event_query(CUevent event) {
  ENTER("cuEventQuery");
  return event->stream && event->stream->done < event->position ? CUDA_ERROR_NOT_READY
                                                                : CUDA_SUCCESS;
}

CUresult event_elapsed_time(float* milliseconds, CUevent begin, CUevent end) {
  ENTER("cuEventElapsedTime");
  *milliseconds = 0.25f * static_cast<float>(end->position - begin->position);
  return CUDA_SUCCESS;
}

CUresult stream_begin_capture(CUstream stream, CUstreamCaptureMode) {
  ENTER("cuStreamBeginCapture");
  if (state.at_capture) state.at_capture(true);
  stream->capture = new CUgraph_st;
  return CUDA_SUCCESS;
}

CUresult stream_end_capture(CUstream stream, CUgraph* graph) {
  std::unique_ptr<CUgraph_st> captured(std::exchange(stream->capture, nullptr));
  ENTER("cuStreamEndCapture");
  if (state.at_capture) state.at_capture(false);
  *graph = captured.release();
  ++state.live_graphs;
  return CUDA_SUCCESS;
}

CUresult graph_destroy(CUgraph graph) {
  ENTER("cuGraphDestroy");
  delete graph;
  --state.live_graphs;
  return CUDA_SUCCESS;
}

CUresult graph_instantiate_with_flags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  ENTER("cuGraphInstantiateWithFlags");
  *exec = new CUgraphExec_st{graph->actions};
  ++state.live_graphs;
  return CUDA_SUCCESS;
}

CUresult graph_launch(CUgraphExec exec, CUstream stream) {
  ENTER("cuGraphLaunch");
  for (const auto& action : exec->actions) push(stream, action);
  return CUDA_SUCCESS;
}

CUresult graph_exec_destroy(CUgraphExec exec) {
  ENTER("cuGraphExecDestroy");
  delete exec;
  --state.live_graphs;
  return CUDA_SUCCESS;
}

CUresult module_load_data_ex(CUmodule* module, const void* image, unsigned count,
                             CUjit_option* options, void** values) {
  ENTER("cuModuleLoadDataEx");
  const std::string_view text = static_cast<const char*>(image);
  if (!state.compile && text.find(".version") == std::string_view::npos) {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
        std::strcpy(static_cast<char*>(values[i]), "line 1: no .version");
      }
    }
    return CUDA_ERROR_INVALID_PTX;
  }
  *module = new CUmod_st{here(), std::string(text), {}};
  modules.insert(*module);
  ++state.live_modules;
  return CUDA_SUCCESS;
}

CUresult module_unload(CUmodule module) {
  const std::unique_ptr<CUmod_st> gone(module);  // with a lost context too
  ENTER("cuModuleUnload");
  modules.erase(module);
  --state.live_modules;
  return CUDA_SUCCESS;
}

std::shared_ptr<const FakeKernel> kernel_of(const std::string& text, const std::string& name) {
  for (const FakeKernel& known : kKernels)
    if (known.name == name && text.find(name) != std::string::npos)
      return std::make_shared<FakeKernel>(known);
  std::optional<braze::test::FakeCode> code =
      state.compile ? state.compile(text, name) : std::nullopt;
  if (!code) return nullptr;
  const auto run = [does = std::move(code->run)](CUcontext context, const FakeLaunch&,
                                                 const Parameters& parameters) {
    const auto is_there = [&](const void* data, size_t bytes) {
      return within(context->blocks, data, bytes);
    };
    const std::string fault = does(parameters, is_there);
    if (fault.empty()) return CUDA_SUCCESS;
    misuse(fault);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  return std::make_shared<FakeKernel>(FakeKernel{name, std::move(code->parameters), run});
}

CUresult module_get_function(CUfunction* function, CUmodule module, const char* name) {
  ENTER("cuModuleGetFunction");
  auto& slot = module->functions[name];
  if (!slot) {
    std::shared_ptr<const FakeKernel> kernel = kernel_of(module->text, name);
    if (!kernel) return CUDA_ERROR_NOT_FOUND;
    slot = std::make_unique<CUfunc_st>(CUfunc_st{module, std::move(kernel)});
  }
  *function = slot.get();
  return CUDA_SUCCESS;
}

CUresult func_get_attribute(int* value, CUfunction_attribute attribute, CUfunction) {
  ENTER("cuFuncGetAttribute");
  const int threads = state.compile ? 1024 : 512;
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? threads : 128;
  return CUDA_SUCCESS;
}

CUresult func_set_attribute(CUfunction function, CUfunction_attribute attribute, int value) {
  ENTER("cuFuncSetAttribute");
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) function->shared_bytes = value;
  return CUDA_SUCCESS;
}

FakeLaunch describe(const CUlaunchConfig& config, CUfunction function) {
  FakeLaunch launch{function->kernel->name, config.gridDimX, config.blockDimX,
                    config.sharedMemBytes};
  launch.members = config.gridDimY;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      launch.cluster = attribute.value.clusterDim.x;
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
      launch.cooperative = attribute.value.cooperative != 0;
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      launch.overlaps = attribute.value.programmaticStreamSerializationAllowed != 0;
    }
  }
  return launch;
}

CUresult launch_kernel_ex(const CUlaunchConfig* config, CUfunction function, void** values,
                          void**) {
  if (state.at_launch) state.at_launch();
  ENTER("cuLaunchKernelEx");
  const FakeLaunch launch = describe(*config, function);
  const bool odd = config->gridDimY == 0 || config->gridDimZ != 1 || config->blockDimY != 1 ||
                   config->blockDimZ != 1 || launch.blocks % launch.cluster != 0;
  if (odd || launch.blocks == 0 || launch.threads == 0 ||
      launch.shared_bytes > static_cast<unsigned>(function->shared_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // As a real driver, takes the values now.
  Parameters parameters;
  for (const size_t size : function->kernel->parameters) {
    const auto* bytes = static_cast<const char*>(values[parameters.size()]);
    parameters.emplace_back(bytes, bytes + size);
  }
  state.launches.push_back(launch);
  return push(config->hStream,
              [=, context = here(), module = function->module, kernel = function->kernel] {
                if (!modules.contains(module)) misuse("code that was unloaded");
                state.executed.push_back(kernel->name);
                return kernel->run(context, launch, parameters);
              });
}

CUresult tensor_map_encode_tiled(CUtensorMap* map, CUtensorMapDataType, uint32_t rank,
                                 void* address, const uint64_t* extents, const uint64_t* strides,
                                 const uint32_t* box, const uint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill) {
  ENTER("cuTensorMapEncodeTiled", false);
  const FakeMap fake{address,
                     rank,
                     extents[0],
                     rank > 1 ? extents[1] : 1,
                     rank > 1 ? strides[0] : 0,
                     box[0],
                     rank > 1 ? box[1] : 1};
  std::memcpy(map, &fake, sizeof fake);
  return CUDA_SUCCESS;
}

}  // namespace

namespace braze::test {

FakeLock::FakeLock() {
  ++depth;
  mutex.lock();
}
FakeLock::~FakeLock() {
  mutex.unlock();
  --depth;
}

void fake_misuse(std::string what) { misuse(std::move(what)); }

std::optional<ncclResult_t> fake_nccl_failure(const std::string& kind) {
  const std::string name = "nccl " + kind;
  ++state.calls[name];
  const auto failure = state.failures.find(name);
  if (failure == state.failures.end() || failure->second.after-- > 0) return std::nullopt;
  if (failure->second.times-- <= 0) return std::nullopt;
  return static_cast<ncclResult_t>(failure->second.result);
}

bool fake_nccl_stays(const std::string& kind, bool is_aborted) {
  return state.stays_in_nccl && state.stays_in_nccl(kind, is_aborted);
}

int fake_current_device() { return here() ? here()->device : -1; }
int fake_device_of(CUstream stream) { return stream->context->device; }
bool fake_is_device(const void* data, size_t size) { return is_device(data, size); }
uint64_t fake_issued(CUstream stream) { return stream->issued(); }

void fake_push(CUstream stream, std::function<bool()> action) {
  if (stream->capture) misuse("a collective in a record");
  stream->pending.push_back([action = std::move(action)] {
    return action() ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
  });
}

void fake_run(CUstream stream, uint64_t position) { run(stream, position); }

void fake_leave(std::chrono::microseconds nap) {
  mutex.unlock();
  std::this_thread::sleep_for(nap);
  mutex.lock();
}

}  // namespace braze::test

extern "C" {

__attribute__((visibility("default"))) CUresult cuDriverGetVersion(int* version) {
  *version = state.version;
  return CUDA_SUCCESS;
}

__attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char* name,
                                                                    void** address, int version,
                                                                    uint64_t, int* status) {
  const std::string_view wanted = name;
#define FUNCTION(member, function, since, ...) \
  if (wanted == #function && version >= since) *address = reinterpret_cast<void*>(&member);
#include "runtime/devices/cuda/driver_api.def"
  *status = *address ? 0 : 1;
  return *address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

__attribute__((visibility("default"))) FakeCuda* braze_fake_cuda() {
  state.is_inside = [] { return depth > 0; };
  return &state;
}

}  // extern "C"
