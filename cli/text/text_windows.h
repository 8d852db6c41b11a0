// Texts from files, as the tokens that a model reads. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"

namespace baton::cli {

// The beginning of a file's text as windows of at most `window` tokens, `most` tokens of the text in all;
// each begins with the tokens that the model's tokenizer puts before a text. INVALID_ARGUMENT, naming the
// file: fewer than 64 tokens.
absl::StatusOr<std::vector<std::vector<TokenId>>> ReadWindows(const std::string& model_folder,
                                                              const std::string& path, int64_t window,
                                                              int64_t most);

}  // namespace baton::cli
