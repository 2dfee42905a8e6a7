// package.h — functions that were compiled ahead of time (`braze compile`, `save_package`), loaded
// and run without a compiler.
//
//   Package package = Package::load("digits.bzp");
//   LoadedFunction classify = package.function("main").load("cuda:0");
//   Array scores = classify(pixels)[0];
//
// A package holds machine code that runs with the rights of this process. Its checksums show that
// it is whole, not who made it. It is therefore loaded only from a file that belongs to this user
// or to root and that nobody else can write; the same must hold for the folders above it. If keys
// are named, it is loaded instead from any file that one of them has signed (`braze sign`).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/array.h"
#include "braze/device.h"
#include "braze/executable.h"

namespace braze {

/// How a package is loaded: which weights, and whom to trust.
struct PackageOptions {
  /// A .safetensors file, or the .json index of several, used in place of the package's weights.
  std::string weights = {};
  /// Accepts code from a file that others can write. Use it only for files whose maker you trust
  /// and know by other means.
  bool trust_any_owner = false;
  /// Public keys, or folders of them. If keys are named here, or otherwise by the environment
  /// variable BRAZE_TRUST_KEYS, one of them must have signed the package. It then does not matter
  /// who owns the file or can write it.
  std::vector<std::string> trust_keys = {};
};

/// An input or output of a packaged function.
struct PackagedTensor {
  std::string name;                ///< as in the graph
  DType dtype = DType::F32;        ///< the element type
  std::vector<std::string> shape;  ///< extents, such as "64", "n" or "4*n"
  /// "f32[n, 64]".
  std::string type() const;
};

/// The code of a function for one kind of machine.
struct PackagedVariant {
  std::string target;  ///< "x86-64-v3", "sm_90a"
  std::string format;  ///< "image", "cubin", "ptx"
};

/// A function that is loaded on a device. A cheap handle; any thread may call it.
class LoadedFunction {
 public:
  /// One call. The arguments have the order of `PackagedFunction::inputs`. Like Executable::run, it
  /// submits the work and returns. InvalidArgument if an argument does not fit.
  std::vector<Array> run(std::span<const Array> arguments) const;
  /// The same, with the arguments one by one.
  template <class... Arrays>
  std::vector<Array> operator()(const Arrays&... arguments) const {
    const Array all[sizeof...(arguments) + 1] = {arguments...};  // no array has length 0
    return run(std::span(all).first(sizeof...(arguments)));
  }

  Device device() const;  ///< where it runs
  /// The memory that a call with these arguments will allocate.
  MemoryPlan memory_plan(std::span<const Array> arguments) const;
  /// The code that was chosen for the device.
  const PackagedVariant& variant() const;

  struct State;
  /// For Braze itself.
  explicit LoadedFunction(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const std::shared_ptr<const State>& state() const { return state_; }  ///< for Braze itself

 private:
  std::shared_ptr<const State> state_;
};

/// One function of a package. A cheap handle, which keeps the package open.
class PackagedFunction {
 public:
  const std::string& name() const;  ///< as in the graph
  /// The arguments of a call, which are the inputs without a weight.
  std::vector<PackagedTensor> inputs() const;
  std::vector<PackagedTensor> outputs() const;  ///< the results of a call, in order
  /// The symbols, which the shapes of a call decide, with their ranges: "n: 1..64".
  std::vector<std::string> symbols() const;
  std::vector<PackagedVariant> variants() const;  ///< one for each target

  /// Loads the code that suits `device` best, and the weights. On a CPU the weights stay in the
  /// mapped file; on other devices they are copied. Unsupported, with a list of the variants, if no
  /// code runs on the device. InvalidArgument or DataLoss if a weight is missing or has another
  /// type.
  LoadedFunction load(const Device& device = default_device()) const;
  /// The same with the given weights, by their names in the package: all of them and no others.
  LoadedFunction load(const Device& device, const std::map<std::string, Array>& weights) const;

  struct State;
  /// For Braze itself.
  explicit PackagedFunction(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

/// A package file. A cheap handle; any thread may use it.
class Package {
 public:
  /// Maps a package and checks it. InvalidArgument if the file is not a package, is not to be
  /// trusted, or is not signed by a key that is named. Unsupported if this Braze cannot read the
  /// version of the format. DataLoss if the file is damaged.
  static Package load(const std::string& path, PackageOptions options = {});

  std::vector<std::string> functions() const;  ///< their names
  /// The function of this name, or the only function if no name is given. If there is none,
  /// InvalidArgument lists the functions.
  PackagedFunction function(std::string_view name = {}) const;
  /// Facts about how the package was made, as names and values.
  std::vector<std::pair<std::string, std::string>> facts() const;

  struct State;
  /// For Braze itself.
  explicit Package(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const std::shared_ptr<const State>& state() const { return state_; }  ///< for Braze itself

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace braze
