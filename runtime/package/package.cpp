#include "runtime/package/package.h"

#include <algorithm>
#include <filesystem>

#include "ir/graph/text.h"
#include "ir/support/env.h"
#include "ir/support/suggest.h"
#include "ir/support/text.h"
#include "runtime/devices/registry.h"
#include "runtime/execution/plan.h"
#include "runtime/memory/array_state.h"

namespace braze {

namespace {

using fmt::format;

constexpr size_t kAlignment = 64;  // of every tensor that a kernel accesses

PackagedTensor describe(const std::string& name, const TensorType& type) {
  PackagedTensor out{name, type.dtype, {}};
  for (const Expr& extent : type.shape) out.shape.push_back(extent.to_string());
  return out;
}

bool is_bound(const PackageReader::Function& function, size_t input) {
  return std::ranges::any_of(function.weights,
                             [&](const WeightBinding& w) { return w.input == input; });
}

std::string variants_text(const PackageReader::Function& function) {
  return join(function.variants, ", ", [](const PackageReader::Variant& variant) {
    return format("{} ({})", variant.target, variant.format);
  });
}

// The variant that suits the device best.
const PackageReader::Variant& choose(const PackageReader::Function& function,
                                     const DeviceDriver& driver) {
  const PackageReader::Variant* best = nullptr;
  std::optional<int> best_score;
  for (const PackageReader::Variant& variant : function.variants) {
    const auto score = driver.suitability(*find_target(variant.target), variant.format);
    if (!score || (best_score && *score <= *best_score)) continue;
    best = &variant;
    best_score = score;
  }
  if (best) return *best;
  fail(codes::kNoVariant,
       format("no code of @{} runs on {}; the package has code for {}", function.name,
              driver.name(), variants_text(function)),
       {.node = function.name, .fix = "compile it with --target for this machine"});
}

// A tensor of the file on the device, in place if possible.
Array place(const std::shared_ptr<const SafetensorsFile>& file, const StoredTensor& tensor,
            const Device& device, bool has_host_memory) {
  const bool in_place = has_host_memory && tensor.dtype != DType::Bool && !tensor.bytes.empty() &&
                        reinterpret_cast<uintptr_t>(tensor.bytes.data()) % kAlignment == 0;
  if (in_place) return borrow_array(*tensor.dtype, tensor.shape, device, tensor.bytes, file);
  return to_array(tensor, device);
}

}  // namespace

void check_weight(const std::string& weight, const ProgramInput& input, DType dtype,
                  const std::vector<int64_t>& shape, std::string_view holder) {
  bool fits = dtype == input.type.dtype && shape.size() == input.type.shape.rank();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    const auto extent = input.type.shape[i].as_constant();
    fits = !extent || *extent == shape[i];  // a call checks symbolic extents
  }
  if (!fits)
    fail(codes::kWeightType,
         format("the weight {} of {} is {}, but the input {} takes {}", quote(weight), holder,
                type_text(dtype, shape), quote(input.name), input.type.to_string()));
}

// --- Package ------------------------------------------------------------------------------------

namespace {

SignatureDemand demand_of(const PackageOptions& options) {
  if (!options.trust_keys.empty()) return {"trust_keys (--trust-key)", "name other keys, or none"};
  std::string_view no_way =
      options.trust_any_owner ? " (--trust and trust_any_owner do not lift what it demands)" : "";
  return {kEnvTrustKeys.name,
          format("name other keys in {0}, or none: unset {0}{1}", kEnvTrustKeys.name, no_way)};
}

}  // namespace

Package Package::load(const std::string& path, PackageOptions options) {
  const PublicKeys keys = trusted_keys(options.trust_keys);
  auto file = !keys.empty()             ? open_signed(path, keys, demand_of(options))
              : options.trust_any_owner ? MappedFile::open_stable(path)
                                        : MappedFile::open_trusted(path);
  return Package(std::make_shared<const State>(std::move(file), std::move(options)));
}

