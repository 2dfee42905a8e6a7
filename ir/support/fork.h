// fork.h — what a process that was forked may still do.
//
// fork() copies memory but not threads. A child has the locks, queues and thread pools of its
// parent as they were at that moment, and nobody to serve them: to wait for them is to hang. So a
// child of a process that used devices gets an error where it would use one, and what it destroys
// it destroys without waiting.
#pragma once

#include "braze/error.h"

namespace braze {

namespace codes {
inline constexpr Code kForkedChild{
    "forked-child", ErrorKind::Device,
    "A process uses Braze, but was forked from one that had already used it."};
}  // namespace codes

/// Says that this process has, from now on, what does not outlive a fork.
void note_threads();

/// Whether this process was forked from one that had called `note_threads`. One load.
bool is_forked() noexcept;

/// Throws kForkedChild if so.
void refuse_if_forked();

/// The forks that lie between this process and the first ancestor that called this or
/// `note_threads`.
int fork_count();

}  // namespace braze
