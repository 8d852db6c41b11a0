// The models file: JSON that says which models a router serves and where their workers are. Read once, at the
// router's start, and strictly: what is unknown or of the wrong type refuses the whole file with the place
// and the reason. Pure; any thread.
//
//   {"models": [{
//      "folder": "/srv/llama",          or a GGUF file
//      "name": "llama",                 that requests use; absent: the folder's name
//      "output_format": "llama3_json",  absent: found by the template
//      "decode": ["10.0.0.1:8470"],     as --decode; likewise "prefill"
//      "prefill": [],
//      "fleet_file": "llama.json"}]}    as --fleet-file
//
// A model without "decode", "prefill" and "fleet_file" is served by the workers of the router's flags. Models
// with the same three share one fleet; they are names of one model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/router.h"

namespace baton::router {

// At least one model. `file` is for messages.
absl::StatusOr<std::vector<RouterOptions::Model>> ParseModels(std::string_view text, std::string_view file);

// Reads the file at `path`, of at most 1 MiB. NOT_FOUND if there is none.
absl::StatusOr<std::vector<RouterOptions::Model>> ReadModels(const std::string& path);

}  // namespace baton::router
