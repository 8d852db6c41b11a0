// A request's usage at its end, whichever end that is.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "tests/seed.h"
#include "tests/unit/router/request_flow_fixture.h"

namespace baton::router {
namespace {

using billing::TokenCounts;

baton::fleet::v1::DecodeEvent AcceptedWith(uint32_t cached) {
  baton::fleet::v1::DecodeEvent event;
  event.mutable_accepted()->set_cached_tokens(cached);
  return event;
}

baton::fleet::v1::DecodeEvent FirstToken(uint32_t decode_cached, uint32_t prefill_cached) {
  baton::fleet::v1::DecodeEvent event = Token("a");
  v1::Usage* const usage = event.mutable_opening()->mutable_usage();
  usage->set_decode_cached_tokens(decode_cached);
  usage->set_prefill_cached_tokens(prefill_cached);
  return event;
}

int64_t PromptOf(const v1::Usage& usage) {
  return int64_t{usage.cached_tokens()} + usage.written_five_minutes_tokens() + usage.written_hour_tokens() +
         usage.plain_tokens();
}

// Part of a session: a prompt of three blocks and one more token.
Prepared InSession(Prepared prepared, const char* session, uint64_t system = 1) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < 3 * kBlockTokens + 1; ++i) tokens.emplace_back(i + 100 * static_cast<int>(system));
  prepared.request.clear_token_ids();
  for (const TokenId token : tokens) prepared.request.add_token_ids(token.value());
  prepared.chain = kv::HashChain(kv::RootHash("domain", kv::TenantSalt("tenant")), tokens);
  prepared.session_key = SessionKey(session, kv::TenantSalt("tenant"));
  prepared.sections.system = system;
  return prepared;
}

TEST_F(RequestFlowTest, AMissOfASessionIsExplained) {
  const auto run = [&](const char* session, uint64_t system, int worker, uint32_t cached,
                       LastWorker last_worker = {}) {
    Make();
    const Actions begun = flow_->OnPrepared(InSession(Request(), session, system));
    Placement placement = Place(worker);
    placement.last_worker = last_worker;
    flow_->OnPlaced(0, std::move(placement));
    flow_->OnDecodeEvent(0, 1, AcceptedWith(cached));
    flow_->OnWritten(true);
    flow_->OnDecodeEvent(0, 1, FirstToken(cached, 0));
    flow_->OnWritten(true);
    baton::fleet::v1::DecodeEvent done = Done();
    done.mutable_finished()->mutable_usage()->set_retained_tokens(32);
    done.mutable_finished()->mutable_cache_miss()->set_tokens(7);  // no worker knows
    const Actions end = flow_->OnDecodeEvent(0, 1, std::move(done));
    const v1::Finished& finished = Only<WriteLast>(end).response.finished();
    EXPECT_EQ(finished.usage().retained_tokens(), 32u);
    const auto& submitted = Only<Submit>(begun).request.last_worker;
    return std::string(submitted.has_value() ? "on " + std::to_string(submitted->value()) + ": " : "") +
           (finished.has_cache_miss() ? MissReasonName(finished.cache_miss().reason()) + " " +
                                            std::to_string(finished.cache_miss().tokens())
                                      : "none");
  };
  EXPECT_EQ(run("s", 1, 0, 0), "first 48");
  EXPECT_EQ(run("s", 1, 0, 48), "on 1: none");
  EXPECT_EQ(run("t", 1, 0, 48), "none") << "another session found it all";
  EXPECT_EQ(run("s", 1, 1, 0, {.here = true, .blocks = 3}), "on 1: placement 48");
  EXPECT_EQ(run("s", 1, 1, 16, {.here = true, .blocks = 1}), "on 2: evicted 32");
  EXPECT_EQ(run("s", 1, 0, 0, {.here = false, .blocks = 0}), "on 2: worker_lost 48");
  EXPECT_EQ(run("s", 2, 0, 0, {.here = true, .blocks = 0}), "on 1: system 48");
  EXPECT_EQ(run("s", 2, 0, 48, {.here = true, .blocks = 3}), "on 1: none");
}

TEST_F(RequestFlowTest, WithoutASessionNoMissIsTold) {
  Run();
  flow_->OnWritten(true);
  flow_->OnDecodeEvent(0, 1, FirstToken(0, 0));
  flow_->OnWritten(true);
  EXPECT_FALSE(Only<WriteLast>(flow_->OnDecodeEvent(0, 1, Done())).response.finished().has_cache_miss());
  EXPECT_EQ(sessions_.size(), 0u);
}

