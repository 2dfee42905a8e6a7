// origins.h — nodes that know by number which node of a source graph they came from.
//
// Where the user's lines are decides nothing about a program, so a program that is kept must not
// hold them: a blank line in a file would make all that is kept useless. The compiler therefore
// works on nodes that name their *origin*, the number of a node of the source, in place of a line.
// Passes hand it on as they hand on locations, and it prints as "node:12". Who shows a text to
// people puts the lines of the source at hand in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// `graph` with the same nodes, each at its own number in place of its location.
Graph with_origins(const Graph& graph);

/// The number that `with_origins` put into this location; nullopt for other locations.
std::optional<uint32_t> origin_of(const SourceLocation& location);

/// The locations of all nodes, in order.
std::vector<SourceLocation> locations_of(const Graph& graph);

/// `graph` with nodes at the location of their origin, by its number. Nodes without an origin stay
/// where they are; an origin that is not among `locations` is no place.
Graph with_locations(const Graph& graph, std::span<const SourceLocation> locations);

/// `text` with " at node:12" at the end of a line replaced by " at model.cpp:7", or by nothing
/// where no place is known.
std::string with_locations(std::string_view text, std::span<const SourceLocation> locations);

}  // namespace braze
