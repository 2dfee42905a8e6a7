// prepared_call.h — a call of an Executable that has its memory and is not submitted yet. All parts
// of a call on several devices are prepared before any of them is submitted.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "braze/executable.h"
#include "ir/program/program.h"
#include "runtime/execution/work_queue.h"
#include "runtime/mesh/together.h"

namespace braze {

struct PreparedCall {
  std::shared_ptr<Work> work;
  std::vector<Array> arguments, results;
};

/// Loads the program's code and constants on a device, whose places along the program's axes of the
/// mesh are `places`.
Executable load_on_mesh(std::shared_ptr<const Program> program, const Device& device,
                        std::vector<int64_t> places);

/// The node and the user's line of a launch that computes one node, or of one of its members.
ErrorContext context_of(const Program& program, const Launch& launch, size_t member = 0);

/// Prepares a call. If it throws, nothing has happened.
PreparedCall prepare_call(const Executable& executable, std::span<const Array> arguments);
/// Sets the object that does the call's collectives. Must be called before the call is submitted.
void join_call(const PreparedCall& prepared, std::shared_ptr<Together> together);
/// Throws if an argument has been donated since the call was prepared.
void check_arguments(const PreparedCall& prepared);
/// Submits the call. If the device has a background thread, that thread is woken.
void submit_call(const PreparedCall& prepared);
/// Releases everything that a call holds which will not be submitted.
void drop_call(const PreparedCall& prepared) noexcept;

}  // namespace braze