TEST_F(RequestFlowTest, WhatIsWrittenUnderAMarkCountsOnceItIsComputed) {
  for (const bool first_token : {false, true}) {
    Make();
    flow_->OnPrepared(InSession(Request(), "s"));
    flow_->OnPlaced(0, Place(0));
    flow_->OnDecodeEvent(0, 1, AcceptedWith(16));
    flow_->OnWritten(true);
    baton::fleet::v1::DecodeEvent event = FirstToken(16, 0);
    event.mutable_opening()->mutable_usage()->set_written_hour_tokens(16);
    event.mutable_opening()->mutable_usage()->set_written_five_minutes_tokens(16);
    if (first_token) flow_->OnDecodeEvent(0, 1, std::move(event));
    flow_->OnCancelled();
    const TokenCounts expected = first_token ? TokenCounts{.decode_cached = 16,
                                                           .written_5m = 16,
                                                           .written_1h = 16,
                                                           .plain = 1,
                                                           .completion = 1}
                                             : TokenCounts{.decode_cached = 16, .plain = 33};
    EXPECT_EQ(flow_->account().Total(), expected);
    if (first_token) flow_->OnWritten(true);
  }
}

TEST_F(RequestFlowTest, ARefusedRequestHasUsedNothing) {
  Make();
  flow_->OnPrepared(absl::InvalidArgumentError("no"));
  EXPECT_FALSE(flow_->account().counted());
}

TEST_F(RequestFlowTest, ARequestThatNoWorkerAcceptedHasUsedNothing) {
  Make();
  flow_->OnPrepared(Request());
  flow_->OnPlaced(0, Place(0));
  flow_->OnCancelled();
  EXPECT_FALSE(flow_->account().counted());
}

TEST_F(RequestFlowTest, ADeadlineWhileThePromptIsComputedChargesThePromptAndNoAnswer) {
  Make(clock_.Now() + absl::Seconds(1));
  flow_->OnPrepared(Request());
  flow_->OnPlaced(0, Place(0));
  flow_->OnDecodeEvent(0, 1, AcceptedWith(1));
  flow_->OnWritten(true);
  clock_.Advance(absl::Seconds(2));
  const Actions end = flow_->OnCancelled();
  EXPECT_EQ(flow_->account().Total(), (TokenCounts{.decode_cached = 1, .plain = 1}));
  EXPECT_EQ(Only<Finish>(end).used.prompt_tokens, 2);
  EXPECT_EQ(Only<Finish>(end).used.output_tokens, 0);
}

TEST_F(RequestFlowTest, ACancelledAnswerCountsTheTokensThatCameAndTheirThinking) {
  Run();
  flow_->OnWritten(true);
  baton::fleet::v1::DecodeEvent first = FirstToken(0, 1);
  first.set_thinking_tokens(1);
  flow_->OnDecodeEvent(0, 1, first);
  flow_->OnWritten(true);
  baton::fleet::v1::DecodeEvent second = Token("b");
  second.set_thinking_tokens(2);
  flow_->OnDecodeEvent(0, 1, second);
  flow_->OnCancelled();
  flow_->OnWritten(false);
  EXPECT_EQ(flow_->account().Total(),
            (TokenCounts{.prefill_cached = 1, .plain = 1, .completion = 2, .thinking = 2}));
}

TEST_F(RequestFlowTest, AnAnswerThatMovedAndFailsCountsEachTokenOnce) {
  Run();
  flow_->OnWritten(true);
  flow_->OnDecodeEvent(0, 1, FirstToken(1, 0));
  flow_->OnWritten(true);
  flow_->OnDecodeEnd(0, 1, absl::UnavailableError("gone"));
  flow_->OnPlaced(0, Place(1));
  flow_->OnDecodeEvent(0, 2, AcceptedWith(2));
  flow_->OnDecodeEvent(0, 2, Token("b"));
  flow_->OnWritten(true);
  flow_->OnDecodeEnd(0, 2, absl::InternalError("broken"));
  EXPECT_EQ(flow_->account().Total(), (TokenCounts{.decode_cached = 1, .plain = 1, .completion = 2}));
}

