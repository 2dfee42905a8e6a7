#include "ir/graph/custom_calls.h"

#include <map>
#include <mutex>
#include <utility>

#include "ir/support/suggest.h"
#include "ir/support/text.h"

namespace braze {

namespace {

struct Table {
  using Key = std::pair<CustomMemory, std::string>;
  std::mutex mutex;
  std::map<Key, std::shared_ptr<const CustomFunction>> functions;

  static Table& get() {
    static auto* table = new Table;  // threads may use it at the end of the process
    return *table;
  }
};

std::string_view described(CustomMemory memory) {
  return memory == CustomMemory::Host ? "memory of the host" : "CUDA streams";
}

}  // namespace

void add_custom_function(std::string target, CustomMemory memory, CustomFunction function) {
  if (target.empty() || !function)
    fail(codes::kBadCustomFunction,
         target.empty() ? "a function of the host program needs a name"
                        : fmt::format("{} is registered without a function", quote(target)));
  auto made = std::make_shared<const CustomFunction>(std::move(function));
  Table& table = Table::get();
  const std::lock_guard lock(table.mutex);
  const auto [found, is_new] = table.functions.try_emplace({memory, target}, std::move(made));
  if (!is_new)
    fail(codes::kCustomFunctionTwice,
         fmt::format("{} has a function for {} already", quote(target), described(memory)),
         {.location = {}, .node = target, .fix = "register it once, under a name of its own"});
}

std::shared_ptr<const CustomFunction> find_custom_function(std::string_view target,
                                                           CustomMemory memory) {
  Table& table = Table::get();
  const std::lock_guard lock(table.mutex);
  const auto found = table.functions.find({memory, std::string(target)});
  return found == table.functions.end() ? nullptr : found->second;
}

std::vector<std::string> custom_function_names(CustomMemory memory) {
  Table& table = Table::get();
  const std::lock_guard lock(table.mutex);
  std::vector<std::string> names;
  for (const auto& [key, function] : table.functions)
    if (key.first == memory) names.push_back(key.second);
  return names;
}

std::shared_ptr<const CustomFunction> need_custom_function(const CustomCallOp& op,
                                                           CustomMemory memory,
                                                           std::string_view device,
                                                           ErrorContext context) {
  if (auto found = find_custom_function(op.target, memory)) return found;
  const auto other = memory == CustomMemory::Host ? CustomMemory::Cuda : CustomMemory::Host;
  std::string message = fmt::format("no function {} is registered for {}, so {} cannot call it{}",
                                    quote(op.target), described(memory), device,
                                    did_you_mean(op.target, custom_function_names(memory)));
  if (find_custom_function(op.target, other))
    message += fmt::format("; the one of this name is for {}", described(other));
  context.fix = fmt::format(
      "call register_custom_call({}, DeviceKind::{}, function) before the program is loaded, or "
      "give its library to `braze run` or `braze-run` with --load",
      quote(op.target), memory == CustomMemory::Host ? "Cpu" : "Cuda");
  fail(codes::kNoCustomFunction, std::move(message), std::move(context));
}

void call_custom_function(const CustomFunction& function, const CustomArguments& arguments,
                          ErrorContext context) {
  std::string reason;
  try {
    reason = function(arguments);
  } catch (const std::exception& error) {
    reason = error.what();
    if (reason.empty()) reason = "it threw an exception without a text";
  } catch (...) {
    reason = "it threw something that is no std::exception";
  }
  if (reason.empty()) return;
  fail(codes::kCustomCallFailed,
       fmt::format("the function {} failed: {}", quote(arguments.target), reason),
       std::move(context));
}

}  // namespace braze
