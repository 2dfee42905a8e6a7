// graph.h — graphs without the builder: made node by node, printed, read, checked.
//
//   Graph graph("scale");
//   NodeId x = build::input(graph, "x", {DType::F32, Shape{Expr(4)}});
//   graph.set_outputs({{build::map(graph, ElementwiseOp::neg, {x}), "y"}});
//   std::string text = to_text(graph);                   // docs/ir/graph.md has its grammar
//   Program program = compile(parse_graph(text, "scale.braze"), Device("cpu").target());
//
// What these headers declare is Braze's own language of graphs. Unlike the rest of the public
// headers it may change with any release; the text changes only as docs/reference/compatibility.md
// says.
#pragma once

#include "ir/graph/build.h"
#include "ir/graph/graph.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
