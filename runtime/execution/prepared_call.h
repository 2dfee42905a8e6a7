// prepared_call.h — a call of an Executable that has its memory and is not submitted yet. All parts
// of a call on several devices are prepared before any of them is submitted.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "braze/executable.h"
#include "runtime/execution/work_queue.h"
#include "runtime/mesh/together.h"

namespace braze {

struct PreparedCall {
  std::shared_ptr<Work> work;
  std::vector<Array> arguments, results;
};

/// The program's code and constants on a device, which stands at `places` along the program's axes
/// of the mesh.
Executable load_on_mesh(std::shared_ptr<const Program> program, const Device& device,
                        std::vector<int64_t> places);

/// If it throws, nothing has happened.
PreparedCall prepare_call(const Executable& executable, std::span<const Array> arguments);
/// Before it is submitted: what its collectives are done by.
void join_call(const PreparedCall& prepared, std::shared_ptr<Together> together);
/// Throws if an argument was donated meanwhile.
void check_arguments(const PreparedCall& prepared);
/// Enqueues it. If the device has a background thread, that thread is woken.
void submit_call(const PreparedCall& prepared);
/// It will not be submitted: releases what it holds.
void drop_call(const PreparedCall& prepared) noexcept;

}  // namespace braze