TEST_F(RequestFlowTest, DraftsOfALostWorkerCountAndThoseOfTheNextAreAdded) {
  Run();
  flow_->OnWritten(true);
  baton::fleet::v1::DecodeEvent first = FirstToken(0, 1);
  first.set_drafted_tokens(4);
  first.set_accepted_tokens(3);
  flow_->OnDecodeEvent(0, 1, first);
  flow_->OnWritten(true);
  flow_->OnDecodeEnd(0, 1, absl::UnavailableError("gone"));
  flow_->OnPlaced(0, Place(1));
  flow_->OnDecodeEvent(0, 2, AcceptedWith(2));
  baton::fleet::v1::DecodeEvent second = Token("b");
  second.set_drafted_tokens(2);
  second.set_accepted_tokens(1);
  flow_->OnDecodeEvent(0, 2, second);
  EXPECT_EQ(flow_->account().Total().drafted, 6);
  EXPECT_EQ(flow_->account().Total().accepted, 4);
  flow_->OnWritten(true);
  baton::fleet::v1::DecodeEvent done = Done();
  done.mutable_finished()->mutable_usage()->set_drafted_tokens(7);  // its own, to the end
  done.mutable_finished()->mutable_usage()->set_accepted_tokens(2);
  const Actions end = flow_->OnDecodeEvent(0, 2, done);
  const v1::Usage& usage = Only<WriteLast>(end).response.finished().usage();
  EXPECT_EQ(usage.drafted_tokens(), 11u);
  EXPECT_EQ(usage.accepted_tokens(), 5u);
  EXPECT_EQ(usage.completion_tokens(), 2u) << "they are in no other count";
}

TEST_F(RequestFlowTest, CostsOfChoicesAddUpToTheRequestsAndThePromptIsChargedOnce) {
  Make();
  Prepared prepared = Request(2);
  prepared.price = std::make_shared<billing::Price>(
      billing::Price{.currency = "EUR", .prompt = 1000, .cached = 100, .completion = 7});
  flow_->OnPrepared(prepared);
  for (int choice : {0, 1}) {
    flow_->OnPlaced(choice, Place(choice));
    flow_->OnDecodeEvent(choice, 1, Accepted());
  }
  flow_->OnWritten(true);
  std::vector<v1::Finished> finished;
  const auto keep = [&](const Actions& actions) {
    for (const Action& action : actions) {
      const auto* write = std::get_if<Write>(&action);
      const auto* last = std::get_if<WriteLast>(&action);
      const v1::GenerateResponse* sent = write != nullptr  ? &write->response
                                         : last != nullptr ? &last->response
                                                           : nullptr;
      if (sent != nullptr && sent->has_finished()) finished.push_back(sent->finished());
    }
  };
  keep(flow_->OnDecodeEvent(1, 1, FirstToken(1, 0)));
  keep(flow_->OnWritten(true));
  keep(flow_->OnDecodeEvent(0, 1, FirstToken(0, 0)));
  keep(flow_->OnWritten(true));
  keep(flow_->OnDecodeEvent(0, 1, Done()));
  keep(flow_->OnWritten(true));
  keep(flow_->OnDecodeEvent(1, 1, Done()));
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[0].choice(), 0u);
  EXPECT_EQ(finished[0].cost().picos(), 7) << "the other choice bears the prompt";
  EXPECT_EQ(finished[1].cost().picos(), 1000 + 100 + 7);
  EXPECT_EQ(finished[1].cost().currency(), "EUR");
  EXPECT_EQ(billing::CostOf(*prepared.price, flow_->account().Total()), 1000 + 100 + 7 + 7);
}

TEST_F(RequestFlowTest, WithoutAPriceThereIsNoCost) {
  Run();
  flow_->OnWritten(true);
  baton::fleet::v1::DecodeEvent done = Done();
  done.mutable_finished()->mutable_cost()->set_picos(5);  // a worker has no say in it
  EXPECT_FALSE(Only<WriteLast>(flow_->OnDecodeEvent(0, 1, done)).response.finished().has_cost());
}

