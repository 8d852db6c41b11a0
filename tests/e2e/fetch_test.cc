// Peer fetch between real processes: blocks go from worker to worker by hash, the tokens stay those of the
// engine alone, bit for bit, and whatever goes wrong costs a computation and no answer. Most tests speak to
// the decode workers as a router would, so that who fetches what from whom is theirs to say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "baton/fleet/v1/blocks.grpc.pb.h"
#include "common/rpc/channel.h"
#include "tests/e2e/fetch_fixture.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

// The shipped model computes faster than a busy machine fetches.
const std::vector<std::string> kAlways = {"--peer-fetch", "always"};

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::string kFailedFetches = "baton_peer_fetches_total{link=\"host\",outcome=\"failed\"}";

// The heart of it: the answer of the first turn exists on the decode worker alone. The second turn's prompt
// is computed elsewhere, for another decode worker, and only what is new of it is computed.
TEST_F(FetchTest, APrefillWorkerGetsTheAnswersKvFromTheDecodeWorker) {
  Fleet fleet({.prefill = 1, .decode = 2, .prefill_flags = kAlways});
  const auto prompt = Tokens(1, 100);
  fleet::v1::DecodeRequest first = RequestTo(fleet.decode(0), prompt, 60);
  AddTarget(first, fleet.prefill());
  const Answer one = Run(fleet.decode(0), first);
  ExpectAsAlone(one, prompt, 60);

  const auto history = Joined(prompt, one.tokens);
  const auto next = Joined(history, Tokens(2, 70));
  fleet::v1::DecodeRequest second = RequestTo(fleet.decode(1), next, 20);
  // The last token of an answer is drawn and never computed.
  Hint(AddTarget(second, fleet.prefill())->mutable_fetch(), fleet.decode(0), history.size() - 1);
  const Answer two = Run(fleet.decode(1), second);
  ExpectAsAlone(two, next, 20);
  // 9 blocks are whole; the prefill worker computed 6 of them itself in the first turn.
  EXPECT_EQ(two.end().relay().fetched_tokens(), (159 / 16 - 100 / 16) * 16u);
  EXPECT_EQ(two.end().relay().fetched_from(), "holder");
  EXPECT_GT(two.end().relay().fetch_seconds(), 0);
  EXPECT_EQ(two.end().usage().prefill_cached_tokens(), 159 / 16 * 16u);
  EXPECT_EQ(Metric(fleet.prefill(), "baton_peer_fetched_blocks_total"), 3);
  EXPECT_EQ(Metric(fleet.prefill(), "baton_peer_fetches_total{link=\"host\",outcome=\"complete\"}"), 1);
  EXPECT_EQ(Metric(fleet.decode(0), "baton_peer_served_blocks_total"), 3);
  EXPECT_EQ(Metric(fleet.decode(0), "baton_peer_serves_total{link=\"host\",outcome=\"ok\"}"), 1);
  // Fetched blocks are cached: they are not sent again.
  fleet::v1::DecodeRequest again = RequestTo(fleet.decode(1), Joined(history, Tokens(3, 40)), 4);
  Hint(AddTarget(again, fleet.prefill())->mutable_fetch(), fleet.decode(0), history.size() - 1);
  const Answer three = Run(fleet.decode(1), again);
  ASSERT_TRUE(three.status.ok()) << three.status;
  EXPECT_EQ(three.end().relay().fetched_tokens(), 0u);
  EXPECT_EQ(Metric(fleet.decode(0), "baton_peer_serves_total"), 1);
  fleet.ExpectNothingHeld();
}

TEST_F(FetchTest, APrefillWorkerFetchesFromAPrefillWorker) {
  Fleet fleet({.prefill = 2, .decode = 2, .prefill_flags = kAlways});
  const auto prompt = Tokens(4, 200);
  fleet::v1::DecodeRequest first = RequestTo(fleet.decode(0), prompt, 4);
  AddTarget(first, fleet.prefill(0));
  ExpectAsAlone(Run(fleet.decode(0), first), prompt, 4);
  const auto longer = Joined(prompt, Tokens(5, 64));
  fleet::v1::DecodeRequest second = RequestTo(fleet.decode(1), longer, 12);
  Hint(AddTarget(second, fleet.prefill(1))->mutable_fetch(), fleet.prefill(0), prompt.size());
  const Answer answer = Run(fleet.decode(1), second);
  ExpectAsAlone(answer, longer, 12);
  EXPECT_EQ(answer.end().relay().fetched_tokens(), 192u);
  EXPECT_EQ(answer.end().relay().prefill_worker(), "prefill-1");
  fleet.ExpectNothingHeld();
}