namespace {

SafetensorsFile open_beside(const std::string& package, const std::string& name) {
  try {
    return SafetensorsFile::open((std::filesystem::path(package).parent_path() / name).string());
  } catch (const Error& error) {
    if (&error.code() != &codes::kFileMissing) throw;
    fail(error.code(), format("the weights of {}: {}", quote(package), error.message()),
         {.fix = "copy them into the folder of the package, or name their file: "
                 "PackageOptions::weights, or --weights FILE"});
  }
}

}  // namespace

std::shared_ptr<const SafetensorsFile> Package::State::open_weights() const {
  const auto share = [this](SafetensorsFile weights) {
    // Embedded bytes are in the package's mapping, which the file keeps alive.
    return std::shared_ptr<const SafetensorsFile>(
        new SafetensorsFile(std::move(weights)),
        [keep = file](const SafetensorsFile* done) { delete done; });
  };
  if (!options.weights.empty()) return share(SafetensorsFile::open(options.weights));
  if (const auto bytes = reader.weight_bytes(); !bytes.empty())
    return share(SafetensorsFile::parse(bytes, file->path()));
  if (reader.weight_file().empty())
    fail(codes::kMissingWeight, format("{} has no weights", quote(file->path())),
         {.fix = "name the file of the weights: PackageOptions::weights, or --weights FILE"});
  return share(open_beside(file->path(), reader.weight_file()));
}

std::shared_ptr<const SafetensorsFile> Package::State::weights() const {
  const std::lock_guard lock(mutex_);
  if (!weights_) weights_ = open_weights();
  return weights_;
}

std::vector<std::string> Package::functions() const {
  std::vector<std::string> names;
  for (const auto& function : state_->reader.functions()) names.push_back(function.name);
  return names;
}

PackagedFunction Package::function(std::string_view name) const {
  for (const auto& function : state_->reader.functions()) {
    const bool is_it =
        name.empty() ? state_->reader.functions().size() == 1 : function.name == name;
    if (!is_it) continue;
    auto state = std::make_shared<PackagedFunction::State>();
    state->package = state_;
    state->function = &function;
    return PackagedFunction(std::move(state));
  }
  const std::vector<std::string> known = functions();
  if (name.empty())
    fail(
        codes::kNoFunction,
        format("{} has several functions: {}", quote(state_->file->path()), fmt::join(known, ", ")),
        {.fix = "name one of them"});
  fail(codes::kNoFunction, format("{} has no function {}; it has {}{}", quote(state_->file->path()),
                                  quote(name), fmt::join(known, ", "), did_you_mean(name, known)));
}

std::vector<std::pair<std::string, std::string>> Package::facts() const {
  return state_->reader.facts();
}

const PackageReader& reader_of(const Package& package) { return package.state()->reader; }

// --- PackagedFunction ---------------------------------------------------------------------------

const Program& PackagedFunction::State::signature() const {
  const std::lock_guard lock(mutex);
  if (!read) read = package->reader.program(function->variants.front());
  return *read;
}

const std::string& PackagedFunction::name() const { return state_->function->name; }

std::vector<PackagedTensor> PackagedFunction::inputs() const {
  std::vector<PackagedTensor> out;
  const auto& inputs = state_->signature().inputs;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!is_bound(*state_->function, i)) out.push_back(describe(inputs[i].name, inputs[i].type));
  return out;
}

std::vector<PackagedTensor> PackagedFunction::outputs() const {
  std::vector<PackagedTensor> out;
  for (const ProgramOutput& output : state_->signature().outputs)
    out.push_back(describe(output.name, output.type));
  return out;
}

std::vector<std::string> PackagedFunction::symbols() const {
  std::vector<std::string> out;
  for (const Expr& symbol : state_->signature().symbols) {
    constexpr std::string_view kWord = "symbol ";
    out.push_back(symbol_text(symbol).substr(kWord.size()));
  }
  return out;
}

std::vector<PackagedVariant> PackagedFunction::variants() const {
  std::vector<PackagedVariant> out;
  for (const auto& variant : state_->function->variants)
    out.push_back({variant.target, variant.format});
  return out;
}

