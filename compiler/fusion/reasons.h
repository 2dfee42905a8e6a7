// reasons.h — the codes of fusion decisions. Every edge of the graph gets one.
#pragma once

#include "braze/error.h"

namespace braze::reasons {

// Fused edges.
inline constexpr Code kFused{
    "fused", ErrorKind::Unsupported,
    "Producer and consumer are one kernel, which is estimated to be faster."};
inline constexpr Code kInlined{
    "inlined", ErrorKind::Unsupported,
    "The producer is only an index map or a cheap body, computed inside the consumer."};
inline constexpr Code kRecomputed{"recomputed", ErrorKind::Unsupported,
                                  "The producer is computed again inside this consumer, which is "
                                  "cheaper than a round trip to memory."};
inline constexpr Code kOfIndices{"of-indices", ErrorKind::Unsupported,
                                 "The producer takes a few operations on indices and constants "
                                 "alone, so each consumer computes it and nothing is stored."};
// Edges that cannot be fused.
inline constexpr Code kPlaced{"placed", ErrorKind::Unsupported,
                              "A reduction that places its terms by loaded indices cannot share "
                              "its kernel with another reduction."};
inline constexpr Code kRunning{
    "running", ErrorKind::Unsupported,
    "A scan can share its kernel only with scans along the same axis in the same direction."};
inline constexpr Code kNestedReduction{
    "nested-reduction", ErrorKind::Unsupported,
    "A reduction would be needed at every step of another reduction's loop."};
inline constexpr Code kDifferentDomain{"different-domain", ErrorKind::Unsupported,
                                       "The two run over different parallel axes."};
inline constexpr Code kIndexMap{
    "index-map", ErrorKind::Unsupported,
    "The consumer reads a reduction through an index map that is not a permutation of axes."};
inline constexpr Code kCollective{"collective", ErrorKind::Unsupported,
                                  "One of the two is a collective of several devices; its operand "
                                  "and its result must be in memory."};
inline constexpr Code kCustomCall{"custom-call", ErrorKind::Unsupported,
                                  "One of the two is a call of a function of the host program; its "
                                  "operands and its result must be in memory."};
inline constexpr Code kCycle{"cycle", ErrorKind::Unsupported,
                             "Fusing would make two kernels wait for each other."};
inline constexpr Code kInlinedSize{
    "inlined-size", ErrorKind::Unsupported,
    "As one kernel, the two would have a very large body, or compute a value in very many places."};
inline constexpr Code kManyTensors{
    "many-tensors", ErrorKind::Unsupported,
    "As one kernel, the two would read and write very many tensors."};
inline constexpr Code kCrowded{"crowded", ErrorKind::Unsupported,
                               "Very many kernels share this value, and only the nearest in the "
                               "graph were tried with each other."};
// Edges whose fusion would be slower.
inline constexpr Code kRecomputeCost{
    "recompute-cost", ErrorKind::Unsupported,
    "Computing the producer again in every consumer costs more than a round trip to memory."};
inline constexpr Code kPacked{
    "packed", ErrorKind::Unsupported,
    "The producer is a factor in the form in which the matrix units read it from memory."};
inline constexpr Code kParallelism{
    "parallelism", ErrorKind::Unsupported,
    "The fused kernel has too few independent instances to fill the machine."};
inline constexpr Code kCost{
    "cost", ErrorKind::Unsupported,
    "The fused kernel is estimated to be slower than the two kernels apart."};
inline constexpr Code kDelaysCollective{
    "delays-collective", ErrorKind::Unsupported,
    "As one kernel, the two would make a collective, or what reads the other results, wait for a "
    "collective that it does not need."};
inline constexpr Code kNotAsked{"not-asked", ErrorKind::Unsupported,
                                "Fusion is switched off for this compilation."};
// Edges that are not between kernels.
inline constexpr Code kEmpty{"empty", ErrorKind::Unsupported,
                             "One of the two has no elements, so there is nothing to compute."};
inline constexpr Code kFromInput{"input", ErrorKind::Unsupported,
                                 "The producer is an input or a constant."};
inline constexpr Code kWaits{"waits", ErrorKind::Unsupported,
                             "The consumer waits for the producer, but reads nothing of it."};

}  // namespace braze::reasons
