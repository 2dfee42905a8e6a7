// graph.h — graphs without the builder: making them node by node, printing, parsing and checking.
//
//   Graph graph("scale");
//   NodeId x = build::input(graph, "x", {DType::F32, Shape{Expr(4)}});
//   graph.set_outputs({{build::map(graph, ElementwiseOp::neg, {x}), "y"}});
//   std::string text = to_text(graph);                   // docs/ir/graph.md has its grammar
//   Program program = compile(parse_graph(text, "scale.braze"), Device("cpu").target());
//
// These headers declare the data structures that Braze itself uses. Unlike the other public headers
// they may change with any release. The text changes only as docs/reference/compatibility.md says.
#pragma once

#include "ir/graph/build.h"
#include "ir/graph/graph.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
