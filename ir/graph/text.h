// text.h — Graph IR as text: exact both ways. docs/ir/graph.md has the grammar.
//
// Values have their label as a name, or a number. A broadcast of a scalar is not written if only
// map ops use it: an operand of rank 0 of a map op stands for its broadcast to the shape of the
// result.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/support/scanner.h"

namespace braze {

struct GraphTextOptions {
  bool locations = false;  ///< add `loc("file":line)` to every node that has a location
};

/// Prints one graph, and keeps the names that it gave, so that reports and dumps use the same
/// names.
class GraphPrinter {
 public:
  explicit GraphPrinter(const Graph& graph, GraphTextOptions options = {});

  /// The whole text, with its header.
  std::string graph() const;
  /// The line of one node: "%2 = add %x, %y : f32[4]". The graph may be one that `verify` rejects.
  std::string node(NodeId id) const;
  /// The name of a node's value in the text: "%x".
  std::string value(NodeId id) const;

 private:
  const Graph& graph_;
  GraphTextOptions options_;
  std::vector<std::string> names_;  // of each node, without %
  std::vector<bool> implicit_;      // of each node: a broadcast that is not written
};

std::string to_text(const Graph& graph, GraphTextOptions options = {});

/// Reads the text that `to_text` writes. `text` is untrusted: the result is a sound graph, or an
/// Error that names the line, and the memory that is used is at most a small multiple of the text's
/// size. A node's location is its line in the text, unless it has a `loc`.
Graph parse_graph(std::string_view text, std::string_view file_name);

/// The declaration of a symbol in all languages: "symbol n: 1..64%8".
std::string symbol_text(const Expr& symbol);
/// Reads "n: 1..64%8", which follows the word `symbol`.
Expr parse_symbol(Scanner& scanner);
/// The declaration of an axis of a mesh, with its number of devices: "mesh data: 4".
std::string mesh_axis_text(const MeshAxis& axis);
/// Reads "data: 4", which follows the word `mesh`.
MeshAxis parse_mesh_axis(Scanner& scanner);
/// Reads "f32[n, 64]"; `lookup` as for parse_expr.
TensorType parse_type(Scanner& scanner, const std::function<Expr(std::string_view)>& lookup);

}  // namespace braze
