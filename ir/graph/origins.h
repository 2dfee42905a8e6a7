// origins.h — nodes that store the number of the node of a source graph from which they were made.
//
// A program in a cache must not contain the line numbers of the user's source, because they do not
// change what the program does: otherwise a blank line in a file would make all cached programs
// useless. The compiler therefore works on nodes that have an *origin*, the number of a node of the
// source graph, in place of a line. Passes keep origins in the same way as locations, and an origin
// prints as "node:12". Where a text is shown to people, the lines of the present source replace it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// `graph`, where each node has its own number in place of its location.
Graph with_origins(const Graph& graph);

/// The number that `with_origins` put into this location; nullopt for other locations.
std::optional<uint32_t> origin_of(const SourceLocation& location);

/// The number in the " at node:12" at the end of a line; nullopt for other lines.
std::optional<uint32_t> origin_of(std::string_view line);

/// The locations of all nodes, in order.
std::vector<SourceLocation> locations_of(const Graph& graph);

/// `graph`, where each node has the location of its origin. Nodes without an origin keep their
/// location. An origin that is not among `locations` becomes an unknown location.
Graph with_locations(const Graph& graph, std::span<const SourceLocation> locations);

/// `text`, where " at node:12" at the end of a line is replaced by " at model.cpp:7", or removed if
/// no location is known.
std::string with_locations(std::string_view text, std::span<const SourceLocation> locations);

}  // namespace braze
