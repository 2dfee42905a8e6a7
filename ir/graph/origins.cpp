#include "ir/graph/origins.h"

#include <charconv>
#include <functional>

#include "ir/support/text.h"

namespace braze {

namespace {

constexpr std::string_view kFile = "node", kMark = " at node:";

Graph relocated(const Graph& graph, const std::function<SourceLocation(size_t)>& location) {
  Graph out(graph.name());
  for (size_t i = 0; i < graph.size(); ++i) {
    Node node = graph[NodeId(i)];
    node.location = location(i);
    out.add(std::move(node));
  }
  BRAZE_CHECK(out.size() == graph.size(), "the nodes of a graph are all different");
  out.set_outputs(graph.outputs());
  return out;
}

SourceLocation location_of(uint32_t origin, std::span<const SourceLocation> locations) {
  return origin < locations.size() ? locations[origin] : SourceLocation();
}

// The line; if it ends with an origin, this is replaced by the location.
std::string located(std::string_view line, std::span<const SourceLocation> locations) {
  const std::optional<uint32_t> origin = origin_of(line);
  if (!origin) return std::string(line);
  std::string out(line.substr(0, line.rfind(kMark)));
  if (const SourceLocation location = location_of(*origin, locations))
    return out + " at " + location.to_string();
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

}  // namespace

Graph with_origins(const Graph& graph) {
  SourceLocation location(kFile, 0, 0);
  return relocated(graph, [&](size_t i) {
    location.line = static_cast<uint32_t>(i);
    return location;
  });
}

std::optional<uint32_t> origin_of(const SourceLocation& location) {
  if (!location || location.file != kFile) return std::nullopt;
  return location.line;
}

std::optional<uint32_t> origin_of(std::string_view line) {
  const size_t mark = line.rfind(kMark);
  if (mark == std::string_view::npos) return std::nullopt;
  uint32_t origin = 0;
  const char* const end = line.data() + line.size();
  const auto [rest, error] = std::from_chars(line.data() + mark + kMark.size(), end, origin);
  return error == std::errc() && rest == end ? std::optional(origin) : std::nullopt;
}

std::vector<SourceLocation> locations_of(const Graph& graph) {
  std::vector<SourceLocation> locations;
  locations.reserve(graph.size());
  for (size_t i = 0; i < graph.size(); ++i) locations.push_back(graph[NodeId(i)].location);
  return locations;
}

Graph with_locations(const Graph& graph, std::span<const SourceLocation> locations) {
  return relocated(graph, [&](size_t i) {
    const SourceLocation& location = graph[NodeId(i)].location;
    const std::optional<uint32_t> origin = origin_of(location);
    return origin ? location_of(*origin, locations) : location;
  });
}

std::string with_locations(std::string_view text, std::span<const SourceLocation> locations) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += located(text.substr(begin, end - begin), locations);
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

}  // namespace braze
