#include "tests/bench/speculation/recording.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "engine/sampling/sampler.h"
#include "nlohmann/json.hpp"

namespace baton::bench {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const std::vector<TokenId>& tokens, std::map<TokenId, int32_t>& numbers) {
  Json json = Json::array();
  for (const TokenId token : tokens) {
    json.push_back(numbers.emplace(token, static_cast<int32_t>(numbers.size())).first->second);
  }
  return json;
}

std::vector<TokenId> FromJson(const Json& json) {
  std::vector<TokenId> tokens;
  for (const Json& number : json) tokens.emplace_back(number.get<int32_t>());
  return tokens;
}

}  // namespace

Recording Record(engine::Engine& engine, std::string work, std::vector<TokenId> prompt, int64_t tokens,
                 uint64_t seed) {
  const model::ModelConfig& config = engine.config();
  Recording recording = {.work = std::move(work), .prompt = std::move(prompt), .answer = {}, .agrees = {}};
  std::vector<TokenId> all = recording.prompt;
  const auto blocks = engine.pool().Allocate(BlocksFor(std::ssize(all) + tokens + 1));
  BATON_CHECK(blocks.ok()) << blocks.status();
  engine::Batch batch;
  constexpr int64_t kChunk = 256;
  for (int64_t first = 0; first + 1 < std::ssize(all); first += kChunk) {
    const auto rows = static_cast<size_t>(std::min<int64_t>(kChunk, std::ssize(all) - 1 - first));
    batch.Clear();
    batch.Add({.tokens = std::span(all).subspan(static_cast<size_t>(first), rows),
               .first_position = first,
               .blocks = *blocks});
    engine.Forward(batch, [](int) {});
  }
  sampling::Sampler sampler;
  sampling::Params params;
  params.temperature = 0.7f;
  params.seed = seed;
  const auto draw = [&](const engine::StepResult& result) {
    const auto drawn =
        sampler.Sample(result.logits(0), params, {}, static_cast<uint64_t>(all.size()), std::nullopt);
    BATON_CHECK(drawn.ok()) << drawn.status();
    return drawn->token;
  };
  for (int64_t i = 0; i < tokens; ++i) {
    batch.Clear();
    batch.Add({.tokens = std::span(all).last(1),
               .first_position = std::ssize(all) - 1,
               .blocks = *blocks,
               .logit_rows = 1});
    // The draft comes first: the model's own step writes over its KV.
    const TokenId drafted = draw(engine.ForwardDraft(batch));
    const TokenId token = draw(engine.Forward(batch, [](int) {}));
    if (std::ranges::find(config.eos, token) != config.eos.end()) break;
    recording.agrees += drafted == token ? '1' : '0';
    recording.answer.push_back(token);
    all.push_back(token);
  }
  engine.pool().Release(*blocks);
  return recording;
}

void WriteRecordings(const std::string& path, std::vector<Recording> recordings) {
  Json json = Json::array();
  for (const Recording& one : recordings) {
    std::map<TokenId, int32_t> numbers;
    Json prompt = ToJson(one.prompt, numbers), answer = ToJson(one.answer, numbers);
    json.push_back({{"work", one.work},
                    {"prompt", std::move(prompt)},
                    {"answer", std::move(answer)},
                    {"agrees", one.agrees}});
  }
  std::ofstream file(path);
  for (size_t i = 0; i < json.size(); ++i) file << (i == 0 ? "[" : ",\n") << json[i].dump();
  file << "]\n";
  BATON_CHECK(file.good()) << path << " can't be written";
}

std::vector<Recording> ReadRecordings(const std::string& path) {
  std::ifstream file(path);
  BATON_CHECK(file.good()) << path << " can't be read";
  std::vector<Recording> recordings;
  for (const Json& one : Json::parse(file)) {
    recordings.push_back({.work = one["work"].get<std::string>(),
                          .prompt = FromJson(one["prompt"]),
                          .answer = FromJson(one["answer"]),
                          .agrees = one["agrees"].get<std::string>()});
    BATON_CHECK(recordings.back().agrees.size() == recordings.back().answer.size());
  }
  return recordings;
}

}  // namespace baton::bench
