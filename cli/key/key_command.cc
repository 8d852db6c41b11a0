// `baton key new`: makes an API key and prints it once, with the line for the tenants file.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "common/base/quote.h"
#include "router/api_key.h"
#include "router/tenants_file.h"

namespace baton::cli {
namespace {

constexpr char kExamples[] = R"(
Examples:
  baton key new --tenant search
  baton key new --tenant search --key-file search.key
      the key goes into the file (readable by you alone), and only the tenants file's lines to the screen

The router keeps a digest, so a lost key can't be found again: make a new one and remove the old line.)";

int New(const std::string& tenant, const std::string& key_file) {
  // A name that the router refuses would be found out when it reads the file.
  if (const absl::Status named = router::CheckTenantName(tenant); !named.ok()) {
    return Misused(fmt::format("--tenant: {} {}", Quoted(tenant), std::string(named.message())));
  }
  const router::NewApiKey made = router::MakeApiKey();
  const std::string line = fmt::format("{{\"id\": \"{}\", \"sha256\": \"{}\"}}", made.id, made.sha256);
  if (key_file.empty()) {
    fmt::print("The key, shown only now; give it to the caller:\n\n  {}\n\n", made.key);
  } else {
    const std::string text = made.key + "\n";
    const int file = open(key_file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return Fail(fmt::format("{}: can't be made, or is there already", key_file));
    const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (close(file) != 0 || !written) return Fail(fmt::format("{}: can't be written", key_file));
    fmt::print("The key is in {}.\n\n", key_file);
  }
  fmt::print("For the router's --tenants file, among the tenant's \"keys\":\n\n  {}\n\n", line);
  fmt::print("or, for a file that doesn't have the tenant yet:\n\n");
  fmt::print("  {{\"tenants\": [{{\"name\": \"{}\", \"keys\": [{}]}}]}}\n", tenant, line);
  return kExitOk;
}

}  // namespace

Command AddKey(CLI::App& root, const Surroundings& surroundings) {
  CLI::App* key = root.add_subcommand("key", "Make API keys for callers");
  key->require_subcommand(1);
  CLI::App* make = key->add_subcommand("new", "Make a key and print the line for the tenants file");
  make->footer(kExamples);
  struct Flags {
    std::string tenant;
    std::string key_file;
  };
  auto flags = std::make_shared<Flags>();
  make->add_option("--tenant", flags->tenant, "Whose key it is")->required();
  make->add_option("--key-file", flags->key_file, "Write the key to this new file in place of the screen");
  return {key, [flags] { return New(flags->tenant, flags->key_file); }};
}

}  // namespace baton::cli
