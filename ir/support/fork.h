// fork.h — tells whether this process was forked, because a forked child can do only a part of its
// work.
//
// fork() copies memory but not threads. A child has the locks, queues and thread pools of its
// parent as they were at that moment, but no threads that serve them, so waiting for them would
// never end. If a process used devices and then forks, its child gets an error when it uses a
// device, and destroys objects without waiting.
#pragma once

#include "braze/error.h"

namespace braze {

namespace codes {
inline constexpr Code kForkedChild{
    "forked-child", ErrorKind::Device,
    "A process uses Braze, but was forked from one that had already used it."};
}  // namespace codes

/// Says that this process has, from now on, threads or other objects that a fork does not copy.
void note_threads();

/// Whether this process was forked from one that had called `note_threads`. It costs one load.
bool is_forked() noexcept;

/// Throws kForkedChild if `is_forked()`.
void refuse_if_forked();

/// The number of forks between the first ancestor that called this or `note_threads` and this
/// process.
int fork_count();

}  // namespace braze