// Any order of events that workers and the dispatcher can produce, with any numbers in them. What clients are
// told adds up, and so does the account, by a count of the test's own.
TEST_F(RequestFlowTest, UsageAddsUpUnderRandomEvents) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto draw = [&](int below) { return static_cast<int>(UniformAt(seed, draws++) * below); };
  int told = 0, bad_ends = 0;
  for (int round = 0; round < 1000; ++round) {
    Make();
    const int choices = 1 + draw(3);
    Prepared prepared = Request(choices);
    for (int i = draw(100); i > 0; --i) prepared.request.add_token_ids(3);
    const int64_t prompt = prepared.request.token_ids_size();
    std::vector<int64_t> came(choices), thinking(choices);
    std::vector<bool> dialed(choices), running(choices);
    bool writing = false, ended = false, over = false, accepted = false;
    const auto perform = [&](const Actions& actions) {
      for (const Action& action : actions) {
        const v1::GenerateResponse* sent = nullptr;
        if (const auto* write = std::get_if<Write>(&action)) sent = &write->response;
        if (const auto* last = std::get_if<WriteLast>(&action)) sent = &last->response;
        ended |= std::holds_alternative<Withdraw>(action);  // a bad end; what comes after it does not count
        writing |= std::holds_alternative<Write>(action);
        over |= std::holds_alternative<WriteLast>(action) || std::holds_alternative<Finish>(action);
        if (const auto* dial = std::get_if<Dial>(&action)) dialed[dial->choice] = true;
        if (sent == nullptr || !sent->has_finished()) continue;
        const v1::Usage& usage = sent->finished().usage();
        ++told;
        EXPECT_EQ(usage.prompt_tokens(), prompt);
        EXPECT_EQ(PromptOf(usage), prompt);
        EXPECT_EQ(usage.completion_tokens(), came[sent->finished().choice()]);
        EXPECT_LE(usage.thinking_tokens(), usage.completion_tokens());
      }
    };
    std::vector<int> attempts(choices, 0);
    perform(flow_->OnPrepared(prepared));
    for (int choice = 0; choice < choices; ++choice) {
      ++attempts[choice];
      perform(flow_->OnPlaced(choice, Place(draw(2))));
    }
    for (int step = 0; step < 60 && !over && !ended; ++step) {
      const int choice = draw(choices);
      if (writing && draw(2) == 0) {
        writing = false;
        perform(flow_->OnWritten(true));
        continue;
      }
      if (!dialed[choice]) continue;
      if (!running[choice]) {
        running[choice] = accepted = true;
        perform(flow_->OnDecodeEvent(choice, attempts[choice], AcceptedWith(draw(150))));
        continue;
      }
      switch (draw(12)) {
        case 0: {
          baton::fleet::v1::DecodeEvent done = Done();
          done.mutable_finished()->mutable_usage()->set_decode_cached_tokens(draw(150));
          done.mutable_finished()->mutable_usage()->set_prefill_cached_tokens(draw(150));
          done.mutable_finished()->mutable_usage()->set_written_five_minutes_tokens(draw(150));
          done.mutable_finished()->mutable_usage()->set_thinking_tokens(draw(20));
          dialed[choice] = false;
          perform(flow_->OnDecodeEvent(choice, attempts[choice], done));
          break;
        }
        case 1: {
          running[choice] = false;
          perform(flow_->OnDecodeEnd(choice, attempts[choice], absl::UnavailableError("gone")));
          if (ended) break;
          ++attempts[choice];
          perform(flow_->OnPlaced(choice, Place(draw(2))));
          break;
        }
        case 2:
          if (draw(4) == 0) {
            ++bad_ends;
            perform(flow_->OnCancelled());
          }
          break;
        default: {
          baton::fleet::v1::DecodeEvent event =
              came[choice] == 0 ? FirstToken(draw(150), draw(150)) : Token("t");
          thinking[choice] += draw(2);
          event.set_thinking_tokens(thinking[choice]);
          ++came[choice];
          perform(flow_->OnDecodeEvent(choice, attempts[choice], event));
        }
      }
    }
    if (!over) perform(flow_->OnCancelled());
    if (writing && !over) perform(flow_->OnWritten(false));
    const TokenCounts total = flow_->account().Total();
    ASSERT_EQ(flow_->account().counted(), accepted);
    ASSERT_EQ(total.prompt(), accepted ? prompt : 0);
    int64_t all = 0;
    for (int64_t tokens : came) all += tokens;
    ASSERT_EQ(total.completion, all);
    ASSERT_LE(total.thinking, total.completion);
  }
  EXPECT_GT(told, 100) << "the rounds never get to an end";
  EXPECT_GT(bad_ends, 20);
}

}  // namespace
}  // namespace baton::router
