// Recording: an answer of a trained model, and at which of its tokens the model's own weights in 4 bits,
// asked to draft there, take the same token. A bench replays both on a model of random weights, which agrees
// with its copy hardly ever. Tokens are numbers of the recording's own, equal where the model's were.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "engine/engine.h"

namespace baton::bench {

struct Recording {
  std::string work;
  std::vector<TokenId> prompt, answer;
  std::string agrees;  // of each token of the answer, 1 or 0
};

// Has the engine, which has a copy in 4 bits (EngineOptions::draft_weights), answer the prompt with up to so
// many tokens, at temperature 0.7. CHECK-fails where it cannot.
Recording Record(engine::Engine& engine, std::string work, std::vector<TokenId> prompt, int64_t tokens,
                 uint64_t seed);

// A JSON file. Written: with the tokens numbered from 0 in the order in which they come.
void WriteRecordings(const std::string& path, std::vector<Recording> recordings);
std::vector<Recording> ReadRecordings(const std::string& path);

}  // namespace baton::bench