TEST_F(FetchTest, ADecodeWorkerFetchesForItsOwnPrefill) {
  Fleet fleet({.prefill = 1, .decode = 2, .decode_flags = kAlways});
  const auto prompt = Tokens(6, 130);
  fleet::v1::DecodeRequest first = RequestTo(fleet.decode(0), prompt, 40);
  AddTarget(first, fleet.prefill());
  const Answer one = Run(fleet.decode(0), first);
  ExpectAsAlone(one, prompt, 40);
  const auto next = Joined(Joined(prompt, one.tokens), Tokens(7, 50));
  // From a decode worker, without any prefill worker; then from a prefill worker, as far as that goes.
  fleet::v1::DecodeRequest second = RequestTo(fleet.decode(1), next, 10);
  Hint(second.mutable_fetch(), fleet.decode(0), 169);
  const Answer two = Run(fleet.decode(1), second);
  ExpectAsAlone(two, next, 10);
  EXPECT_EQ(two.end().relay().fetched_tokens(), 160u);
  EXPECT_EQ(two.end().usage().decode_cached_tokens(), 160u);
  EXPECT_EQ(two.end().relay().link(), "local");
  fleet.ExpectNothingHeld();
}

TEST_F(FetchTest, APeerThatHoldsLessOrNothingCostsNoAnswer) {
  Fleet fleet({.prefill = 2, .decode = 1, .prefill_flags = kAlways});
  const auto prompt = Tokens(8, 160);
  fleet::v1::DecodeRequest half =
      RequestTo(fleet.decode(), std::vector(prompt.begin(), prompt.begin() + 80), 2);
  AddTarget(half, fleet.prefill(0));
  ASSERT_TRUE(Run(fleet.decode(), half).status.ok());
  // It is said to hold everything, and holds 5 blocks.
  fleet::v1::DecodeRequest request = RequestTo(fleet.decode(), prompt, 8);
  Hint(AddTarget(request, fleet.prefill(1))->mutable_fetch(), fleet.prefill(0), prompt.size());
  const Answer answer = Run(fleet.decode(), request);
  ExpectAsAlone(answer, prompt, 8);
  EXPECT_EQ(answer.end().relay().fetched_tokens(), 80u);
  EXPECT_EQ(Metric(fleet.prefill(1), "baton_peer_fetches_total{link=\"host\",outcome=\"partial\"}"), 1);
  // Another tenant's: the very tokens, and nothing to be had.
  fleet::v1::DecodeRequest other = RequestTo(fleet.decode(), prompt, 8);
  other.set_salt("another tenant's salt");
  Hint(AddTarget(other, fleet.prefill(0))->mutable_fetch(), fleet.prefill(1), prompt.size());
  const Answer stranger = Run(fleet.decode(), other);
  ExpectAsAlone(stranger, prompt, 8);
  EXPECT_EQ(stranger.end().relay().fetched_tokens(), 0u);
  EXPECT_EQ(stranger.end().usage().prefill_cached_tokens(), 0u);
  EXPECT_EQ(Metric(fleet.prefill(0), "baton_peer_fetches_total{link=\"host\",outcome=\"missed\"}"), 1);
  EXPECT_EQ(Metric(fleet.prefill(1), "baton_peer_served_blocks_total"), 0);
  // No peer is there.
  fleet::v1::DecodeRequest nobody = RequestTo(fleet.decode(), Tokens(9, 160), 8);
  fleet::v1::PeerPrefix* hint = AddTarget(nobody, fleet.prefill(0))->mutable_fetch();
  Hint(hint, fleet.prefill(1), 160);
  hint->set_address("127.0.0.1:1");
  ExpectAsAlone(Run(fleet.decode(), nobody), Tokens(9, 160), 8);
  EXPECT_EQ(Metric(fleet.prefill(0), kFailedFetches), 1);
  fleet.ExpectNothingHeld();
}

