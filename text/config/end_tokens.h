// EndTokens: the tokens that end a model's answers, from all files of a folder that name some.
// ModelConfig::Load puts them into ModelConfig::eos, where workers, routers and tools find the one set; for a
// GGUF file gguf_config.h does. Pure functions over the folder's files, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "text/config/json_fields.h"

namespace baton::model {

// The union, each id once: `of_config` (those of config.json), `eos_token_id` of generation_config.json, and
// the tokenizer's EOS: `eos_token` of tokenizer_config.json, or of special_tokens_map.json if that has none,
// as an id of tokenizer.json. A folder may lack each of these files. Ids that a model of so many tokens can't
// give, and a text that is no token, are left out. INVALID_ARGUMENT names a file that is not valid JSON.
absl::StatusOr<std::vector<TokenId>> EndTokens(const std::string& folder,
                                               const std::vector<TokenId>& of_config, int64_t vocabulary);

// `eos_token_id` of a generation_config.json: a number or a list; null and missing: none. What is no id of
// the vocabulary is left out.
std::vector<TokenId> EndsOfGeneration(const Json& generation, int64_t vocabulary);

}  // namespace baton::model
