#include "tools/braze/source.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "compiler/loops/emit.h"
#include "compiler/loops/text.h"
#include "compiler/loops/verify.h"
#include "frontend/builder/program_cache.h"
#include "ir/code/text.h"
#include "ir/graph/text.h"
#include "ir/program/container.h"
#include "ir/support/scanner.h"
#include "ir/support/text.h"
#include "runtime/io/mapped_file.h"
#include "runtime/io/open_file.h"
#include "tools/braze/command.h"
#include "tools/braze/model.h"
#include "tools/braze/package.h"

namespace braze::tool {

namespace {

namespace codes {
inline constexpr Code kSourceFile{"source-file", ErrorKind::DataLoss,
                                  "A source file cannot be read."};
inline constexpr Code kNoSource{"no-source", ErrorKind::InvalidArgument,
                                "A package was given where text is needed."};
inline constexpr Code kGraphOnly{"graph-only", ErrorKind::Unsupported,
                                 "The command works on graph text only."};
}  // namespace codes

constexpr std::string_view kStdin = "-";

std::string read_text(const std::string& path) {
  errno = 0;
  const auto all = [](std::istream& stream) {
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  if (path == kStdin) return all(std::cin);
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOENT) fail_open(path, errno);
  // A folder can be opened, and fails when it is read.
  if (!file || file.peek() == std::ifstream::traits_type::eof())
    fail(codes::kSourceFile, fmt::format("{} cannot be read: {}", quote(path),
                                         errno ? std::strerror(errno) : "the file is empty"));
  return all(file);
}

std::string read_trusted_text(const std::string& path) {
  const auto file = MappedFile::open_trusted(path);
  const auto* begin = reinterpret_cast<const char*>(file->bytes().data());
  return {begin, file->bytes().size()};
}

// "graph", "loops", "tile", "kernel". The parser of graphs refuses everything else.
std::string_view language_of(std::string_view text, const std::string& path) {
  Scanner scanner(text, path);
  if (scanner.next().text != "braze" || scanner.next().text != "1") return "graph";
  return scanner.peek().text;
}

bool is_code(std::string_view text, const std::string& path) {
  const std::string_view language = language_of(text, path);
  return language == "loops" || language == "tile" || language == "kernel";
}

void refuse_package(std::string_view text, const std::string& path) {
  if (!text.starts_with(kContainerMagic)) return;
  if (path == kStdin)
    fail(codes::kNoSource, "stdin holds a package, but a package must be in a file",
         {.fix = "write it to a file, and give its path to `braze run` or `braze inspect`"});
  fail(codes::kNoSource, fmt::format("{} is a package, which is already compiled", quote(path)),
       {.fix = "use `braze run` or `braze inspect` for packages"});
}

TileProgram emitted(const LoopTree& tree) {
  fail_if_any(verify(tree), fmt::format("the loop tree {}", quote(tree.name)));
  return emit(tree);
}

Source parse_source(const std::string& text, const std::string& path) {
  refuse_package(text, path);
  const std::string_view language = language_of(text, path);
  if (language == "loops") return emitted(parse_loops(text, path));
  if (language == "tile") return parse_tile(text, path);
  if (language == "kernel") return parse_kernel(text, path);
  return parse_graph(text, path);
}

}  // namespace

Source read_source(const std::string& path) {
  if (is_model(path)) return Graph(ModelFlags{}.load(path).graph());
  return blame(Exit::BadFile, [&] { return parse_source(read_text(path), path); });
}

Source read_runnable_source(const std::string& path, bool trust_any_owner) {
  if (is_model(path)) return read_source(path);
  return blame(Exit::BadFile, [&] {
    const std::string text = read_text(path);
    refuse_package(text, path);
    if (trust_any_owner || path == kStdin || !is_code(text, path)) return parse_source(text, path);
    // The file is read again through the descriptor that was checked, because the path may lead
    // elsewhere by now.
    return parse_source(read_trusted_text(path), path);
  });
}

Graph read_graph(const std::string& path, std::string_view command, std::string* text) {
  if (is_model(path)) {
    const std::string graph = std::filesystem::path(path).stem().string() + ".braze";
    fail(
        codes::kGraphOnly,
        fmt::format("{} is a model, and `braze {}` works on graph text only", quote(path), command),
        {.fix = fmt::format("convert it: braze import {} -o {}; then braze {} {}", path, graph,
                            command, graph)});
  }
  Source source = blame(Exit::BadFile, [&] {
    const std::string all = read_text(path);
    if (text) *text = all;
    return parse_source(all, path);
  });
  if (auto* graph = std::get_if<Graph>(&source)) return std::move(*graph);
  fail(codes::kGraphOnly,
       fmt::format("{} is not a graph, and `braze {}` works on graphs only", quote(path), command));
}

Program compile_source(const Source& source, const Target& target, const CompileOptions& options) {
  return blame(Exit::Compile, [&] {
    return std::visit([&](const auto& code) { return compile(code, target, options); }, source);
  });
}

std::shared_ptr<const Program> cached_source(const Source& source, const Target& target,
                                             const CompileOptions& options) {
  return blame(Exit::Compile, [&] {
    return std::visit([&](const auto& code) { return cached_program(code, target, options); },
                      source);
  });
}

}  // namespace braze::tool
