// key.cpp — braze key: makes a pair of keys. braze sign: signs a package, so that it shows who made
// it.
#include <fmt/format.h>

#include <filesystem>

#include "ir/program/package.h"
#include "runtime/io/file_writer.h"
#include "runtime/io/signature.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/files.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

// --- key ----------------------------------------------------------------------------------------

struct KeyOptions {
  std::string action, file;
  bool json = false;
};

Exit make_key(const KeyOptions& options) {
  if (options.action != "new")
    fail_usage(fmt::format("{} is not an action; the only action is new", options.action));
  const SecretKey key = SecretKey::generate();
  blame(Exit::BadFile, [&] { key.write(options.file); });
  const std::string public_file = options.file + ".pub", text = key.public_key().to_string();
  if (options.json) {
    json::print({{"secret_key", json::string(options.file)},
                 {"public_key", json::string(public_file)},
                 {"key", json::string(text)}});
    return Exit::Ok;
  }
  fmt::print(
      "{}: the secret key, which signs; keep it to yourself\n{}: the public key, for those who "
      "trust you\n  {}\n",
      options.file, public_file, text);
  return Exit::Ok;
}

std::function<Exit()> add_key(Arguments& arguments) {
  auto options = std::make_shared<KeyOptions>();
  arguments.add_option("ACTION", options->action, "new: make a pair of keys")
      .required()
      .offers({"new"});
  arguments
      .add_option("KEYFILE", options->file, "Secret key to write; the public key is KEYFILE.pub")
      .required();
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return make_key(*options); };
}

// --- sign ---------------------------------------------------------------------------------------

struct SignOptions {
  std::string package, key, output;
  bool json = false;
};

// Checks all of a package, because a damaged one must not be signed.
void read_whole(std::span<const std::byte> bytes, const std::string& path) {
  const PackageReader reader(bytes, path);
  reader.weight_bytes();
  for (const PackageReader::Function& function : reader.functions())
    for (const PackageReader::Variant& variant : function.variants) reader.program(variant);
}

mode_t permissions_of(const std::string& path) {
  std::error_code error;
  return static_cast<mode_t>(std::filesystem::status(path, error).permissions());
}

Exit sign(const SignOptions& options) {
  const std::string& output = options.output.empty() ? options.package : options.output;
  check_overwrites({{options.key, "holds the secret key"}}, {output});
  const SecretKey key = blame(Exit::BadFile, [&] { return SecretKey::read(options.key); });
  // A package that others can have written must not be signed either.
  const auto file = blame(Exit::BadFile, [&] { return MappedFile::open_trusted(options.package); });
  const auto content = split_signature(file->bytes()).content;
  blame(Exit::BadFile, [&] { read_whole(content, options.package); });
  Signer signer(key);
  signer.append(content);
  // Users who may not read the package may not read the signed one.
  FileWriter writer(output, permissions_of(options.package) & FileWriter::kCode);
  writer.append(content);
  writer.append(signer.finish());
  writer.publish();
  const std::string by = key.public_key().to_string();
  if (options.json)
    json::print({{"package", json::string(output)}, {"signed_by", json::string(by)}});
  else
    fmt::print("{}: signed by {}\n", output, by);
  return Exit::Ok;
}

std::function<Exit()> add_sign(Arguments& arguments) {
  auto options = std::make_shared<SignOptions>();
  arguments
      .add_option("PACKAGE", options->package, "The .bzp file; an earlier signature is replaced")
      .required();
  arguments.add_option("--key", options->key, "Secret key, made by `braze key new`").required();
  arguments.add_option("-o,--output", options->output,
                       "File to write (default: replace the package)");
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return sign(*options); };
}

}  // namespace

const Command kKey = {"key", "Makes a pair of keys for packages and cache entries.",
                      "  braze key new release.key        # also makes release.key.pub\n", add_key};

const Command kSign = {"sign", "Signs a package, so that those who have the public key trust it.",
                       "  braze sign digits.bzp --key release.key\n"
                       "  braze-run digits.bzp --trust-key release.key.pub\n",
                       add_sign};

}  // namespace braze::tool
