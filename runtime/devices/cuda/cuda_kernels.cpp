#include "runtime/devices/cuda/cuda_kernels.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "ir/support/env.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "runtime/devices/cuda/call_graphs.h"
#include "runtime/devices/cuda/call_record.h"
#include "runtime/devices/cuda/cuda_module.h"
#include "runtime/devices/cuda/tensor_map.h"
#include "runtime/execution/expr_program.h"

namespace braze {

namespace {

constexpr int64_t kMostBlocks = INT32_MAX;
constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostCluster = 16;
constexpr int64_t kPortableCluster = 8;  // not every GPU allows larger clusters

/// An entry function and how to launch it; the grid and the parameters differ from call to call.
class Entry {
 public:
  Entry(CudaContext& context, cuda::CUfunction function, const GpuPhase& phase, size_t rows);

  int64_t cluster() const { return cluster_; }
  cuda::CUfunction function() const { return function_; }
  /// The configuration of a launch with this number of blocks in each row of the grid.
  const cuda::CUlaunchConfig& config(cuda::CUstream stream, int64_t blocks) {
    config_.gridDimX = static_cast<unsigned>(blocks);
    config_.hStream = stream;
    config_.attrs = attributes_.data();
    return config_;
  }

 private:
  void add_attributes(const GpuPhase& phase);

