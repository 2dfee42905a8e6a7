// flatten_updates.h — an update of an input that is computed in another shape stays in place.
//
// A part of several axes is put into an array along one axis, into which those axes are merged:
// y = reshape(scatter(reshape(x), places, part)). Then y is not x with other elements, but a copy
// of it. A shape says nothing about memory, though, so x may as well be given in the merged shape.
#pragma once

#include <optional>

#include "ir/graph/graph.h"

namespace braze {

/// For each output that updates an input and is a reshape of a value v, where v's shape is one in
/// which the input is read: the input has that shape, and the output is v. Nullopt if there is no
/// such output. Inputs and outputs whose shape has changed still have the same elements in the same
/// order. Inputs whose shape has symbols stay as they are.
std::optional<Graph> flatten_updates(const Graph& graph);

}  // namespace braze