// The relay changes no answer, whichever worker fetches from whichever: conversations over all workers at
// random.
TEST_F(FetchTest, TokensAndLogitsAreThoseOfTheEngineAloneWhoeverFetches) {
  const std::vector<std::string> flags = {"--peer-fetch", "always", "--chunk-tokens", "64"};
  Fleet fleet({.prefill = 2, .decode = 2, .prefill_flags = flags, .decode_flags = flags});
  const uint32_t seed = 4321;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  struct History {
    std::vector<int32_t> tokens;
    int decode;  // who answered last
  };
  std::vector<History> histories;
  int by_prefill = 0, by_decode = 0;
  for (uint32_t i = 0; i < BATON_EQUALITY_PROMPTS / 2; ++i) {
    SCOPED_TRACE(i);
    std::vector<int32_t> prompt = Tokens(seed + i, static_cast<int>(34 + random() % 120));
    int here = static_cast<int>(random() % 2);
    Process* holder = random() % 2 == 0 ? &fleet.decode(1 - here) : &fleet.prefill(here);
    if (!histories.empty() && i % 4 != 0) {
      const History& history = histories[random() % histories.size()];
      prompt = Joined(history.tokens, prompt);
      // Mostly on the other decode worker, and from the one that has it.
      if (random() % 4 != 0) {
        here = 1 - history.decode;
        holder = &fleet.decode(history.decode);
      }
    }
    if (prompt.size() > 1200) continue;
    const Process& decode = fleet.decode(here);
    fleet::v1::DecodeRequest request = RequestTo(decode, prompt, 12);
    if (random() % 2 == 0) {
      fleet::v1::PrefillTarget* target = AddTarget(request, fleet.prefill(static_cast<int>(random() % 2)));
      Hint(target->mutable_fetch(), *holder, prompt.size());
    } else {
      Hint(request.mutable_fetch(), *holder, prompt.size());
    }
    const Answer answer = Run(decode, request);
    ExpectAsAlone(answer, prompt, 12);
    if (HasFailure()) break;
    if (answer.end().relay().fetched_tokens() > 0) ++(request.prefill().empty() ? by_decode : by_prefill);
    histories.push_back({Joined(prompt, answer.tokens), here});
  }
  std::printf("%d answers with blocks fetched by a prefill worker, %d by the decode worker\n", by_prefill,
              by_decode);
  EXPECT_GT(by_prefill, 0);
  EXPECT_GT(by_decode, 0);
  fleet.ExpectNothingHeld();
}

class HolderDiesTest : public FetchTest, public testing::WithParamInterface<bool> {};

