#include "tools/braze/package.h"

#include <fmt/format.h>

#include <fstream>

#include "braze/custom_function.h"
#include "ir/program/container.h"
#include "runtime/package/package.h"
#include "tools/braze/arguments.h"

namespace braze::tool {

bool is_package(const std::string& path) {
  if (path.ends_with(".bzp")) return true;
  std::ifstream file(path, std::ios::binary);
  char start[kContainerMagic.size()] = {};
  return file.read(start, sizeof(start)) &&
         std::string_view(start, sizeof(start)) == kContainerMagic;
}

void PackageFlags::add_to(Arguments& arguments) {
  arguments.add_option("--function", function, "Function to run, if the package has several");
  arguments.add_option("--weights", weights,
                       "Safetensors file to use instead of the package's weights");
  arguments.add_flag("--trust", trust, "Accept code from a file that other users can write");
  arguments
      .add_option("--trust-key", trust_keys,
                  "Public key, or folder of keys: accept only a package that one of them signed, "
                  "whoever can write the file")
      .repeatable();
}

void PackageFlags::refuse_for_text(bool is_code) const {
  const std::string_view given = !function.empty()     ? "--function"
                                 : !weights.empty()    ? "--weights"
                                 : trust && !is_code   ? "--trust"
                                 : !trust_keys.empty() ? "--trust-key"
                                                       : "";
  if (!given.empty()) fail_usage(fmt::format("{} is for packages, but this is text", given));
}

Package PackageFlags::load(const std::string& path) const {
  if (trust && !trust_keys.empty())
    fail_usage(
        "give either --trust, which accepts any package, or --trust-key, which accepts only signed "
        "packages");
  return blame(Exit::BadFile, [&] {
    return Package::load(path,
                         {.weights = weights, .trust_any_owner = trust, .trust_keys = trust_keys});
  });
}

std::vector<ReadFile> PackageFlags::files() const {
  std::vector<ReadFile> files = {{weights, "holds the weights"}};
  for (const std::string& key : trust_keys) files.push_back({key, "holds a key"});
  return files;
}

void LibraryFlags::add_to(Arguments& arguments) {
  arguments
      .add_option("--load", libraries,
                  "Shared library with functions that custom calls need; its code runs with your "
                  "rights")
      .repeatable();
}

void LibraryFlags::load() const {
  blame(Exit::BadFile, [&] {
    for (const std::string& library : libraries) load_custom_calls(library);
  });
}

Runnable load_runnable(const PackageFlags& flags, const std::string& path, const Device& device) {
  const Package package = flags.load(path);
  const LoadedFunction loaded =
      blame(Exit::BadFile, [&] { return package.function(flags.function).load(device); });
  return {loaded.state()->executable, loaded.state()->bound};
}

Program Runnable::free_inputs() const {
  const Program& whole = executable.program();
  Program program;
  program.name = whole.name;
  program.symbols = whole.symbols;
  for (size_t i = 0; i < bound.size(); ++i)
    if (!bound[i].valid()) program.inputs.push_back(whole.inputs[i]);
  return program;
}

std::vector<GivenShape> Runnable::weight_shapes() const {
  const std::vector<ProgramInput>& inputs = executable.program().inputs;
  std::vector<GivenShape> shapes;
  for (size_t i = 0; i < bound.size(); ++i)
    if (bound[i].valid())
      shapes.push_back({inputs[i].name, &inputs[i].type.shape, bound[i].shape()});
  return shapes;
}

std::vector<Array> Runnable::arguments(const std::vector<HostTensor>& values) const {
  std::vector<Array> arguments = bound;
  auto value = values.begin();
  for (Array& argument : arguments)
    if (!argument.valid()) argument = Array::from_host(*value++, executable.device());
  for (const Array& argument : arguments) argument.wait();
  return arguments;
}

void Runnable::renew(std::vector<Array>& arguments, const std::vector<HostTensor>& values) const {
  std::vector<bool> taken(bound.size());
  for (const ProgramOutput& output : executable.program().outputs)
    if (output.updates) taken[*output.updates] = true;
  auto value = values.begin();
  for (size_t i = 0; i < bound.size(); ++i) {
    if (bound[i].valid()) continue;
    if (taken[i]) arguments[i] = Array::from_host(*value, executable.device());
    ++value;
  }
  for (const Array& argument : arguments) argument.wait();
}

}  // namespace braze::tool
