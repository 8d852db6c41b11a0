// The models file: JSON that says which models a router serves and where their workers are. Read once, at the
// router's start, and strictly: what is unknown or of the wrong type refuses the whole file with the place
// and the reason. Pure; any thread.
//
//   {"models": [{
//      "folder": "/srv/llama",          or a GGUF file
//      "name": "llama",                 that requests use; absent: the folder's name
//      "output_format": "llama3_json",  absent: found by the template
//      "classifier": "llama_guard",     it judges texts (moderation/classifier_format.h); absent: it is none
//      "tenants": ["search", "ads"],    that may use it, and see it; absent: all
//      "max_tokens": 1024,              of an answer, at most; this and the following 0 or absent: no limit
//      "requests_per_minute": 600,      of all tenants together, by router; likewise
//                                       "prompt_tokens_per_minute" and "output_tokens_per_minute"
//      "decode": ["10.0.0.1:8470"],     as --decode; likewise "prefill"
//      "fleet_file": "llama.json"}],    as --fleet-file
//    "moderation": {"policy": "block"}}  of all tenants that have none of their own (moderation/rules.h)
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

struct ModelsFile {
  std::vector<RouterOptions::Model> models;  // at least one
  moderation::Rules moderation;
};

// `file` is for messages.
absl::StatusOr<ModelsFile> ParseModels(std::string_view text, std::string_view file);

// Reads the file at `path`, of at most 1 MiB. NOT_FOUND if there is none.
absl::StatusOr<ModelsFile> ReadModels(const std::string& path);

}  // namespace baton::router
