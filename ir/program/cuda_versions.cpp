#include "ir/program/cuda_versions.h"

#include <algorithm>
#include <string_view>

#include "ir/support/text.h"

namespace braze {

namespace {

struct Release {
  std::string_view ptx, cuda, driver;
};

// PTX versions, CUDA releases and driver branches, from the release notes of the PTX ISA and of the
// CUDA toolkits (docs.nvidia.com/cuda).
constexpr Release kReleases[] = {
    {"7.4", "11.4", "470"}, {"7.5", "11.5", "495"}, {"7.6", "11.6", "510"}, {"7.7", "11.7", "515"},
    {"7.8", "11.8", "520"}, {"8.0", "12.0", "525"}, {"8.1", "12.1", "530"}, {"8.2", "12.2", "535"},
    {"8.3", "12.3", "545"}, {"8.4", "12.4", "550"}, {"8.5", "12.5", "555"}, {"8.6", "12.7", "565"},
    {"8.7", "12.8", "570"}, {"8.8", "12.9", "575"}, {"9.0", "13.0", "580"}, {"9.1", "13.1", "590"},
};

// The PTX version in the directive of a text: "8.1" for ".version 8.1".
std::string_view ptx_version(std::string_view ptx) {
  constexpr std::string_view kDirective = ".version ";
  const size_t at = ptx.find(kDirective);
  if (at == ptx.npos) return {};
  ptx.remove_prefix(at + kDirective.size());
  return ptx.substr(0, ptx.find_first_not_of("0123456789."));
}

const Release* release_of(std::string_view ptx) {
  const auto* found = std::ranges::find(kReleases, ptx, &Release::ptx);
  return found == std::end(kReleases) ? nullptr : found;
}

// The CUDA release at the end of an assembler's name: "13.0" of "ptxas 13.0".
std::string_view release_in(std::string_view maker) {
  const size_t at = maker.find_last_of(' ');
  const std::string_view last = at == maker.npos ? maker : maker.substr(at + 1);
  return last.find_first_not_of("0123456789.") == last.npos ? last : std::string_view();
}

}  // namespace

std::string minimum_driver(const Program& program) {
  const Release* newest = nullptr;
  std::string_view assembler;
  for (const Artifact& artifact : program.artifacts) {
    if (artifact.format == "cubin") assembler = release_in(artifact.maker);
    if (artifact.format != "ptx") continue;
    const std::string_view version = ptx_version(artifact.code);
    const Release* release = release_of(version);
    if (!release) return fmt::format("of PTX {}", version);
    newest = newest ? std::max(newest, release) : release;
  }
  if (newest) return fmt::format("CUDA {} ({})", newest->cuda, newest->driver);
  if (assembler.empty()) return "";
  return fmt::format("CUDA {}", assembler.substr(0, assembler.find('.')));
}

}  // namespace braze
