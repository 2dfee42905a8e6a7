// package.h — functions that were compiled ahead of time (`braze compile`, `save_package`), loaded
// and run without a compiler.
//
//   Package package = Package::load("digits.bzp");
//   LoadedFunction classify = package.function("main").load("cuda:0");
//   Array scores = classify(pixels)[0];
//
// A package holds machine code that runs with the rights of this process. Its checksums show that
// it is whole, not who made it. So it is loaded only from a file that belongs to this user or to
// root and that nobody else can write, as are the folders above it; or, where keys are named, from
// any file that one of them has signed (`braze sign`).
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

struct PackageOptions {
  /// A .safetensors file, or the .json index of several, in place of the package's weights.
  std::string weights = {};
  /// Takes code from a file that others can write. Only for files whose maker you trust and know by
  /// other means.
  bool trust_any_owner = false;
  /// Public keys, or folders of them. If any are named, here or else by the environment variable
  /// BRAZE_TRUST_KEYS, the package must be signed by one of them; who owns the file, or can write
  /// it, then plays no part.
  std::vector<std::string> trust_keys = {};
};

/// An input or output of a packaged function.
struct PackagedTensor {
  std::string name;                ///< as in the graph
  DType dtype = DType::F32;        ///< of the elements
  std::vector<std::string> shape;  ///< extents, "64" or in symbols: "n", "4*n"
  /// "f32[n, 64]".
  std::string type() const;
};

/// The code of a function for one kind of machine.
struct PackagedVariant {
  std::string target;  ///< "x86-64-v3", "sm_90a"
  std::string format;  ///< "image", "cubin", "ptx"
};

/// A function that is ready on a device. A cheap handle; may be called from any thread.
class LoadedFunction {
 public:
  /// One call: arguments in the order of `PackagedFunction::inputs`. Enqueues, as Executable::run.
  /// InvalidArgument if one does not fit.
  std::vector<Array> run(std::span<const Array> arguments) const;
  template <class... Arrays>
  std::vector<Array> operator()(const Arrays&... arguments) const {
    const Array all[sizeof...(arguments) + 1] = {arguments...};  // no array has length 0
    return run(std::span(all).first(sizeof...(arguments)));
  }

  Device device() const;  ///< where it runs
  /// What a call with these arguments will allocate.
  MemoryPlan memory_plan(std::span<const Array> arguments) const;
  /// The code that was chosen for the device.
  const PackagedVariant& variant() const;

  struct State;
  explicit LoadedFunction(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const std::shared_ptr<const State>& state() const { return state_; }  ///< for Braze itself

 private:
  std::shared_ptr<const State> state_;
};

/// One function of a package. A cheap handle, which keeps the package.
class PackagedFunction {
 public:
  const std::string& name() const;  ///< as in the graph
  /// What a call takes: the inputs that no weight is bound to.
  std::vector<PackagedTensor> inputs() const;
  std::vector<PackagedTensor> outputs() const;  ///< in the order of results
  /// Sizes that a call decides, with their range: "n: 1..64".
  std::vector<std::string> symbols() const;
  std::vector<PackagedVariant> variants() const;  ///< one a machine it is compiled for

  /// Loads the code that suits `device` best, and the weights: on a CPU they stay in the mapped
  /// file, elsewhere they are copied. Unsupported, with what there is, if no code runs there;
  /// InvalidArgument or DataLoss if a weight is missing or of another type.
  LoadedFunction load(const Device& device = default_device()) const;
  /// The same with weights at hand, by their names in the package: all of them and no others.
  LoadedFunction load(const Device& device, const std::map<std::string, Array>& weights) const;

  struct State;
  explicit PackagedFunction(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

/// A package file. A cheap handle; may be used from any thread.
class Package {
 public:
  /// Maps a package and checks it. InvalidArgument if it is none, is not to be trusted, or is not
  /// signed by a key that is named; Unsupported for a version that this Braze does not read;
  /// DataLoss if it is damaged.
  static Package load(const std::string& path, PackageOptions options = {});

  std::vector<std::string> functions() const;  ///< their names
  /// The function of this name; without one, the package's only function. InvalidArgument, with
  /// those there are, if there is none.
  PackagedFunction function(std::string_view name = {}) const;
  /// What is known of its making: names and values.
  std::vector<std::pair<std::string, std::string>> facts() const;

  struct State;
  explicit Package(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const std::shared_ptr<const State>& state() const { return state_; }  ///< for Braze itself

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace braze
