// host_speeds.h — measures how fast this host computes and moves bytes, for reports.
#pragma once

namespace braze {

/// The f32 operations per second of this number of threads, with vectors of `vector_bytes` in
/// registers. A multiply-add counts as two. Takes about 10 ms.
double measure_host_flops(int threads, int vector_bytes);

/// The least time in seconds in which this number of threads together reads `read` bytes and writes
/// `written` other bytes, repeatedly, so that data that fits the caches is in the caches.
/// `far_bytes` of memory exceed all caches; for as many bytes or more, a part of them is moved
/// outside of all caches, and the time is extrapolated in proportion. 0 if there is not enough
/// memory. Takes about a tenth of a second, or for fewer bytes, if that is longer, some ten times
/// as long as to move them once.
double measure_host_moves(int threads, double read, double written, double far_bytes);

}  // namespace braze
