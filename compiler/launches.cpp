#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "compiler/launches_p.h"
#include "compiler/loops/cost.h"
#include "compiler/loops/lists.h"
#include "compiler/loops/text.h"
#include "compiler/planning/order.h"
#include "ir/kernel/verify.h"
#include "ir/support/parallel.h"
#include "ir/tile/verify.h"

namespace braze {

namespace {

// What decides whether kernels that differ in their sizes become one launch.
struct ListForms {
  std::vector<std::optional<LoopTree>> forms;  // by fusion; none: it is no member of a list
  std::vector<std::string> keys;               // by fusion: equal for members of one list
};

// The forms of kernels that may become one launch although they differ in their sizes: on a GPU,
// where nobody gave a schedule for them.
ListForms list_forms(const Compilation& compilation, const Kernels& kernels) {
  const CompileOptions& options = compilation.options;
  const std::vector<size_t>& numbers = kernels.numbers;
  ListForms out{std::vector<std::optional<LoopTree>>(kernels.fusions.size()),
                std::vector<std::string>(kernels.fusions.size())};
  if (compilation.target.kind != TargetKind::Gpu || !options.fuse || numbers.size() < 2) return out;
  const auto each = [&](bool alike, const auto& visit) {
    parallel_for(numbers.size(), [&](size_t n) {
      if ((kernels.first[n].like != n) == alike &&
          !given_schedule(options, kernels.fusions[numbers[n]].name))
        visit(n, numbers[n]);
    });
  };
  each(false, [&](size_t n, size_t k) {
    LoopTree form = list_form(kernels.first[n].tree);
    auto key = list_key(form);
    if (std::holds_alternative<Refusal>(key)) return;
    out.keys[k] = std::get<std::string>(std::move(key));
    out.forms[k] = std::move(form);
  });
  each(true, [&](size_t n, size_t k) {
    const size_t like = numbers[kernels.first[n].like];
    if (!out.forms[like]) return;
    out.keys[k] = out.keys[like];
    LoopTree& form = out.forms[k].emplace(*out.forms[like]);
    for (size_t t = 0; t < form.tensors.size(); ++t)
      form.tensors[t].node = kernels.first[n].tree.tensors[t].node;
  });
  return out;
}

// The steps for a list may make a member slower by this factor, by its estimate.
constexpr double kSlowerInList = 1.1;
// A product in a list takes at most the time of so many launches. Its steps follow its sizes more
// closely than estimates can tell: on an H200, three f32 weight gradients of 784x2048, 2048x2048
// and 2048x10 took 0.4 ms longer in a list than apart.
constexpr double kMostLaunchesOfProduct = 30;

// Why the longest member of a list should not run with steps that serve all; nullopt if it may.
// `listed` is the scheduled tree of the list with the sizes of this member.
std::optional<Refusal> refuse_if_slower(const CompiledFusion& longest, const LoopTree& listed,
                                        const Target& target) {
  const double alone = longest.seconds;
  if (has_kind(listed, LoopTask::Kind::Dot) &&
      alone > kMostLaunchesOfProduct * target.launch_seconds)
    return Refusal{&codes::kUnlike,
                   fmt::format("the product of @{} takes {:.1f} us, so that a launch less is "
                               "nothing beside steps for its sizes alone",
                               longest.name, 1e6 * alone),
                   ""};
  const double seconds = cost_of(listed, target).seconds;
  if (alone > 0 && seconds > kSlowerInList * alone)
    return Refusal{
        &codes::kUnlike,
        fmt::format("with steps for all sizes, @{} would take {:.1f} us instead of {:.1f}",
                    longest.name, 1e6 * seconds, 1e6 * alone),
        ""};
  return std::nullopt;
}

/// A kernel for several forms, whose symbols are the numbers that differ; these numbers, by form;
/// and the tensors of the forms that are its parameters.
struct SizedKernel {
  Kernel kernel;
  std::vector<std::vector<int64_t>> sizes;
  std::vector<size_t> tensors;
};

// The kernel for the forms of these fusions, or the reason why there is none.
std::variant<SizedKernel, Refusal> sized_kernel(const Compilation& compilation,
                                                const std::vector<CompiledFusion>& fusions,
                                                const ListForms& lists,
                                                const std::vector<size_t>& members,
                                                double seconds) {
  const Target& target = compilation.target;
  std::vector<const LoopTree*> forms;
  for (const size_t k : members) forms.push_back(&*lists.forms[k]);
  auto joint = list_tree(forms);
  if (auto* refusal = std::get_if<Refusal>(&joint)) return std::move(*refusal);
  auto& [tree, sizes] = std::get<ListTree>(joint);
  tree.name = fmt::format("{}_x{}", fusions[members.front()].kernel.name, members.size());
  auto made = tile_loops(std::move(tree), target);
  if (auto* refusal = std::get_if<Refusal>(&made)) return std::move(*refusal);
  auto& tiling = std::get<TreeTiling>(made);
  const auto longest =
      std::ranges::max_element(members, {}, [&](size_t k) { return fusions[k].seconds; });
  const std::vector<int64_t>& own = sizes[static_cast<size_t>(longest - members.begin())];
  if (auto refusal = refuse_if_slower(fusions[*longest], with_sizes(tiling.tree, own), target))
    return std::move(*refusal);
  compilation.viewers.show("loops", tiling.tree, tiling.tree.name);
  // Steps may have given another name to a tensor of the forms.
  std::vector<size_t> tensors;
  for (size_t t = 0; t < tiling.tree.tensors.size(); ++t)
    tensors.push_back(tiling.tree.tensors[t].same.value_or(t));
  Kernel kernel = lower_tiling(compilation, tiling, seconds, [&](size_t parameter) {
    return std::ranges::all_of(forms, [&](const LoopTree* form) {
      return compilation.unwritten[form->tensors[tensors[parameter]].node.index];
    });
  });
  return SizedKernel{std::move(kernel), std::move(sizes), std::move(tensors)};
}

// Notes which nodes are the parameters of a kernel for several forms.
void take_parameters(CompiledFusion& fusion, const LoopTree& form, const SizedKernel& made) {
  fusion.parameters.clear();
  for (const size_t tensor : made.tensors) fusion.parameters.push_back(form.tensors[tensor].node);
}

// The kernel of a list, or the reason why there is none.
std::variant<SizedKernel, Refusal> list_kernel(const Compilation& compilation,
                                               const std::vector<CompiledFusion>& fusions,
                                               const ListForms& lists,
                                               const std::vector<size_t>& members) {
  double seconds = 0;
  for (const size_t k : members) seconds += fusions[k].seconds;
  auto made = sized_kernel(compilation, fusions, lists, members, seconds);
  auto* sized = std::get_if<SizedKernel>(&made);
  if (!sized) return made;
  Kernel& kernel = sized->kernel;
  kernel.members = static_cast<int64_t>(members.size());
  kernel.member_sizes = sized->sizes;
  if (kernel.resident || parameter_bytes(kernel, kernel.members) > kMostParameterBytes)
    return Refusal{&codes::kUnlike, "a launch cannot pass the memory of all members", ""};
  check_after(kernel, "joining");
  return made;
}

// Replaces launches whose members differ in their sizes by launches of one kernel for all of them.
// Where there is no such kernel, equal kernels are launched together.
void join_lists(const Compilation& compilation, Kernels& kernels, const ListForms& lists,
                Launches& launches) {
  const auto key_of = [&](size_t k) -> const std::string& { return kernels.keys[k].text; };
  const auto differ = [&](const std::vector<size_t>& members) {
    return std::ranges::any_of(members,
                               [&](size_t k) { return key_of(k) != key_of(members.front()); });
  };
  PhaseViewers& viewers = compilation.viewers;
  const unsigned threads = viewers.any() ? 1 : count_cores();
  std::vector<std::vector<std::vector<size_t>>> parts(launches.members.size());
  std::vector<std::string> codes(parts.size());
  parallel_for(parts.size(), threads, [&](size_t n) {
    const std::vector<size_t>& members = launches.members[n];
    if (!differ(members)) {
      parts[n] = {members};
      return;
    }
    CompiledFusion& first = kernels.fusions[members.front()];
    auto made = list_kernel(compilation, kernels.fusions, lists, members);
    if (auto* list = std::get_if<SizedKernel>(&made)) {
      codes[n] = "list " + list->kernel.name;
      parts[n] = {members};
      for (const size_t k : members) take_parameters(kernels.fusions[k], *lists.forms[k], *list);
      first.kernel = std::move(list->kernel);
      return;
    }
    const Refusal& refusal = std::get<Refusal>(made);
    viewers.show({"refusal", first.name,
                  [&] { return fmt::format("list: {}: {}\n", refusal.code->name, refusal.why); }});
    std::map<std::string_view, std::vector<size_t>> equal;
    for (const size_t k : members) equal[key_of(k)].push_back(k);
    for (auto& [key, same] : equal) parts[n].push_back(std::move(same));
    std::ranges::sort(parts[n]);
  });
  Launches out;
  for (size_t n = 0; n < parts.size(); ++n)
    for (std::vector<size_t>& members : parts[n]) {
      out.members.push_back(std::move(members));
      out.codes.push_back(codes[n]);
    }
  launches = std::move(out);
}

// Launches of one kernel each that wait for each other, and whose kernels differ in numbers alone,
// as the steps of a recurrence that read one row of a tensor after the other. From this number of
// kernels on they share one code, and each launch passes its numbers.
constexpr size_t kLeastSharing = 4;

void share_codes(const Compilation& compilation, Kernels& kernels, const ListForms& lists,
                 Launches& launches) {
  std::map<std::string_view, std::vector<size_t>> alike;  // launches by the key of a list
  for (size_t n = 0; n < launches.members.size(); ++n) {
    const std::vector<size_t>& members = launches.members[n];
    if (members.size() == 1 && launches.codes[n].empty() && !lists.keys[members[0]].empty())
      alike[lists.keys[members[0]]].push_back(n);
  }
  for (const auto& [key, numbers] : alike) {
    std::set<std::string_view> distinct;
    std::vector<size_t> members;
    for (const size_t n : numbers) {
      members.push_back(launches.members[n].front());
      distinct.insert(kernels.keys[members.back()].text);
    }
    if (distinct.size() < kLeastSharing) continue;
    double seconds = 0;
    for (const size_t k : members) seconds = std::max(seconds, kernels.fusions[k].seconds);
    auto made = sized_kernel(compilation, kernels.fusions, lists, members, seconds);
    if (const auto* refusal = std::get_if<Refusal>(&made)) {
      compilation.viewers.show(
          {"refusal", kernels.fusions[members[0]].name,
           [&] { return fmt::format("sharing: {}: {}\n", refusal->code->name, refusal->why); }});
      continue;
    }
    const SizedKernel* sized = &std::get<SizedKernel>(made);
    if (sized->kernel.resident) continue;
    check_after(sized->kernel, "sharing");
    for (size_t m = 0; m < members.size(); ++m) {
      CompiledFusion& fusion = kernels.fusions[members[m]];
      take_parameters(fusion, *lists.forms[members[m]], *sized);
      fusion.kernel = sized->kernel;
      fusion.kernel.name = fusion.name;
      fusion.sizes = sized->sizes[m];
      launches.codes[numbers[m]] = "sized " + sized->kernel.name;
    }
  }
}

}  // namespace

Launches make_launches(const Compilation& compilation, Kernels& kernels) {
  const auto& [forms, target, options, updates, unwritten, viewers] = compilation;
  std::vector<CompiledFusion>& fusions = kernels.fusions;
  std::vector<std::string> texts;
  for (size_t i = 0; i < fusions.size(); ++i) {
    const std::string& key = kernels.keys[i].text;
    texts.push_back(!options.fuse ? ""
                    : !key.empty()
                        ? key
                        : collective_key(forms.graph(), fusions[i].fusion.nodes.front()));
  }
  const ListForms lists = list_forms(compilation, kernels);
  Launches out{launch_order(forms, fusions, texts, lists.keys, updates, target), {}};
  join_lists(compilation, kernels, lists, out);
  share_codes(compilation, kernels, lists, out);
  std::vector<KernelKey>& keys = kernels.keys;
  std::unordered_map<std::string_view, size_t> first;  // by the text of a key: its first fusion
  for (size_t n = 0; n < out.members.size(); ++n) {
    const std::vector<size_t>& members = out.members[n];
    if (!out.codes[n].empty()) continue;  // a list
    for (const size_t k : members) {
      // The simulator's reports name values, so there only members of a launch share a kernel.
      const size_t equal =
          target.simulated ? members.front() : first.emplace(keys[k].text, k).first->second;
      if (equal != k && !keys[k].text.empty())
        take_kernel(fusions[k], keys[k], fusions[equal], keys[equal]);
    }
  }
  for (size_t n = 0; n < out.members.size(); ++n) {
    const std::vector<size_t>& members = out.members[n];
    const std::string& key = keys[members.front()].text;
    if (!out.codes[n].empty() || key.empty()) continue;
    const std::string& code = target.simulated ? fusions[members.front()].name : key;
    out.codes[n] = fmt::format("{}members {}", code, members.size());
  }
  parallel_for(out.members.size(), [&](size_t n) {
    const std::vector<size_t>& members = out.members[n];
    Kernel& kernel = fusions[members.front()].kernel;
    if (members.size() == 1 || out.codes[n].empty() || !kernel.member_sizes.empty()) return;
    kernel = joined(std::move(kernel), members.size());
    check_after(kernel, "joining");
  });
  return out;
}

}  // namespace braze
