// host_speeds.h — how fast this host computes and moves bytes, found by doing it. For reports.
#pragma once

namespace braze {

/// f32 operations per second of so many threads, multiply-adds counted as two, in registers of
/// `vector_bytes`. Takes about 10 ms.
double measure_host_flops(int threads, int vector_bytes);

/// The least seconds in which so many threads together read `read` bytes and write `written`
/// others, again and again, so that what fits the caches is there. `far_bytes` of memory, and more,
/// are beyond them all: with more bytes than that, the time is in proportion. 0 if there is no
/// memory for it. Takes about 50 ms.
double measure_host_moves(int threads, double read, double written, double far_bytes);

}  // namespace braze
