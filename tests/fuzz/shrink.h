// shrink.h — the smallest case that still fails, found by trying smaller ones.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace braze::fuzz {

/// A graph and what it is called with.
struct Case {
  Graph graph;
  std::vector<HostTensor> inputs;
};

/// A smaller case for which `fails` still holds, as it does for `failing`: fewer outputs and nodes,
/// smaller extents, plainer numbers. `fails` should hold for one kind of failure only, and may
/// throw, which counts as false.
Case shrink(Case failing, const std::function<bool(const Case&)>& fails);

/// The case as one graph without inputs, in text: what goes into a file or a bug report.
std::string reproducer(const Case& failing);

}  // namespace braze::fuzz
