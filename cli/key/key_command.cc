// `baton key new`: makes an API key and prints it once, with the line for the tenants file, or adds the line
// itself.
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
#include "cli/key/tenants_append.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "router/tenancy/api_key.h"
#include "router/tenancy/tenants_file.h"

namespace baton::cli {
namespace {

constexpr char kKeyExamples[] = R"(
Examples:
  baton key new --tenant search
  baton key new --tenant search --key-file search.key
      the key goes into the file (readable by you alone), and only the tenants file's lines to the screen
  baton key new --tenant search --key-file search.key --tenants tenants.json
      the line goes into the tenants file, which is made if needed; routers that watch it take the key at once

The router keeps a digest, so a lost key can't be found again: make a new one and remove the old line.)";

struct KeyFlags {
  std::string tenant;
  std::string key_file;
  std::string tenants;
};

absl::Status WriteKey(const std::string& path, const std::string& key) {
  const std::string text = key + "\n";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return absl::UnavailableError(fmt::format("{}: can't be created, or exists already", path));
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (close(file) != 0 || !written) return absl::UnavailableError(fmt::format("{}: can't be written", path));
  return absl::OkStatus();
}

// A key that only half of the places know is worse than none.
absl::Status Store(const KeyFlags& flags, const router::NewApiKey& made) {
  std::string tenants;
  if (!flags.tenants.empty()) {
    BATON_ASSIGN_OR_RETURN(const std::string text, ReadTenants(flags.tenants));
    BATON_ASSIGN_OR_RETURN(tenants, AppendKey(text, flags.tenants, flags.tenant, made));
  }
  if (!flags.key_file.empty()) BATON_RETURN_IF_ERROR(WriteKey(flags.key_file, made.key));
  if (flags.tenants.empty()) return absl::OkStatus();
  absl::Status status = ReplaceTenants(flags.tenants, tenants);
  if (!status.ok() && !flags.key_file.empty()) unlink(flags.key_file.c_str());
  return status;
}

int New(const KeyFlags& flags) {
  // A name that the router refuses would be found out when it reads the file.
  if (const absl::Status named = router::CheckTenantName(flags.tenant); !named.ok()) {
    return Misused(fmt::format("--tenant: {} {}", Quoted(flags.tenant), std::string(named.message())));
  }
  const router::NewApiKey made = router::MakeApiKey();
  if (const absl::Status status = Store(flags, made); !status.ok()) return Fail(status);
  if (flags.key_file.empty()) {
    fmt::print("The key, which is not shown again; give it to the caller:\n\n  {}\n\n", made.key);
  } else {
    fmt::print("The key is in {}.\n\n", flags.key_file);
  }
  if (!flags.tenants.empty()) {
    fmt::print("{} has its line, with the id {}, among the keys of \"{}\".\n", flags.tenants, made.id,
               flags.tenant);
    return kExitOk;
  }
  const std::string line = fmt::format("{{\"id\": \"{}\", \"sha256\": \"{}\"}}", made.id, made.sha256);
  fmt::print("For the router's --tenants file, among the tenant's \"keys\":\n\n  {}\n\n", line);
  fmt::print("or, for a file that doesn't have the tenant yet:\n\n");
  fmt::print("  {{\"tenants\": [{{\"name\": \"{}\", \"keys\": [{}]}}]}}\n", flags.tenant, line);
  return kExitOk;
}

}  // namespace

Command AddKey(CLI::App& root, const CliContext& context) {
  CLI::App* key = root.add_subcommand("key", "Make API keys for callers");
  key->require_subcommand(1);
  CLI::App* make = key->add_subcommand("new", "Make a key and print the line for the tenants file");
  make->footer(kKeyExamples);
  auto flags = std::make_shared<KeyFlags>();
  make->add_option("--tenant", flags->tenant, "Tenant that the key belongs to")
      ->type_name("NAME")
      ->required();
  make->add_option("--key-file", flags->key_file, "Write the key to this new file instead of the screen")
      ->type_name("FILE");
  make->add_option("--tenants", flags->tenants,
                   "Add the key's line to this tenants file, which is created if needed")
      ->type_name("FILE");
  return {key, [flags] { return New(*flags); }};
}

}  // namespace baton::cli
