// The fixture of the peer fetch tests: an engine that says what is right, and a router's part of a request,
// spoken to the decode worker by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "baton/fleet/v1/decode.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/security.h"
#include "common/rpc/status.h"
#include "engine/solo.h"
#include "tests/e2e/fleet.h"
#include "tests/patience.h"

namespace baton::e2e {

inline std::vector<int32_t> Tokens(uint32_t seed, int count) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(20 + random() % 2000));
  return tokens;
}

// `security`: whose keys are shown; null: a stranger's.
inline fleet::v1::WorkerInfo InfoOf(const Process& worker, const rpc::Security* security = nullptr) {
  const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel(worker.grpc(), {}, security));
  grpc::ClientContext context;
  const auto reader = stub->Watch(&context, fleet::v1::WatchRequest());
  fleet::v1::WatchEvent event;
  EXPECT_TRUE(reader->Read(&event));
  context.TryCancel();
  return event.snapshot().info();
}

// Waits until one of them has the value. The test has failed if none gets it.
inline bool AwaitMetric(const Process& worker, const std::vector<std::string>& names, double value) {
  const auto has_it = [&](const std::string& name) { return Metric(worker, name) == value; };
  return Await([&] { return std::ranges::any_of(names, has_it); },
               [&] { return names.front() + " with the value " + std::to_string(value); });
}

class FetchTest : public testing::Test {
 protected:
  // kv_dtype: of the workers' KV; unset: their default.
  explicit FetchTest(std::optional<tensor::DType> kv_dtype = {})
      : engine_(engine::Engine::Load({.model_folder = kModel,
                                      .threads = 2,
                                      .kv_bytes = 64 << 20,
                                      .key_dtype = kv_dtype,
                                      .value_dtype = kv_dtype})
                    .value()) {}

  // As the engine alone answers, greedily.
  engine::SoloRun Alone(const std::vector<int32_t>& prompt, int64_t count) {
    std::vector<TokenId> ids;
    for (int32_t id : prompt) ids.emplace_back(id);
    return engine::GenerateSolo(*engine_, ids, {.temperature = 0}, count, {}, 0).value();
  }

  fleet::v1::DecodeRequest RequestTo(const Process& decode, const std::vector<int32_t>& prompt,
                                     uint32_t count) const {
    fleet::v1::DecodeRequest request;
    request.set_request_id("fetch-test");
    *request.mutable_fingerprint() = InfoOf(decode, security_.get()).fingerprint();
    request.mutable_token_ids()->Add(prompt.begin(), prompt.end());
    request.set_salt("a tenant's salt");
    request.mutable_sampling()->set_temperature(0);
    request.mutable_stop()->set_max_tokens(count);
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_output()->set_token_ids(true);
    request.mutable_output()->set_logits_digest(true);
    return request;
  }

  fleet::v1::PrefillTarget* AddTarget(fleet::v1::DecodeRequest& request, const Process& prefill) const {
    fleet::v1::PrefillTarget* target = request.add_prefill();
    target->set_worker(InfoOf(prefill, security_.get()).worker_id());
    target->set_address(prefill.grpc());
    return target;
  }

  static void Hint(fleet::v1::PeerPrefix* hint, const Process& holder, size_t tokens) {
    hint->set_worker("holder");
    hint->set_address(holder.grpc());
    hint->set_blocks(static_cast<uint32_t>(tokens / kBlockTokens));
  }

  Answer Run(const Process& decode, const fleet::v1::DecodeRequest& request) const {
    Answer answer;
    const auto stub = fleet::v1::Decode::NewStub(rpc::MakeChannel(decode.grpc(), {}, security_.get()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(120)));
    const auto reader = stub->Generate(&context, request);
    for (fleet::v1::DecodeEvent event; reader->Read(&event);) {
      if (event.has_finished()) answer.finished.push_back(event.finished());
      const v1::Delta& delta = event.delta();
      answer.tokens.insert(answer.tokens.end(), delta.token_ids().begin(), delta.token_ids().end());
      answer.digests.insert(answer.digests.end(), delta.logits_digests().begin(),
                            delta.logits_digests().end());
    }
    answer.status = rpc::FromGrpc(reader->Finish());
    return answer;
  }

  void ExpectAsAlone(const Answer& answer, const std::vector<int32_t>& prompt, int64_t count) {
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    ASSERT_EQ(answer.finished.size(), 1u);
    const engine::SoloRun alone = Alone(prompt, count);
    std::vector<int32_t> expected;
    for (TokenId token : alone.tokens) expected.push_back(token.value());
    EXPECT_EQ(answer.tokens, expected);
    EXPECT_EQ(answer.digests, alone.logits_digests) << "the logits differ in at least one bit";
  }

  const std::unique_ptr<engine::Engine> engine_;
  std::shared_ptr<const rpc::Security> security_;  // null: the fleet is open
};

}  // namespace baton::e2e
