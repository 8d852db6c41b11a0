// A router and a worker need one tokenizer and one set of ends; two routers need one chat template.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "common/telemetry/metrics.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "router/fleet/fleet.h"
#include "tests/log_lines.h"

namespace baton::router::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A digest, and how people see it.
std::string DigestOf(char byte) { return std::string(32, byte); }

baton::fleet::v1::WatchEvent InfoOf(baton::fleet::v1::Role role, const std::string& tokenizer,
                                    const std::string& ends) {
  baton::fleet::v1::WatchEvent event;
  event.set_sequence(1);
  baton::fleet::v1::WorkerInfo* info = event.mutable_snapshot()->mutable_info();
  info->set_worker_id("w");
  info->set_role(role);
  info->set_tokenizer_digest(tokenizer);
  info->set_ends_digest(ends);
  return event;
}

class FleetPairingTest : public ::testing::Test {
 protected:
  absl::Status Hear(const std::string& tokenizer, const std::string& ends) {
    return fleet_.OnEvent(0, InfoOf(baton::fleet::v1::ROLE_DECODE, tokenizer, ends));
  }
  // The routers of a worker have these templates.
  void HearTemplates(int endpoint, const std::vector<std::string>& digests) {
    baton::fleet::v1::WatchEvent event =
        InfoOf(endpoint == 2 ? baton::fleet::v1::ROLE_PREFILL : baton::fleet::v1::ROLE_DECODE, DigestOf('t'),
               DigestOf('e'));
    for (const auto& digest : digests) {
      event.mutable_snapshot()->mutable_chat_templates()->add_digests(digest);
    }
    ASSERT_TRUE(fleet_.OnEvent(endpoint, event).ok());
  }
  std::vector<std::string> Warnings() const { return log_.With("has another chat template"); }

  LogLines log_;
  telemetry::Metrics metrics_;
  Probe probe_{metrics_};
  Fleet fleet_{{.router_id = "me",
                .endpoints = {{"d0:1", Role::kDecode}, {"d1:1", Role::kDecode}, {"p0:1", Role::kPrefill}},
                .tokenizer_digest = DigestOf('t'),
                .ends_digest = DigestOf('e'),
                .template_digest = DigestOf('m')},
               probe_};
};

TEST(AnswerDigestTest, IsOfWhatDecidesTheBits) {
  baton::fleet::v1::Fingerprint first;
  first.set_protocol(1);
  first.set_config("config");
  first.set_weights("weights");
  first.set_model("for people");
  first.mutable_kv()->set_key_dtype("bf16");
  first.mutable_kv()->set_value_dtype("bf16");
  first.set_numerics("cpu-f32/1");
  first.set_link("host");
  baton::fleet::v1::Fingerprint same = first;
  same.set_protocol(2);
  same.set_model("otherwise");
  same.set_link("nccl/22809");
  EXPECT_EQ(protocol::AnswerDigest(same), protocol::AnswerDigest(first));
  std::set<std::string> digests = {protocol::AnswerDigest(first)};
  const auto differs = [&](const auto& change) {
    baton::fleet::v1::Fingerprint other = first;
    change(other);
    EXPECT_TRUE(digests.insert(protocol::AnswerDigest(other)).second) << other.ShortDebugString();
  };
  differs([](auto& other) { other.set_config("other"); });
  differs([](auto& other) { other.set_weights("other"); });
  differs([](auto& other) { other.mutable_kv()->set_key_dtype("i8"); });
  differs([](auto& other) { other.mutable_kv()->set_value_dtype("i8"); });
  differs([](auto& other) { other.set_numerics("cpu-i8/1"); });
}

TEST_F(FleetPairingTest, AWorkerOfTheSameFolderIsTaken) {
  EXPECT_TRUE(Hear(DigestOf('t'), DigestOf('e')).ok());
  EXPECT_EQ(fleet_.view()->decode.size(), 1u);
}

TEST_F(FleetPairingTest, AnotherTokenizerIsRefusedByName) {
  const std::string why =
      "decode worker d0:1 has another tokenizer (78787878) than the router's model folder (74747474): start "
      "both with the same model folder";
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = Hear(DigestOf('x'), DigestOf('e'));
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_EQ(status.message(), why);
  }
  EXPECT_THAT(fleet_.view()->decode, IsEmpty());
  const absl::Status requests = fleet_.NoDecodeWorker();
  EXPECT_TRUE(absl::IsUnavailable(requests));
  EXPECT_THAT(std::string(requests.message()), HasSubstr(why));
  EXPECT_THAT(log_.With("another tokenizer", spdlog::level::err), SizeIs(1)) << "once, and not at each event";
  EXPECT_THAT(
      metrics_.Text(),
      HasSubstr("baton_router_fingerprint_mismatches_total{field=\"tokenizer\",worker=\"d0:1\"} 1\n"));
  const std::string left_out = "baton_router_worker_left_out{field=\"tokenizer\",worker=\"d0:1\"} ";
  EXPECT_THAT(metrics_.Text(), HasSubstr(left_out + "1\n"));
  // It is started again, with the router's folder.
  EXPECT_TRUE(Hear(DigestOf('t'), DigestOf('e')).ok());
  EXPECT_THAT(metrics_.Text(), HasSubstr(left_out + "0\n"));
  EXPECT_THAT(fleet_.view()->decode, SizeIs(1));
}