  cuda::CUfunction function_;
  int64_t cluster_;
  cuda::CUlaunchConfig config_{};
  std::vector<cuda::CUlaunchAttribute> attributes_;
};

Entry::Entry(CudaContext& context, cuda::CUfunction function, const GpuPhase& phase, size_t rows)
    : function_(function), cluster_(phase.cluster) {
  config_.gridDimY = static_cast<unsigned>(rows);
  config_.gridDimZ = 1;
  config_.blockDimX = static_cast<unsigned>(phase.block);
  config_.blockDimY = config_.blockDimZ = 1;
  config_.sharedMemBytes = static_cast<unsigned>(phase.shared_bytes);
  add_attributes(phase);
  const auto set = [&](cuda::CUfunction_attribute attribute, int value, std::string_view what) {
    context.check(context.api().func_set_attribute(function, attribute, value), what);
  };
  if (phase.shared_bytes > 0) {
    set(cuda::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(phase.shared_bytes),
        "asking for shared memory");
  }
  if (phase.cluster > kPortableCluster) {
    set(cuda::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, "asking for large clusters");
  }
}

void Entry::add_attributes(const GpuPhase& phase) {
  const auto add = [this](cuda::CUlaunchAttributeID id) -> cuda::CUlaunchAttributeValue& {
    cuda::CUlaunchAttribute& attribute = attributes_.emplace_back();
    attribute = {};
    attribute.id = id;
    return attribute.value;
  };
  if (phase.cluster > 1) {
    add(cuda::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {
        static_cast<unsigned>(phase.cluster), 1, 1};
  }
  if (phase.resident) add(cuda::CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
  if (phase.overlaps) {
    add(cuda::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        .programmaticStreamSerializationAllowed = 1;
  }
  config_.numAttrs = static_cast<unsigned>(attributes_.size());
}

/// The tensor maps of one launch, which are encoded again when sizes or addresses change.
class TensorMaps {
 public:
  TensorMaps(std::span<const TensorMapRecipe> recipes, std::span<const Expr> symbols)
      : recipes_(recipes), extents_(symbols), maps_(recipes.size()), addresses_(recipes.size()) {
    for (const TensorMapRecipe& recipe : recipes) {
      for (const Expr& e : recipe.extents) registers_.push_back(extents_.add(e));
    }
  }

  std::span<cuda::CUtensorMap> update(CudaContext& context, const Program& program,
                                      const LaunchArguments& arguments);

 private:
  static cuda::CUtensorMap encode(CudaContext& context, const Program& program,
                                  const Launch& launch, const TensorMapRecipe& recipe,
                                  std::span<const int64_t> extents, void* address);

  std::span<const TensorMapRecipe> recipes_;
  ExprProgram extents_;
  std::vector<uint32_t> registers_;  // where the values of all extents are
  std::vector<cuda::CUtensorMap> maps_;
  // The sizes and addresses for which `maps_` were encoded.
  std::vector<void*> addresses_;
  std::vector<int64_t> symbols_;
  bool encoded_ = false;
};

std::span<cuda::CUtensorMap> TensorMaps::update(CudaContext& context, const Program& program,
                                                const LaunchArguments& arguments) {
  if (recipes_.empty()) return {};
  const bool same_sizes = encoded_ && std::ranges::equal(symbols_, arguments.symbols);
  bool same = same_sizes;
  for (size_t i = 0; i < recipes_.size(); ++i) {
    same &= addresses_[i] == arguments.buffers[recipes_[i].buffer];
  }
  if (same) return maps_;
  encoded_ = false;
  const std::vector<int64_t> values = extents_.run(arguments.symbols);
  size_t next = 0;
  for (size_t i = 0; i < recipes_.size(); ++i) {
    std::vector<int64_t> extents;
    for (size_t axis = 0; axis < recipes_[i].extents.size(); ++axis) {
      extents.push_back(values[registers_[next++]]);
    }
    addresses_[i] = arguments.buffers[recipes_[i].buffer];
    maps_[i] = encode(context, program, program.launches[arguments.launch], recipes_[i], extents,
                      addresses_[i]);
  }
  symbols_.assign(arguments.symbols.begin(), arguments.symbols.end());
  encoded_ = true;
  return maps_;
}

cuda::CUtensorMap TensorMaps::encode(CudaContext& context, const Program& program,
                                     const Launch& launch, const TensorMapRecipe& recipe,
                                     std::span<const int64_t> extents, void* address) {
  cuda::CUtensorMap map{};
  // An empty tensor is never copied, and no map can describe it.
  if (std::ranges::find(extents, 0) != extents.end()) return map;
  if (const std::string fault = tensor_map_fault(recipe, extents); !fault.empty()) {
    fail(codes::kUnsupportedProgram,
         fmt::format("{} copies boxes of a tensor {}[{}], which the GPU cannot do: {}",
                     kernel_text(program, launch), name(recipe.dtype),
                     join(extents, ", ", [](int64_t e) { return std::to_string(e); }), fault));
  }
  const TensorMapArguments a = tensor_map_arguments(recipe, extents);
  const cuda::CUresult result = context.api().tensor_map_encode_tiled(
      &map, a.type, a.rank, address, a.extents, a.strides, a.box, a.steps,
      cuda::CU_TENSOR_MAP_INTERLEAVE_NONE, a.swizzle, cuda::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      cuda::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  context.check(result, "encoding a tensor map");
  return map;
}

class CudaKernels : public LoadedProgram {
 public:
  CudaKernels(CudaContext& context, const GpuFacts& gpu, std::shared_ptr<const Program> program);
  ~CudaKernels() override;

  void launch(const LaunchArguments& arguments) override;
  void call_function(const LaunchArguments& arguments,
                     const std::function<void(void*)>& function) override;
  void run(const Stretch& stretch, const std::function<void()>& launches) override;

 private:
  struct Kernel {
    std::vector<Entry> phases;
    TensorMaps maps;
  };

  [[noreturn]] void malformed(const Launch& launch, std::string_view what) const;
  void check_shape(const Launch& launch) const;
  void check_limits(const Launch& launch, const GpuPhase& phase, cuda::CUfunction function) const;
  Kernel load(const Launch& launch) const;
  [[noreturn]] void fail_launch(const Launch& launch, size_t phase, int64_t blocks,
                                cuda::CUresult result) const;

  CudaContext& context_;
  const GpuFacts& gpu_;
  const std::shared_ptr<const Program> program_;
  const bool wait_for_each_, may_overlap_;
  std::vector<std::unique_ptr<CudaModule>> modules_;  // by artifact

  // Calls in different streams take turns. This mutex is held for a call, and the one below for
  // each launch.
  std::mutex calls_mutex_;
  CallGraphs graphs_;

  std::mutex launches_mutex_;
  std::vector<Kernel> kernels_;    // by launch; without phases for what is no kernel
  std::vector<void*> parameters_;  // of the present launch
};

CudaKernels::CudaKernels(CudaContext& context, const GpuFacts& gpu,
                         std::shared_ptr<const Program> program)
    : context_(context),
      gpu_(gpu),
      program_(std::move(program)),
      wait_for_each_(read_env_int(kEnvSyncLaunches, 0, 1).value_or(0) == 1),
      may_overlap_(read_env_int(kEnvOverlap, 0, 1).value_or(1) == 1),
      graphs_(context, program_->name) {
  const CudaContext::Scope scope(context_);
  for (const Artifact& artifact : program_->artifacts) {
    modules_.push_back(std::make_unique<CudaModule>(context_, artifact.code, artifact.kernel));
  }
  for (const Launch& launch : program_->launches) kernels_.push_back(load(launch));
}

CudaKernels::~CudaKernels() {
  if (is_forked()) return;
  // The last launches may still be running.
  const CudaContext::Scope scope(context_);
  context_.finish_work();
}

void CudaKernels::malformed(const Launch& launch, std::string_view what) const {
  fail(codes::kMalformedProgram,
       fmt::format("program @{}: kernel @{} {}", program_->name, launch.name, what));
}

void CudaKernels::check_shape(const Launch& launch) const {
  const Artifact& artifact = program_->artifacts[launch.artifact];
  if (launch.gpu.size() != launch.instances.size() ||
      artifact.entry_names.size() != launch.instances.size()) {
    malformed(launch, "has another number of phases than its launch");
  }
  for (const GpuPhase& phase : launch.gpu) {
    if (phase.block < 1 || phase.block > kMostThreads) malformed(launch, "has no possible block");
    if (phase.cluster < 1 || phase.cluster > kMostCluster) {
      malformed(launch, "has no possible cluster");
    }
    if (phase.shared_bytes < 0) malformed(launch, "has negative shared memory");
  }
  for (const TensorMapRecipe& map : launch.tensor_maps) {
    if (map.buffer >= launch.buffers.size())
      malformed(launch, "has a tensor map of a buffer that does not exist");
    const std::string fault = tensor_map_fault(map);
    if (!fault.empty()) malformed(launch, "has an impossible tensor map: " + fault);
  }
}

void CudaKernels::check_limits(const Launch& launch, const GpuPhase& phase,
                               cuda::CUfunction function) const {
  if (phase.shared_bytes > gpu_.block_shared_bytes) {
    fail(codes::kUnsupportedProgram,
         fmt::format("{} needs {} of shared memory in each block, but {} has {}",
                     kernel_text(*program_, launch),
                     bytes_text(static_cast<uint64_t>(phase.shared_bytes)), gpu_.name,
                     bytes_text(static_cast<uint64_t>(gpu_.block_shared_bytes))));
  }
  const auto get = [&](cuda::CUfunction_attribute attribute) {
    int value = 0;
    context_.check(context_.api().func_get_attribute(&value, attribute, function),
                   "asking about a kernel");
    return value;
  };
  const int threads = get(cuda::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (phase.block > threads) {
    fail(codes::kUnsupportedProgram,
         fmt::format("{} has blocks of {} threads, but with its {} registers a thread {} can have "
                     "only {}",
                     kernel_text(*program_, launch), phase.block,
                     get(cuda::CU_FUNC_ATTRIBUTE_NUM_REGS), gpu_.name, threads));
  }
}

CudaKernels::Kernel CudaKernels::load(const Launch& launch) const {
  Kernel kernel{{}, TensorMaps(launch.tensor_maps, program_->symbols)};
  if (!launch.is_kernel()) return kernel;
  check_shape(launch);
  for (size_t i = 0; i < launch.gpu.size(); ++i) {
    const std::string& entry = program_->artifacts[launch.artifact].entry_names[i];
    const cuda::CUfunction function = modules_[launch.artifact]->find(entry);
    if (!function) malformed(launch, fmt::format("has no function {}", quote(entry)));
    GpuPhase phase = launch.gpu[i];
    phase.overlaps = phase.overlaps && may_overlap_;
    check_limits(launch, phase, function);
    kernel.phases.emplace_back(context_, function, phase, launch.grid_rows());
  }
  return kernel;
}

void CudaKernels::launch(const LaunchArguments& arguments) {
  const Launch& launch = program_->launches[arguments.launch];
  const CudaContext::Scope scope(context_);
  const std::lock_guard turn(launches_mutex_);
  Kernel& kernel = kernels_[arguments.launch];
  const std::span<cuda::CUtensorMap> maps = kernel.maps.update(context_, *program_, arguments);
  const LaunchParameters parameters{arguments.buffers, arguments.scalars, maps,
                                    !launch.members.empty()};
  parameters.list(parameters_);
  for (size_t i = 0; i < kernel.phases.size(); ++i) {
    Entry& entry = kernel.phases[i];
    if (arguments.instances[i] <= 0) continue;
    int64_t blocks = 0;
    if (__builtin_mul_overflow(arguments.instances[i], entry.cluster(), &blocks))
      blocks = INT64_MAX;
    if (blocks > kMostBlocks) fail_launch(launch, i, blocks, cuda::CUDA_ERROR_INVALID_VALUE);
    const cuda::CUlaunchConfig& config = entry.config(context_.native(arguments.stream), blocks);
    if (CallRecord* const record = CudaContext::recording()) {
      record->add_launch(config, entry.function(), parameters);
      continue;
    }
    const cuda::CUresult result =
        context_.api().launch_kernel_ex(&config, entry.function(), parameters_.data(), nullptr);
    if (result != cuda::CUDA_SUCCESS) fail_launch(launch, i, blocks, result);
    context_.note_launch(program_, arguments.launch, arguments.stream);
  }
  if (wait_for_each_) context_.synchronize();
}

void CudaKernels::call_function(const LaunchArguments& arguments,
                                const std::function<void(void*)>& function) {
  const CudaContext::Scope scope(context_);
  function(context_.native(arguments.stream));
  context_.note_launch(program_, arguments.launch, arguments.stream);
  if (wait_for_each_) context_.synchronize();
}

void CudaKernels::run(const Stretch& stretch, const std::function<void()>& launches) {
  if (wait_for_each_ || !CallGraphs::is_worth_it(*program_, stretch)) return launches();
  const CudaContext::Scope scope(context_);
  const std::lock_guard turn(calls_mutex_);
  if (!graphs_.run(context_.native(stretch.stream), stretch, launches)) return;
  for (uint32_t i = stretch.first; i < stretch.last; ++i) {
    if (!kernels_[i].phases.empty()) context_.note_launch(program_, i, stretch.stream);
  }
}

void CudaKernels::fail_launch(const Launch& launch, size_t phase, int64_t blocks,
                              cuda::CUresult result) const {
  if (blocks > kMostBlocks) {
    fail(codes::kUnsupportedProgram,
         fmt::format("{} has {} blocks in phase {}, more than the {} that a GPU launches at once",
                     kernel_text(*program_, launch), blocks, phase, kMostBlocks));
  }
  if (result == cuda::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) {
    fail(codes::kUnsupportedProgram,
         fmt::format("{} needs all its {} blocks at once in phase {}, which {} cannot hold",
                     kernel_text(*program_, launch), blocks, phase, gpu_.name));
  }
  context_.fail_with(
      result, fmt::format("the launch of {} ({} blocks of {} threads in phase {})",
                          kernel_text(*program_, launch), blocks, launch.gpu[phase].block, phase));
}

}  // namespace

std::unique_ptr<LoadedProgram> load_cuda_kernels(CudaContext& context, const GpuFacts& gpu,
                                                 std::shared_ptr<const Program> program) {
  return std::make_unique<CudaKernels>(context, gpu, std::move(program));
}

}  // namespace braze
