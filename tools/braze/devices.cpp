// devices.cpp — braze devices: where programs can run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "braze/device.h"
#include "ir/target/target.h"
#include "tools/braze/command.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

constexpr std::string_view kKinds[] = {"this processor", "GPU", "simulator", "reference"};

// A device that this host cannot serve says why.
std::string target_text(const Device& device) {
  try {
    const Target& target = device.target();
    const std::string cores =
        target.kind == TargetKind::Interpreter ? "" : fmt::format(", {} cores", target.cores);
    return target.name + cores;
  } catch (const Error& error) {
    return error.message();
  }
}

Exit list_devices(bool as_json) {
  std::vector<std::vector<std::string>> rows = {{"device", "what it is", "target"}};
  std::vector<std::string> items;
  for (const Device& device : devices()) {
    const std::string kind(kKinds[static_cast<size_t>(device.kind())]);
    rows.push_back({device.name(), kind, target_text(device)});
    items.push_back(json::object({{"name", json::string(device.name())},
                                  {"kind", json::string(kind)},
                                  {"target", json::string(target_text(device))},
                                  {"default", json::boolean(device == default_device())}}));
  }
  if (as_json) {
    json::print({{"devices", json::array(items)}});
    return Exit::Ok;
  }
  fmt::print("{}\n  the default is {}\n", table(rows), default_device().name());
  return Exit::Ok;
}

std::function<Exit()> add(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  app.add_flag("--json", *as_json, "Print JSON");
  return [as_json] { return list_devices(*as_json); };
}

}  // namespace

const Command kDevices = {"devices", "Lists the devices of this machine.",
                          "  braze devices\n"
                          "  BRAZE_CPU_DEVICES=2 braze devices\n",
                          add};

}  // namespace braze::tool