namespace {

using WeightOf = std::function<Array(const WeightBinding&, const ProgramInput&)>;

LoadedFunction load_function(const PackagedFunction::State& state, const Device& device,
                             const WeightOf& weight_of) {
  const PackageReader::Function& function = *state.function;
  const PackageReader::Variant& variant = choose(function, Registry::get().driver(device));
  auto program = std::make_shared<const Program>(state.package->reader.program(variant));
  auto loaded = std::make_shared<LoadedFunction::State>();
  loaded->variant = {variant.target, variant.format};
  loaded->bound.resize(program->inputs.size());
  for (const WeightBinding& binding : function.weights) {
    if (binding.input >= program->inputs.size())
      fail(codes::kContainerDamaged, format("@{}: a weight of no input", function.name));
    for (const ProgramOutput& output : program->outputs)
      if (output.updates == binding.input)
        fail(codes::kContainerDamaged, format("@{}: a weight that a call changes", function.name));
    loaded->bound[binding.input] = weight_of(binding, program->inputs[binding.input]);
  }
  loaded->executable = Executable::load(std::move(program), device);
  return LoadedFunction(std::move(loaded));
}

}  // namespace

LoadedFunction PackagedFunction::load(const Device& device) const {
  const bool has_host_memory = Registry::get().driver(device).has_host_memory();
  return load_function(*state_, device, [&](const WeightBinding& w, const ProgramInput& input) {
    const auto file = state_->package->weights();
    const StoredTensor& tensor = file->at(w.weight);
    check_weight(w.weight, input, *tensor.dtype, tensor.shape, quote(file->path()));
    return place(file, tensor, device, has_host_memory);
  });
}

namespace {

// Without this check, a name with a typo would silently leave its weight out.
void check_names(const PackageReader::Function& function,
                 const std::map<std::string, Array>& weights) {
  std::vector<std::string> known;
  for (const WeightBinding& binding : function.weights) known.push_back(binding.weight);
  for (const auto& item : weights)
    if (std::ranges::find(known, item.first) == known.end())
      fail(codes::kUnknownTensor,
           format("@{} has no weight {}; it has {}{}", function.name, quote(item.first),
                  known.empty() ? "none" : format("{}", fmt::join(known, ", ")),
                  did_you_mean(item.first, known)));
}

}  // namespace

LoadedFunction PackagedFunction::load(const Device& device,
                                      const std::map<std::string, Array>& weights) const {
  check_names(*state_->function, weights);
  return load_function(*state_, device, [&](const WeightBinding& w, const ProgramInput& input) {
    const auto found = weights.find(w.weight);
    if (found == weights.end())
      fail(codes::kMissingWeight, format("the weight {} of the input {} is not given",
                                         quote(w.weight), quote(input.name)));
    check_weight(w.weight, input, found->second.dtype(), found->second.shape(), "those given");
    return found->second.to(device);
  });
}

// --- LoadedFunction -----------------------------------------------------------------------------

namespace {

// The arguments of the program: the weights and the arguments of the call.
std::vector<Array> all_arguments(const LoadedFunction::State& state,
                                 std::span<const Array> arguments) {
  const auto free = std::ranges::count_if(state.bound, [](const Array& a) { return !a.valid(); });
  if (arguments.size() != static_cast<size_t>(free))
    fail_argument_count(state.executable.program(), arguments.size(), state.bound);
  std::vector<Array> all = state.bound;
  size_t next = 0;
  for (Array& array : all)
    if (!array.valid()) array = arguments[next++];
  return all;
}

}  // namespace

std::vector<Array> LoadedFunction::run(std::span<const Array> arguments) const {
  return state_->executable.run(all_arguments(*state_, arguments));
}

MemoryPlan LoadedFunction::memory_plan(std::span<const Array> arguments) const {
  return state_->executable.memory_plan(all_arguments(*state_, arguments));
}

Device LoadedFunction::device() const { return state_->executable.device(); }

const PackagedVariant& LoadedFunction::variant() const { return state_->variant; }

std::string PackagedTensor::type() const {
  return format("{}[{}]", braze::name(dtype), fmt::join(shape, ", "));
}

}  // namespace braze
