// package.h — the state to which the handles of braze/package.h refer.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "braze/package.h"
#include "ir/program/package.h"
#include "runtime/io/mapped_file.h"
#include "runtime/io/safetensors.h"
#include "runtime/io/signature.h"

namespace braze {

namespace codes {
inline constexpr Code kNoFunction{"no-function", ErrorKind::InvalidArgument,
                                  "A package has no function of this name."};
inline constexpr Code kNoVariant{"no-variant", ErrorKind::Unsupported,
                                 "A package holds no code that runs on this device."};
inline constexpr Code kMissingWeight{"missing-weight", ErrorKind::InvalidArgument,
                                     "A weight of a packaged function is not given."};
inline constexpr Code kWeightType{"weight-type", ErrorKind::InvalidArgument,
                                  "A weight has another type than the function's input."};
}  // namespace codes

struct Package::State {
  State(std::shared_ptr<const MappedFile> mapped, PackageOptions chosen)
      : file(std::move(mapped)),
        options(std::move(chosen)),
        reader(split_signature(file->bytes()).content, file->path()) {}

  /// The file of the weights, which is opened at its first use.
  std::shared_ptr<const SafetensorsFile> weights() const;

  const std::shared_ptr<const MappedFile> file;
  const PackageOptions options;
  const PackageReader reader;

 private:
  std::shared_ptr<const SafetensorsFile> open_weights() const;

  mutable std::mutex mutex_;
  mutable std::shared_ptr<const SafetensorsFile> weights_;
};

struct PackagedFunction::State {
  std::shared_ptr<const Package::State> package;
  const PackageReader::Function* function = nullptr;  // in the package

  /// One of its programs, which all have the same inputs and outputs. It is read at its first use.
  const Program& signature() const;

  mutable std::mutex mutex;
  mutable std::optional<Program> read;
};

struct LoadedFunction::State {
  Executable executable;
  PackagedVariant variant;
  std::vector<Array> bound;  // by input of the program; empty if a call gives it
};

/// Throws kWeightType unless a tensor of this type can be the value of `input`. `holder` says where
/// the tensor comes from.
void check_weight(const std::string& weight, const ProgramInput& input, DType dtype,
                  const std::vector<int64_t>& shape, std::string_view holder);

/// The reader of a package, for tools that inspect it.
const PackageReader& reader_of(const Package& package);

}  // namespace braze
