// json.cpp — JSON, as headers of other formats hold it.
#include "runtime/io/json.h"

#include <vector>

#include "ir/support/utf8.h"
#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = true;

namespace {

using braze::JsonReader;

// The names of an object's members, escapes resolved.
std::vector<std::string> read_names(std::string_view text) {
  std::vector<std::string> names;
  JsonReader reader(text, "input");
  reader.object([&](std::string name) {
    names.push_back(std::move(name));
    reader.skip();
  });
  reader.finish();
  return names;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braze;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool sound = fuzz::accepts([&] {
    JsonReader reader(text, "input");
    reader.skip();
    reader.finish();
  });
  std::vector<std::string> names;
  const bool object = fuzz::accepts([&] { names = read_names(text); });
  if (object && !sound) fuzz::stop("a malformed text was read", text);
  if (!object) return 0;
  std::string written = "{";
  for (const std::string& name : names) {
    if (!is_utf8(name)) fuzz::stop("a name that is not UTF-8", name);
    written += (written.size() > 1 ? "," : "") + json_string(name) + ":0";
  }
  if (read_names(written + "}") != names) fuzz::stop("reading changes what was written", written);
  return 0;
}
