// The flags of `baton serve`. Plain data.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/serve/plan.h"
#include "cli/serve/served_models.h"
#include "worker/flags.h"

namespace baton::cli {

struct ServeFlags {
  ModelFlags models;
  // All but what TakeModels and TakeDevices (serve_command.cc) fill in.
  ServePlan plan;
  // Only to declare what workers take: each gets what was given, word for word.
  worker::Options worker;
  std::vector<const CLI::Option*> worker_options;
  std::vector<int> prefill_devices, decode_devices;
  const CLI::Option* prefill_count = nullptr;
  const CLI::Option* decode_count = nullptr;
  bool no_router = false;
  std::string health;
  std::string kv_memory;
  std::string log_folder;
  std::string announce;
  std::string observability;
  bool json = false;
  bool exit_with_parent = false;
  std::string start_timeout = "5m";

  // The workers' own flags that were given, as "--name=value" or "--name".
  std::vector<std::string> Given() const;
};

// Declares them with their help. `flags` outlives `app`.
void DeclareServeFlags(CLI::App& app, ServeFlags& flags);

}  // namespace baton::cli