TEST_F(FleetPairingTest, OtherEndsAreRefusedByName) {
  const absl::Status status = Hear(DigestOf('t'), DigestOf('x'));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("decode worker d0:1 ends answers at other tokens (ends 78787878) than the router's "
                        "model folder says (ends 65656565)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("what 'baton model inspect' says of its ends"));
  EXPECT_THAT(fleet_.view()->decode, IsEmpty());
  EXPECT_THAT(metrics_.Text(), HasSubstr("{field=\"ends\",worker=\"d0:1\"} 1\n"));
}

TEST_F(FleetPairingTest, WhatIsNotToldIsNotCompared) {
  EXPECT_TRUE(Hear("", "").ok());
  EXPECT_TRUE(fleet_.OnEvent(2, InfoOf(baton::fleet::v1::ROLE_PREFILL, "", "")).ok());
  EXPECT_THAT(fleet_.view()->decode, SizeIs(1));
  EXPECT_THAT(fleet_.view()->prefill, SizeIs(1));
  // Nor what the router does not know of itself.
  Fleet unknowing({.router_id = "me", .endpoints = {{"d0:1", Role::kDecode}}}, probe_);
  EXPECT_TRUE(unknowing.OnEvent(0, InfoOf(baton::fleet::v1::ROLE_DECODE, DigestOf('x'), DigestOf('x'))).ok());
}

TEST_F(FleetPairingTest, EqualTemplatesAreNoNews) {
  HearTemplates(0, {DigestOf('m')});
  HearTemplates(1, {});
  HearTemplates(1, {DigestOf('m'), "", "short", std::string(33, 'x')});
  EXPECT_THAT(Warnings(), IsEmpty());
  EXPECT_THAT(log_.With("chat template", spdlog::level::info), IsEmpty());
}

TEST_F(FleetPairingTest, AnotherTemplateIsWarnedOfOncePerChange) {
  HearTemplates(0, {DigestOf('m'), DigestOf('o')});
  EXPECT_THAT(Warnings(),
              ElementsAre("another router of decode worker d0:1 has another chat template (6f6f6f6f) than "
                          "this router's model folder (6d6d6d6d): a conversation gets another prompt from "
                          "each; start all routers with the same model folder"));
  EXPECT_THAT(fleet_.view()->decode, SizeIs(1)) << "the workers are none the worse";
  // Other workers say the same, and so does each event.
  HearTemplates(0, {DigestOf('o'), DigestOf('m')});
  HearTemplates(1, {DigestOf('o')});
  HearTemplates(2, {DigestOf('o')});
  baton::fleet::v1::WatchEvent load;
  load.set_sequence(2);
  load.mutable_delta()->mutable_load()->set_running(1);
  ASSERT_TRUE(fleet_.OnEvent(0, load).ok());
  EXPECT_THAT(Warnings(), SizeIs(1));
  // A third one, in a delta.
  baton::fleet::v1::WatchEvent delta;
  delta.set_sequence(3);
  delta.mutable_delta()->mutable_chat_templates()->add_digests(DigestOf('q'));
  ASSERT_TRUE(fleet_.OnEvent(0, delta).ok());
  ASSERT_THAT(Warnings(), SizeIs(2));
  EXPECT_THAT(Warnings()[1], HasSubstr("(6f6f6f6f, 71717171)"));
  // Workers that are away, even all of them, say nothing of the routers.
  for (int endpoint = 0; endpoint < 3; ++endpoint) fleet_.OnDown(endpoint, absl::UnavailableError("gone"));
  HearTemplates(0, {DigestOf('q'), DigestOf('o')});
  EXPECT_THAT(log_.With("again", spdlog::level::info), IsEmpty());
  HearTemplates(0, {DigestOf('m')});
  EXPECT_THAT(log_.With("chat template again (6d6d6d6d)", spdlog::level::info), SizeIs(1));
  HearTemplates(0, {DigestOf('o')});
  EXPECT_THAT(Warnings().back(), HasSubstr("(6f6f6f6f)"));
}

TEST_F(FleetPairingTest, AWorkerCanNotFillARouterWithTemplates) {
  std::vector<std::string> many;
  for (char byte = '0'; byte < 'Z'; ++byte) many.push_back(DigestOf(byte));
  HearTemplates(0, many);
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr("(30303030, 31313131, 32323232, 33333333)")));
}

}  // namespace
}  // namespace baton::router::fleet
