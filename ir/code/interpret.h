// interpret.h — runs tile programs and kernels over host memory, and checks their promises.
//
// One engine serves both languages: a value is an array of elements, and a statement is compiled
// once to a step over whole arrays. Machine rows have the meaning of ir/ops/machine_semantics.h,
// other rows that of their bodies, and folds use the order of the language page. A tile program,
// its kernel and the code made from it therefore agree bit for bit.
//
// Instances run one after the other, in order. To find faults that only other orders would show,
// the engine notes, for every element, which instances read and wrote it in this phase.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/error.h"
#include "ir/code/code.h"

namespace braze {

namespace codes {
inline constexpr Code kOutOfBounds{"out-of-bounds", ErrorKind::Device,
                                   "An access is outside of its tensor or buffer."};
inline constexpr Code kUninitialisedRead{"uninitialised-read", ErrorKind::Device,
                                         "An element is read before it is written."};
inline constexpr Code kInstanceRace{
    "instance-race", ErrorKind::Device,
    "Two instances of a phase access one element, and at least one of them writes it."};
inline constexpr Code kStoredTwice{"stored-twice", ErrorKind::Device,
                                   "Two elements of one store have the same address."};
inline constexpr Code kMisaligned{
    "misaligned", ErrorKind::Device,
    "An address does not have the alignment that the program states."};
inline constexpr Code kNotWritten{"not-written", ErrorKind::Device,
                                  "A kernel leaves elements of an output unwritten."};
inline constexpr Code kBadLaunch{"bad-launch", ErrorKind::Device,
                                 "A launch passes memory or scalars that the kernel cannot take."};
inline constexpr Code kProtocol{
    "protocol", ErrorKind::Device,
    "The roles of a program break a rule about channels, tokens, dots or stores."};
inline constexpr Code kNotForCpu{"not-for-cpu", ErrorKind::Unsupported,
                                 "A kernel for a GPU was given to the interpreter for CPUs."};
}  // namespace codes

/// A program compiled for interpretation.
class CodeInterpreter {
 public:
  /// `code` must be sound (see verify) and outlive this.
  explicit CodeInterpreter(const KernelCode& code);
  ~CodeInterpreter();

  /// Runs all phases. `memories` are those of the tensor parameters in order; workspaces may
  /// follow, otherwise they are made. The memories of all members follow one another. `scalars` are
  /// the size symbols in order, unless the code states the sizes of each member, and then the
  /// scalar parameters, with their bits zero-extended. Returns the findings in the order in which
  /// they happened, one for each statement and cause. If there are any, the results have no
  /// meaning.
  std::vector<Diagnostic> run(std::span<const std::span<std::byte>> memories,
                              std::span<const int64_t> scalars);

  class Engine;  ///< interpret_p.h

 private:
  const std::unique_ptr<Engine> engine_;
};

/// Calls `run` with the memories and the scalars of each member of a kernel, until there are
/// findings. It is also a finding if members depend on each other.
std::vector<Diagnostic> run_members(
    const KernelCode& code, std::span<const std::span<std::byte>> memories,
    std::span<const int64_t> scalars,
    const std::function<std::vector<Diagnostic>(std::span<const std::span<std::byte>>,
                                                std::span<const int64_t>)>& run);

/// A rule between roles that the skeleton of a pipelined program breaks.
struct BrokenRule {
  const Statement* statement = nullptr;
  std::string rule;  ///< "P10"
  std::string message;
};
/// Runs the control flow and index expressions of a pipelined program, without its values, for the
/// given sizes: three instances of each phase, and a few thousand steps of each copy. Loaded values
/// must not decide whether statements run for which others wait (see has_protocol).
std::vector<BrokenRule> run_skeleton(const KernelCode& code, std::span<const int64_t> sizes);
/// Whether a statement is one by which copies of roles depend on each other, or contains one.
bool has_protocol(const Statement& statement);

/// Compiles a program for interpretation and runs it.
std::vector<Diagnostic> run_code(const KernelCode& code,
                                 std::span<const std::span<std::byte>> memories,
                                 std::span<const int64_t> scalars);

}  // namespace braze
