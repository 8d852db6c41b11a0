#include "prefill_service/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/transfer/fingerprint_wire.h"
#include "common/transfer/prompt_checksum.h"

namespace baton::prefill_service {
namespace {

using testing::HasSubstr;

class RequestTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    engine_ = engine::Engine::Load(
                  {.model_folder = BATON_SOURCE_DIR "/models/baton-tiny", .threads = 1, .kv_bytes = 4 << 20})
                  .value();
  }
  static void TearDownTestSuite() { engine_.reset(); }

  static v1::PrefillRequest Good() {
    v1::PrefillRequest request;
    *request.mutable_fingerprint() = transfer::ToProto(engine_->fingerprint());
    for (int token = 20; token < 60; ++token) request.add_token_ids(token);
    request.set_salt("a tenant's salt");
    request.mutable_ticket()->add_generations(1);
    request.set_prompt_crc32c(transfer::PromptChecksum(request));
    return request;
  }

  static std::unique_ptr<engine::Engine> engine_;
};

std::unique_ptr<engine::Engine> RequestTest::engine_;

// What is computed from another prompt would travel with a right checksum, and be filed under a right hash.
TEST_F(RequestTest, AFlippedBitOfThePromptOrItsSaltIsRefused) {
  ASSERT_TRUE(ParseRequest(Good(), *engine_).ok()) << ParseRequest(Good(), *engine_).status();
  for (int at = 0; at < Good().token_ids_size(); ++at) {
    for (int bit = 0; bit < 32; ++bit) {
      v1::PrefillRequest request = Good();
      request.set_token_ids(at,
                            static_cast<int32_t>(static_cast<uint32_t>(request.token_ids(at)) ^ (1u << bit)));
      ASSERT_TRUE(absl::IsDataLoss(ParseRequest(request, *engine_).status())) << at << " " << bit;
    }
  }
  for (size_t at = 0; at < Good().salt().size(); ++at) {
    v1::PrefillRequest request = Good();
    (*request.mutable_salt())[at] ^= 4;
    ASSERT_TRUE(absl::IsDataLoss(ParseRequest(request, *engine_).status())) << at;
  }
}

TEST_F(RequestTest, ATokenMoreOrLessOrNoChecksumIsRefused) {
  v1::PrefillRequest request = Good();
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