TEST_P(HolderDiesTest, WhileItIsAskedTheRestIsComputed) {
  const bool decode_fetches = GetParam();
  Fleet fleet({.prefill = 2, .decode = 1, .prefill_flags = kAlways, .decode_flags = kAlways});
  const auto prompt = Tokens(10, 200);
  fleet::v1::DecodeRequest other = RequestTo(fleet.decode(), prompt, 1);
  // Another tenant's salt on the decode worker, so that it lacks the prompt itself.
  AddTarget(other, fleet.prefill(0));
  ASSERT_TRUE(Run(fleet.decode(), other).status.ok());
  const auto longer = Joined(Tokens(11, 40), prompt);
  fleet::v1::DecodeRequest request = RequestTo(fleet.decode(), longer, 16);
  const Process& fetcher = decode_fetches ? fleet.decode() : fleet.prefill(1);
  Hint(decode_fetches ? request.mutable_fetch() : AddTarget(request, fleet.prefill(1))->mutable_fetch(),
       fleet.prefill(0), longer.size());
  // It does not see the call, which waits for it, and then it dies.
  fleet.prefill(0).Signal(SIGSTOP);
  fleet.prefill(0).AwaitStopped();
  Answer answer;
  std::jthread client([&] { answer = Run(fleet.decode(), request); });
  // On a slow machine keepalive may be quicker than we are.
  EXPECT_TRUE(AwaitMetric(fetcher, {"baton_peer_fetching ", kFailedFetches}, 1));
  fleet.prefill(0).Signal(SIGKILL);
  client.join();
  ExpectAsAlone(answer, longer, 16);
  EXPECT_EQ(answer.end().relay().fetched_tokens(), 0u);
  EXPECT_EQ(Metric(fetcher, kFailedFetches), 1);
  EXPECT_TRUE(AwaitLoad(fetcher.grpc(), [](const fleet::v1::Load& load) { return load.held_blocks() == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Fetchers, HolderDiesTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Decode" : "Prefill"; });

TEST_F(FetchTest, AWorkerThatTakesNoPartNeitherAsksNorAnswers) {
  Fleet fleet({.prefill = 2, .decode = 1, .prefill_flags = {"--peer-fetch", "never"}});
  EXPECT_FALSE(InfoOf(fleet.prefill(0)).peer_fetch());
  EXPECT_TRUE(InfoOf(fleet.decode()).peer_fetch());
  const auto prompt = Tokens(12, 120);
  fleet::v1::DecodeRequest request = RequestTo(fleet.decode(), prompt, 8);
  Hint(AddTarget(request, fleet.prefill(0))->mutable_fetch(), fleet.decode(), prompt.size());
  const Answer answer = Run(fleet.decode(), request);
  ExpectAsAlone(answer, prompt, 8);
  EXPECT_EQ(Metric(fleet.decode(), "baton_peer_serves_total"), 0);
  const auto stub = fleet::v1::Blocks::NewStub(rpc::MakeChannel(fleet.prefill(0).grpc()));
  grpc::ClientContext context;
  const auto reader = stub->Fetch(&context, fleet::v1::FetchRequest());
  fleet::v1::FetchEvent event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(FetchTest, OnlyTheFleetFetches) {
  const std::string key_file = testing::TempDir() + "/fetch_fleet.key";
  std::ofstream(key_file) << std::string(48, 'k');
  security_ = rpc::Security::Load({.fleet_key_file = key_file}).value();
  const std::vector<std::string> keyed = {"--fleet-key-file", key_file};
  Fleet fleet({.prefill = 2,
               .decode = 1,
               .prefill_flags = {"--peer-fetch", "always", "--fleet-key-file", key_file},
               .decode_flags = keyed,
               .router_flags = keyed});
  const auto prompt = Tokens(13, 100);
  fleet::v1::DecodeRequest first = RequestTo(fleet.decode(), prompt, 1);
  AddTarget(first, fleet.prefill(0));
  ASSERT_TRUE(Run(fleet.decode(), first).status.ok());
  // A stranger who knows what to ask for.
  fleet::v1::FetchRequest request;
  *request.mutable_fingerprint() = first.fingerprint();
  std::vector<TokenId> ids;
  for (int32_t id : prompt) ids.emplace_back(id);
  const auto chain = kv::HashChain(engine_->RootFor(kv::TenantSalt(first.salt())), ids);
  for (const kv::BlockHash& hash : chain) {
    request.mutable_hashes()->append(hash.bytes());
    request.mutable_ticket()->add_generations(1);
  }
  const auto fetch = [&](const rpc::Security* security) {
    const auto stub = fleet::v1::Blocks::NewStub(rpc::MakeChannel(fleet.prefill(0).grpc(), {}, security));
    grpc::ClientContext context;
    const auto reader = stub->Fetch(&context, request);
    int events = 0;
    for (fleet::v1::FetchEvent event; reader->Read(&event);) ++events;
    return std::pair(events, reader->Finish().error_code());
  };
  EXPECT_EQ(fetch(nullptr), std::pair(0, grpc::StatusCode::UNAUTHENTICATED));
  EXPECT_EQ(Metric(fleet.prefill(0), "baton_worker_denied_total"), 1);
  EXPECT_EQ(Metric(fleet.prefill(0), "baton_peer_served_blocks_total"), 0);
  EXPECT_GT(fetch(security_.get()).first, 1) << "the control: it is there for the fleet";
  // And the fleet's own workers do.
  const auto longer = Joined(prompt, Tokens(14, 40));
  fleet::v1::DecodeRequest second = RequestTo(fleet.decode(), longer, 6);
  second.set_salt(first.salt());
  Hint(AddTarget(second, fleet.prefill(1))->mutable_fetch(), fleet.prefill(0), prompt.size());
  const Answer answer = Run(fleet.decode(), second);
  ExpectAsAlone(answer, longer, 6);
  EXPECT_EQ(answer.end().relay().fetched_tokens(), 96u);
}

TEST_F(FetchTest, BadRequestsAreToldWhatIsWrong) {
  Fleet fleet;
  const auto stub = fleet::v1::Blocks::NewStub(rpc::MakeChannel(fleet.prefill().grpc()));
  const auto ask = [&](const fleet::v1::FetchRequest& request) {
    grpc::ClientContext context;
    const auto reader = stub->Fetch(&context, request);
    fleet::v1::FetchEvent event;
    while (reader->Read(&event)) {
    }
    return reader->Finish();
  };
  fleet::v1::FetchRequest request;
  EXPECT_EQ(ask(request).error_code(), grpc::StatusCode::FAILED_PRECONDITION) << "no fingerprint";
  *request.mutable_fingerprint() = InfoOf(fleet.prefill()).fingerprint();
  EXPECT_THAT(ask(request).error_message(), testing::HasSubstr("hashes: 0 bytes"));
  request.set_hashes(std::string(17, 'h'));
  EXPECT_THAT(ask(request).error_message(), testing::HasSubstr("hashes: 17 bytes"));
  request.set_hashes(std::string(32, 'h'));
  EXPECT_THAT(ask(request).error_message(), testing::HasSubstr("ticket: covers blocks [0, 0)"));
  request.mutable_ticket()->add_generations(1);
  request.mutable_ticket()->add_generations(1);
  EXPECT_TRUE(ask(request).ok()) << "unknown hashes are no error: nothing is found";
}

// Through the router: the decode worker that has the conversation is busy with another answer, so the next
// turn is computed on the prefill worker, which lacks the last answer.
TEST_F(FetchTest, TheRouterNamesAPeerAndTheConversationGoesOnUnchanged) {
  // Any step is beyond this target, so to hold up the answer that runs is dear, and the prompt goes
  // elsewhere.
  Fleet fleet({.prefill = 1,
               .decode = 1,
               .prefill_flags = kAlways,
               .router_flags = {"--slo-tpot", "0.0001"},
               .gated = true});
  const auto ask = [](const std::vector<int32_t>& prompt, uint32_t tokens) {
    v1::GenerateRequest request = TokenRequest(prompt, tokens);
    request.mutable_sampling()->set_repetition_penalty(1);
    request.mutable_options()->set_debug(true);
    return request;
  };
  // So short that the decode worker computes it. No transfer is seen, and what one takes, as the router
  // assumes, is a small part of what the next turn takes to compute.
  const auto prompt = Tokens(100, 30);
  const Answer one = fleet.Generate(ask(prompt, 900));
  ExpectAsAlone(one, prompt, 900);
  const auto next = Joined(Joined(prompt, one.tokens), Tokens(1100, 1000));
  constexpr uint32_t kWhole = (30 + 900 - 1) / kBlockTokens;
  const auto knows_them = [&] {
    return Metric(fleet.router(), "baton_router_index_pairs") -
               Metric(fleet.router(), "baton_router_index_speculative_pairs") >=
           kWhole;
  };
  ASSERT_TRUE(Await(knows_them, "the router to know of the answer's blocks"));
  // An answer that does not end before the next turn has its place.
  fleet.decode_gates().Allow(20);
  Answer beside, two;
  std::jthread other([&] { beside = fleet.Generate(TokenRequest(Tokens(2100, 20), 2000)); });
  EXPECT_TRUE(fleet.decode_gates()[0].AwaitUsed());
  std::jthread client([&] { two = fleet.Generate(ask(next, 12)); });
  const std::string fetched = "baton_peer_fetches_total{link=\"host\",outcome=\"complete\"}";
  EXPECT_TRUE(Await([&] { return Metric(fleet.prefill(), fetched) == 1; }, fetched));
  fleet.decode_gates().Open();
  client.join();
  other.join();
  ASSERT_TRUE(beside.status.ok()) << beside.status;
  ExpectAsAlone(two, next, 12);
  EXPECT_EQ(two.end().placement().reason(), "fetch");
  EXPECT_EQ(two.end().placement().fetch_from(), "decode-0");
  EXPECT_EQ(two.end().placement().fetch_blocks(), kWhole);
  EXPECT_EQ(two.end().relay().fetched_tokens(), kWhole * kBlockTokens);
  EXPECT_EQ(two.end().relay().fetched_from(), "decode-0");
  fleet.ExpectNothingHeld();
}

}  // namespace
}  // namespace baton::e2e
