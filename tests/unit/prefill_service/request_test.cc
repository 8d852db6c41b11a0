#include "prefill_service/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/fleet/fingerprint_wire.h"
#include "protocol/fleet/prompt_checksum.h"

namespace baton::prefill_service {
namespace {

using ::testing::HasSubstr;

class RequestTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    engine_ = engine::Engine::Load(
                  {.model_folder = BATON_SOURCE_DIR "/models/baton-tiny", .threads = 1, .kv_bytes = 4 << 20})
                  .value();
  }
  static void TearDownTestSuite() { engine_.reset(); }

  static fleet::v1::PrefillRequest Good() {
    fleet::v1::PrefillRequest request;
    *request.mutable_fingerprint() = protocol::ToProto(engine_->fingerprint());
    for (int token = 20; token < 60; ++token) request.add_token_ids(token);
    request.set_salt("a tenant's salt");
    request.mutable_ticket()->add_generations(1);
    request.set_prompt_crc32c(protocol::PromptChecksum(request));
    return request;
  }

  static std::unique_ptr<engine::Engine> engine_;
};

std::unique_ptr<engine::Engine> RequestTest::engine_;

// KV computed from another prompt would travel with a right checksum, and be filed under a right hash.
TEST_F(RequestTest, AFlippedBitOfThePromptOrItsSaltIsRefused) {
  ASSERT_TRUE(ParseRequest(Good(), *engine_).ok()) << ParseRequest(Good(), *engine_).status();
  for (int at = 0; at < Good().token_ids_size(); ++at) {
    for (int bit = 0; bit < 32; ++bit) {
      fleet::v1::PrefillRequest request = Good();
      request.set_token_ids(at,
                            static_cast<int32_t>(static_cast<uint32_t>(request.token_ids(at)) ^ (1u << bit)));
      ASSERT_TRUE(absl::IsDataLoss(ParseRequest(request, *engine_).status())) << at << " " << bit;
    }
  }
  for (size_t at = 0; at < Good().salt().size(); ++at) {
    fleet::v1::PrefillRequest request = Good();
    (*request.mutable_salt())[at] ^= 4;
    ASSERT_TRUE(absl::IsDataLoss(ParseRequest(request, *engine_).status())) << at;
  }
}

TEST_F(RequestTest, AFlippedBitOfAReusableSpanIsRefused) {
  fleet::v1::PrefillRequest good = Good();
  good.add_reusable()->set_begin(3);
  good.mutable_reusable(0)->set_end(38);
  good.set_prompt_crc32c(protocol::PromptChecksum(good));
  const auto job = ParseRequest(good, *engine_);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->reusable, (std::vector<kv::ReusableSpan>{{3, 38}}));
  for (int bit = 0; bit < 32; ++bit) {
    fleet::v1::PrefillRequest request = good;
    request.mutable_reusable(0)->set_begin(3u ^ (1u << bit));
    EXPECT_TRUE(absl::IsDataLoss(ParseRequest(request, *engine_).status())) << bit;
    request = good;
    request.mutable_reusable(0)->set_end(38u ^ (1u << bit));
    EXPECT_TRUE(absl::IsDataLoss(ParseRequest(request, *engine_).status())) << bit;
  }
  fleet::v1::PrefillRequest request = good;
  request.clear_reusable();
  EXPECT_TRUE(absl::IsDataLoss(ParseRequest(request, *engine_).status()));
  // Spans that no router sends.
  for (const auto& [begin, end] : {std::pair(3u, 30u), {3u, 40u}, {38u, 3u}, {0u, 4'000'000'000u}}) {
    request = good;
    request.mutable_reusable(0)->set_begin(begin);
    request.mutable_reusable(0)->set_end(end);
    request.set_prompt_crc32c(protocol::PromptChecksum(request));
    EXPECT_TRUE(absl::IsInvalidArgument(ParseRequest(request, *engine_).status())) << begin << " " << end;
  }
}

TEST_F(RequestTest, ATokenMoreOrLessOrNoChecksumIsRefused) {
  fleet::v1::PrefillRequest request = Good();
  request.add_token_ids(0);
  EXPECT_TRUE(absl::IsDataLoss(ParseRequest(request, *engine_).status()));
  request = Good();
  request.mutable_token_ids()->RemoveLast();
  EXPECT_TRUE(absl::IsDataLoss(ParseRequest(request, *engine_).status()));
  request = Good();
  request.clear_prompt_crc32c();
  EXPECT_THAT(ParseRequest(request, *engine_).status().message(), HasSubstr("prompt_crc32c"));
}

}  // namespace
}  // namespace baton::prefill_service
