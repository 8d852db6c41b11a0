// What the engine alone answers, and the requests that ask for the same: for tests of links.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/engine/engine.h"
#include "common/engine/solo.h"
#include "tests/e2e/fleet.h"

namespace baton::e2e {

inline constexpr auto kLinkPatience = std::chrono::seconds(120);

inline std::vector<int32_t> Prompt(int size, int salt) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < size; ++i) tokens.push_back(20 + (i * 31 + salt * 77) % 1990);
  return tokens;
}

inline engine::SoloRun Alone(engine::Engine& engine, const std::vector<int32_t>& prompt, int64_t tokens) {
  std::vector<TokenId> ids;
  for (int32_t id : prompt) ids.emplace_back(id);
  return engine::GenerateSolo(engine, ids, {.temperature = 0}, tokens, {}, 0).value();
}

inline v1::GenerateRequest Request(const std::vector<int32_t>& prompt, uint32_t tokens) {
  v1::GenerateRequest request = TokenRequest(prompt, tokens);
  request.mutable_sampling()->set_repetition_penalty(1);
  return request;
}

inline std::unique_ptr<engine::Engine> OneEngine(const std::string& model = kModel) {
  return engine::Engine::Load({.model_folder = model, .threads = 2, .kv_bytes = 64 << 20}).value();
}

inline bool Await(const std::function<bool()>& happened) {
  const auto give_up = std::chrono::steady_clock::now() + kLinkPatience;
  while (std::chrono::steady_clock::now() < give_up) {
    if (happened()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace baton::e2e
