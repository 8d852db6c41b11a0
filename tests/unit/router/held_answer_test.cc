// Answers that outlive their calls: real drivers, answers and registry between fake clients and scripted
// decode workers.
#include "router/api/held_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "common/rpc/status.h"
#include "tests/seed.h"
#include "tests/unit/router/driver_fixture.h"

namespace baton::router {
namespace {

class HeldAnswerTest : public DriverTest {
 protected:
  // A call and its client, who takes each message at once if `eager`.
  struct Call {
    std::shared_ptr<FakeClient> client = std::make_shared<FakeClient>();
    std::shared_ptr<RequestDriver> driver;

    void Take(bool ok = true) {
      ASSERT_TRUE(client->writing);
      client->writing = false;
      driver->OnWritten(ok);
    }
    void TakeAll() {
      while (client->writing) Take();
    }
    // Goes away, and loses the message that is on its way to it.
    void Leave() {
      driver->OnCancelled();
      if (client->writing) Take(false);
    }
    // The texts of the deltas.
    std::string Text() const {
      std::string text;
      for (const v1::GenerateResponse& message : client->messages) text += message.delta().text();
      return text;
    }
    bool Ended() const { return client->status.has_value(); }
  };

  HeldAnswerTest() { context_.held = &held_; }

  static v1::GenerateRequest Keyed(const std::string& key = "key") {
    v1::GenerateRequest request = Tokens();
    request.mutable_options()->set_idempotency_key(key);
    return request;
  }
  Call Ask(const v1::GenerateRequest& request, absl::Time deadline = absl::InfiniteFuture()) {
    Call call;
    call.driver = RequestDriver::Create(context_, call.client, deadline, "Generate");
    call.driver->Start<v1::GenerateRequest>({}, 100, [request](v1::GenerateRequest* parsed) {
      *parsed = request;
      return absl::OkStatus();
    });
    return call;
  }
  Call Resume(const v1::ResumeRequest& request) {
    Call call;
    call.driver = RequestDriver::Create(context_, call.client, absl::InfiniteFuture(), "Resume");
    call.driver->Resume({}, 100, [request](v1::ResumeRequest* parsed) {
      *parsed = request;
      return absl::OkStatus();
    });
    return call;
  }
  static v1::ResumeRequest After(const std::string& id, uint32_t tokens) {
    v1::ResumeRequest request;
    request.set_request_id(id);
    request.add_after_tokens(tokens);
    return request;
  }
  // The build of the workers that are up.
  std::string Build() const {
    return preparer_.models().default_model().BuildWith(fleet_.view()->answer_digest);
  }
  FakeDecodeClient::Worker& Worker() { return *workers_.calls.back(); }
  static std::string IdOf(const Call& call) { return call.client->messages.at(0).started().request_id(); }
  // A call whose answer has begun: "a" and "b" are with the client, and taken.
  Call Begin(const v1::GenerateRequest& request) {
    Call call = Ask(request);
    Worker().Send(AcceptedEvent());
    call.Take();
    for (const char* text : {"a", "b"}) {
      Worker().Send(TokenEvent(text));
      call.Take();
    }
    return call;
  }

  // Tokens of prompts or answers that tenants were charged for.
  int64_t Charged(const std::string& what) const {
    const std::string text = metrics_.Text(), name = "baton_router_tenant_" + what + "_tokens_total{";
    const size_t line = text.find("\n" + name);
    return line == std::string::npos ? 0 : std::stoll(text.substr(text.find('}', line) + 2));
  }

  HeldAnswers held_{clock_, metrics_};
};

TEST_F(HeldAnswerTest, ARetryWithTheSameKeyReadsTheRunningAnswer) {
  Call first = Begin(Keyed());
  Call second = Ask(Keyed());
  second.TakeAll();
  EXPECT_EQ(second.Text(), "ab");
  EXPECT_EQ(IdOf(second), IdOf(first));
  EXPECT_EQ(workers_.calls.size(), 1u) << "nothing is computed twice";

  Worker().Send(TokenEvent("c"));
  first.Take();
  second.Take();
  Worker().Send(FinishedEvent());
  for (const Call* call : {&first, &second}) {
    ASSERT_TRUE(call->Ended());
    EXPECT_TRUE(call->client->status->ok()) << *call->client->status;
    EXPECT_EQ(call->Text(), "abc");
    EXPECT_TRUE(call->client->messages.back().has_finished());
    EXPECT_EQ(call->client->usage->usage().completion_tokens(), 3u);
  }
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(HeldAnswerTest, AnAnswerWithoutReadersIsNotComputed) {
  Call first = Begin(Keyed());
  first.Leave();
  EXPECT_TRUE(Worker().cancelled);
  ASSERT_TRUE(first.Ended());
  EXPECT_TRUE(absl::IsCancelled(*first.client->status));
  EXPECT_EQ(first.client->usage->usage().completion_tokens(), 2u) << "the end tells what was used";
  EXPECT_EQ(Bookings(), 0);
}

TEST_F(HeldAnswerTest, ARetryGoesOnWhereTheAnswerWasLeft) {
  Begin(Keyed()).Leave();
  Call second = Ask(Keyed());
  ASSERT_EQ(workers_.calls.size(), 2u);
  EXPECT_EQ(Worker().request.resumed_tokens(), 2u);
  EXPECT_EQ(Worker().request.token_ids_size(), 5);
  EXPECT_EQ(Worker().request.sampling().seed(), 5u);
  second.TakeAll();
  EXPECT_EQ(second.Text(), "ab") << "at once, from the memory of the router";
  Worker().Send(AcceptedEvent());
  Worker().Send(TokenEvent("c"));
  second.Take();
  Worker().Send(FinishedEvent());
  ASSERT_TRUE(second.Ended());
  EXPECT_TRUE(second.client->status->ok()) << *second.client->status;
  EXPECT_EQ(second.Text(), "abc");
  EXPECT_EQ(second.client->usage->usage().completion_tokens(), 3u) << "as of a call that was never cut";
  EXPECT_EQ(second.client->usage->usage().prompt_tokens(), 3u);
}

TEST_F(HeldAnswerTest, AClientResumesBehindTheTokensThatItHas) {
  Call first = Begin(Keyed());
  const std::string id = IdOf(first);
  first.Leave();
  Call second = Resume(After(id, 1));
  second.TakeAll();
  EXPECT_TRUE(second.client->messages.at(0).has_started());
  EXPECT_EQ(second.Text(), "b");
  Worker().Send(AcceptedEvent());
  Worker().Send(TokenEvent("c"));
  second.Take();
  Worker().Send(FinishedEvent());
  EXPECT_EQ(second.Text(), "bc");
  ASSERT_TRUE(second.Ended());
  EXPECT_TRUE(second.client->status->ok());
  // Whoever has all of it is told its end again.
  Call third = Resume(After(id, 3));
  third.TakeAll();
  EXPECT_EQ(third.Text(), "");
  EXPECT_TRUE(third.client->messages.back().has_finished());
  EXPECT_TRUE(third.client->status->ok());
  EXPECT_EQ(workers_.calls.size(), 2u);
}

TEST_F(HeldAnswerTest, TokensThatCameAndWereNotWrittenAreKept) {
  Call first = Ask(Keyed());
  Worker().Send(AcceptedEvent());
  first.Take();
  Worker().Send(TokenEvent("a"));
  Worker().Send(TokenEvent("b"));  // behind "a", which the client does not take
  first.Leave();
  Call second = Ask(Keyed());
  second.TakeAll();
  EXPECT_EQ(second.Text(), "ab");
  EXPECT_EQ(Worker().request.resumed_tokens(), 2u);
  second.Leave();
}

TEST_F(HeldAnswerTest, AnAnswerThatEndedBehindItsLastClientIsWhole) {
  Call first = Ask(Keyed());
  Worker().Send(AcceptedEvent());
  first.Take();
  Worker().Send(TokenEvent("a"));
  Worker().Send(FinishedEvent());
  first.Leave();
  Call second = Ask(Keyed());
  second.TakeAll();
  EXPECT_EQ(second.Text(), "a");
  ASSERT_TRUE(second.Ended());
  EXPECT_TRUE(second.client->status->ok()) << *second.client->status;
  EXPECT_EQ(second.client->usage->usage().completion_tokens(), 1u);
  EXPECT_EQ(workers_.calls.size(), 1u);
}

TEST_F(HeldAnswerTest, ARefusedRequestLeavesNothing) {
  v1::GenerateRequest request = Keyed();
  request.mutable_stop()->set_max_tokens(5000);
  Call first = Ask(request);
  EXPECT_TRUE(absl::IsInvalidArgument(*first.client->status));
  EXPECT_EQ(held_.ById(tenant_, rpc::RequestIdOf(*first.client->status)), nullptr);
  Call second = Ask(Keyed());
  EXPECT_EQ(workers_.calls.size(), 1u) << "the key is free";
  second.Leave();
  Call third = Ask(Keyed());
  EXPECT_EQ(workers_.calls.size(), 2u) << "no worker had accepted it";
  third.Leave();
}

TEST_F(HeldAnswerTest, AKeyNamesOneRequest) {
  Call first = Begin(Keyed());
  v1::GenerateRequest other = Keyed();
  other.mutable_stop()->set_max_tokens(7);
  Call refused = Ask(other);
  ASSERT_TRUE(refused.Ended());
  EXPECT_TRUE(absl::IsInvalidArgument(*refused.client->status));
  EXPECT_EQ(rpc::ReasonOf(*refused.client->status), "IDEMPOTENCY_KEY_REUSED");

  v1::GenerateRequest seeded = Keyed();
  seeded.mutable_sampling()->set_seed(6);
  EXPECT_EQ(rpc::ReasonOf(*Ask(seeded).client->status), "IDEMPOTENCY_KEY_REUSED");
  seeded.mutable_sampling()->set_seed(5);  // the one that was drawn
  Call same = Ask(seeded);
  EXPECT_FALSE(same.Ended());
  same.Leave();
  first.Leave();

  v1::GenerateRequest long_key = Keyed(std::string(129, 'k'));
  EXPECT_TRUE(absl::IsInvalidArgument(*Ask(long_key).client->status));
}

TEST_F(HeldAnswerTest, AnotherTenantFindsNothing) {
  Call first = Begin(Keyed());
  EXPECT_NE(held_.ById(tenant_, IdOf(first)), nullptr);
  EXPECT_EQ(held_.ById(admission::TenantId(tenant_.value() + 1), IdOf(first)), nullptr);
  first.Leave();
}

TEST_F(HeldAnswerTest, AnAnswerThatIsNotHeldIsComputedAnewFromItsRequest) {
  const std::string id = "0123456789abcdef";
  Call unknown = Resume(After(id, 2));
  ASSERT_TRUE(unknown.Ended());
  EXPECT_TRUE(absl::IsNotFound(*unknown.client->status));
  EXPECT_EQ(rpc::ReasonOf(*unknown.client->status), "ANSWER_NOT_HELD");

  v1::ResumeRequest request = After(id, 2);
  *request.mutable_generate() = Keyed();
  Call seedless = Resume(request);
  EXPECT_TRUE(absl::IsInvalidArgument(*seedless.client->status)) << "another seed is another answer";
  request.mutable_generate()->mutable_sampling()->set_seed(17);
  Call buildless = Resume(request);
  EXPECT_TRUE(absl::IsInvalidArgument(*buildless.client->status)) << "so is another build's";
  EXPECT_THAT(std::string(buildless.client->status->message()), testing::StartsWith("options.build: "));
  request.mutable_generate()->mutable_options()->set_build("0123456789abcdef");
  Call other = Resume(request);
  EXPECT_EQ(rpc::ReasonOf(*other.client->status), "BUILD_NOT_SERVED") << *other.client->status;
  EXPECT_EQ(rpc::ReasonMetadata(*other.client->status, "build"), Build());

  request.mutable_generate()->mutable_options()->set_build(Build());
  Call call = Resume(request);
  EXPECT_EQ(Worker().request.sampling().seed(), 17u);
  EXPECT_TRUE(Worker().request.output().even_frames()) << "a delta ends behind every token";
  Worker().Send(AcceptedEvent());
  call.TakeAll();
  EXPECT_EQ(IdOf(call), id);
  for (const char* text : {"a", "b", "c"}) Worker().Send(TokenEvent(text)), call.TakeAll();
  Worker().Send(FinishedEvent());
  EXPECT_EQ(call.Text(), "c");
  EXPECT_TRUE(call.client->status->ok());
  EXPECT_EQ(call.client->usage->usage().completion_tokens(), 3u);
  // It is held under its key, too.
  v1::GenerateRequest again = Keyed();
  again.mutable_sampling()->set_seed(17);
  Call retry = Ask(again);
  retry.TakeAll();
  EXPECT_EQ(retry.Text(), "abc");
  EXPECT_EQ(workers_.calls.size(), 1u);
}

TEST_F(HeldAnswerTest, AWrongIdOrPlaceIsRefusedByField) {
  EXPECT_THAT(std::string(Resume(After("no id", 0)).client->status->message()),
              testing::StartsWith("request_id: "));
  Call first = Ask(Keyed());
  Worker().Send(AcceptedEvent());
  first.TakeAll();
  baton::fleet::v1::DecodeEvent two = TokenEvent("ab");
  two.mutable_delta()->set_tokens(2);
  two.mutable_delta()->add_token_ids(8);
  Worker().Send(two);
  first.TakeAll();
  Call inside = Resume(After(IdOf(first), 1));
  inside.TakeAll();
  ASSERT_TRUE(inside.Ended());
  EXPECT_THAT(std::string(inside.client->status->message()), testing::StartsWith("after_tokens[0]: 1 "));
  v1::ResumeRequest many = After(IdOf(first), 0);
  for (int i = 0; i < 8; ++i) many.add_after_tokens(0);
  EXPECT_THAT(std::string(Resume(many).client->status->message()), testing::StartsWith("after_tokens: 9 "));
  first.Leave();
}

TEST_F(HeldAnswerTest, ASlowReaderHoldsNobodyUpAndIsGivenUpAlone) {
  Call fast = Begin(Keyed());
  Call slow = Ask(Keyed());
  EXPECT_TRUE(slow.client->writing) << "it does not take Started";
  for (const char* text : {"c", "d", "e"}) {
    Worker().Send(TokenEvent(text));
    fast.Take();
  }
  clock_.Advance(absl::Seconds(31));
  live_.EndDue();
  for (const auto& end : {slow.driver->IfStalled(clock_.Now())}) {
    ASSERT_NE(end, nullptr);
    end();
  }
  ASSERT_TRUE(slow.client->aborted.has_value());
  slow.Take(false);
  ASSERT_TRUE(slow.Ended());
  EXPECT_TRUE(absl::IsAborted(*slow.client->status));
  EXPECT_FALSE(fast.Ended());
  Worker().Send(FinishedEvent());
  EXPECT_TRUE(fast.client->status->ok());
  EXPECT_EQ(fast.Text(), "abcde");
}

TEST_F(HeldAnswerTest, AnAnswerGoesOnWhenItsFirstCallEnds) {
  Call first = Begin(Keyed());
  Call second = Ask(Keyed());
  second.TakeAll();
  first.Leave();
  ASSERT_TRUE(first.Ended());
  EXPECT_FALSE(Worker().cancelled) << "the other one reads on";
  Worker().Send(TokenEvent("c"));
  second.Take();
  // The worker ends the call at the deadline that the first one had.
  Worker().End(absl::DeadlineExceededError("late"));
  ASSERT_EQ(workers_.calls.size(), 2u);
  EXPECT_EQ(Worker().request.resumed_tokens(), 3u);
  Worker().Send(AcceptedEvent());
  Worker().Send(TokenEvent("d"));
  second.Take();
  Worker().Send(FinishedEvent());
  ASSERT_TRUE(second.Ended());
  EXPECT_TRUE(second.client->status->ok()) << *second.client->status;
  EXPECT_EQ(second.Text(), "abcd");
  EXPECT_EQ(second.client->usage->usage().completion_tokens(), 4u);
}

TEST_F(HeldAnswerTest, AFailureReachesEveryClientAndTheAnswerMayGoOnLater) {
  context_.max_migrations = 0;
  Call first = Begin(Keyed());
  Call second = Ask(Keyed());
  second.TakeAll();
  Worker().End(absl::UnavailableError("gone"));
  for (const Call* call : {&first, &second}) {
    ASSERT_TRUE(call->Ended());
    EXPECT_TRUE(absl::IsUnavailable(*call->client->status)) << *call->client->status;
    EXPECT_EQ(rpc::RequestIdOf(*call->client->status), IdOf(first));
  }
  Call third = Resume(After(IdOf(first), 2));
  EXPECT_EQ(Worker().request.resumed_tokens(), 2u);
  Worker().Send(AcceptedEvent());
  Worker().Send(TokenEvent("c"));
  third.TakeAll();
  Worker().Send(FinishedEvent());
  EXPECT_EQ(third.Text(), "c");
  EXPECT_TRUE(third.client->status->ok());
}

TEST_F(HeldAnswerTest, ADrainEndsReadersToo) {
  Call first = Begin(Keyed());
  Call second = Ask(Keyed());
  second.TakeAll();
  live_.DrainAt(clock_.Now());
  live_.EndDue();
  for (const Call* call : {&first, &second}) {
    ASSERT_TRUE(call->Ended());
    EXPECT_EQ(rpc::ReasonOf(*call->client->status), "ROUTER_DRAINING") << *call->client->status;
  }
}

TEST_F(HeldAnswerTest, AnAnswerIsHeldForAMinute) {
  Call first = Begin(Keyed());
  Worker().Send(FinishedEvent());
  clock_.Advance(absl::Seconds(59));
  held_.LetGo();
  Call second = Ask(Keyed());
  second.TakeAll();
  EXPECT_TRUE(second.Ended());
  EXPECT_EQ(workers_.calls.size(), 1u);
  clock_.Advance(absl::Seconds(60));
  held_.LetGo();
  EXPECT_EQ(held_.ById(tenant_, IdOf(first)), nullptr);
  Call third = Ask(Keyed());
  EXPECT_EQ(workers_.calls.size(), 2u) << "the key is free again";
  third.Leave();
}

TEST_F(HeldAnswerTest, AnswersThatNobodyReadsMakeRoom) {
  HeldAnswers small(clock_, metrics_, {.max_bytes = 20'000, .max_tenant_bytes = 20'000});
  context_.held = &small;
  std::vector<std::string> ids;
  for (int i = 0; i < 20; ++i) {
    Call call = Begin(Keyed(std::to_string(i)));
    ids.push_back(IdOf(call));
    clock_.Advance(absl::Milliseconds(1));
    Worker().Send(FinishedEvent());
    EXPECT_TRUE(call.client->status->ok());
  }
  EXPECT_EQ(small.ById(tenant_, ids.front()), nullptr) << "the oldest goes first";
  EXPECT_NE(small.ById(tenant_, ids.back()), nullptr);
  EXPECT_GE(metrics_.Counter("baton_router_held_answers_dropped_total", "", {}).Value(), 5);
}

TEST_F(HeldAnswerTest, AnAnswerThatIsTooLargeIsServedAndNotHeld) {
  HeldAnswers small(clock_, metrics_, {.max_bytes = 4'000, .max_tenant_bytes = 4'000});
  context_.held = &small;
  Call first = Begin(Keyed());
  Call second = Ask(Keyed());
  second.TakeAll();
  std::string expected = "ab";
  for (int i = 0; i < 40; ++i) {
    const std::string text(500, static_cast<char>('a' + i % 26));
    Worker().Send(TokenEvent(text));
    first.TakeAll();
    expected += text;
  }
  EXPECT_EQ(small.ById(tenant_, IdOf(first)), nullptr);
  Worker().Send(FinishedEvent());
  ASSERT_TRUE(first.Ended());
  EXPECT_TRUE(first.client->status->ok()) << *first.client->status;
  EXPECT_EQ(first.Text(), expected);
  second.TakeAll();
  ASSERT_TRUE(second.Ended()) << "it lags behind what is kept";
}

// As one that is moderated, whose verdicts are not asked for twice.
TEST_F(HeldAnswerTest, WhatCannotGoOnIsComputedAnewAndChargedOnce) {
  const auto unnamed = [](const std::string& text) {
    baton::fleet::v1::DecodeEvent event = TokenEvent(text);
    event.mutable_delta()->clear_token_ids();
    return event;
  };
  Call first = Ask(Keyed());
  Worker().Send(AcceptedEvent());
  first.Take();
  for (const char* text : {"a", "b"}) Worker().Send(unnamed(text)), first.Take();
  const std::string id = IdOf(first);
  first.Leave();
  EXPECT_EQ(Charged("output"), 2);
  Call lost = Resume(After(id, 2));
  EXPECT_EQ(rpc::ReasonOf(*lost.client->status), "ANSWER_NOT_HELD") << "the request is not here";

  v1::ResumeRequest request = After(id, 2);
  *request.mutable_generate() = Keyed();
  request.mutable_generate()->mutable_sampling()->set_seed(5);
  request.mutable_generate()->mutable_options()->set_build(Build());
  Call second = Resume(request);
  ASSERT_EQ(workers_.calls.size(), 2u);
  EXPECT_EQ(Worker().request.resumed_tokens(), 0u);
  EXPECT_EQ(Worker().request.sampling().seed(), 5u) << "the one that was drawn";
  Worker().Send(AcceptedEvent());
  for (const char* text : {"a", "b", "c"}) Worker().Send(unnamed(text)), second.TakeAll();
  Worker().Send(FinishedEvent());
  second.TakeAll();
  EXPECT_EQ(second.Text(), "c");
  EXPECT_TRUE(second.client->status->ok()) << *second.client->status;
  EXPECT_EQ(Charged("output"), 3);
  EXPECT_EQ(Charged("prompt"), 3);
}

TEST_F(HeldAnswerTest, ReadersHearOfProgressAndTheLogDoesNotHaveIt) {
  v1::GenerateRequest request = Keyed();
  request.mutable_output()->set_progress(true);
  const auto progress = [&](uint32_t done) {
    clock_.Advance(absl::Milliseconds(300));
    baton::fleet::v1::DecodeEvent event;
    event.mutable_progress()->set_state(v1::Progress::STATE_COMPUTING);
    event.mutable_progress()->set_prompt_tokens_done(done);
    return event;
  };
  const auto kinds = [](const Call& call) {
    std::string kinds;
    for (const v1::GenerateResponse& message : call.client->messages) {
      kinds += message.has_progress()  ? std::to_string(message.progress().prompt_tokens_done())
               : message.has_started() ? "s"
               : message.has_delta()   ? message.delta().text()
                                       : "f";
    }
    return kinds;
  };
  Call first = Ask(request);
  Worker().Send(AcceptedEvent());
  first.Take();
  Worker().Send(progress(1));
  EXPECT_EQ(kinds(first), "s1");
  Worker().Send(progress(2));  // the first client has not taken the one before
  Call second = Ask(request);
  second.TakeAll();
  EXPECT_EQ(kinds(second), "2s") << "the latest, and what the log has";
  first.TakeAll();
  EXPECT_EQ(kinds(first), "s12");
  Worker().Send(TokenEvent("a"));
  first.TakeAll();
  second.TakeAll();
  EXPECT_EQ(kinds(first), "s123a");
  EXPECT_EQ(kinds(second), "2s3a") << "all of the prompt before the first token";
  Call third = Ask(request);
  third.TakeAll();
  Worker().Send(FinishedEvent());
  for (Call* call : {&first, &second, &third}) call->TakeAll();
  EXPECT_EQ(kinds(first), "s123af");
  Call late = Ask(request);
  late.TakeAll();
  EXPECT_EQ(kinds(late), "saf");
}

// Clients come, leave, resume and lose messages at random, and workers are lost; every one that reaches the
// end has each token from its place on once, and the tenant is charged for the prompt and each token once.
TEST_F(HeldAnswerTest, NothingIsLostDoubledOrChargedTwice) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  const auto below = [&random](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  constexpr int kTokens = 8;
  context_.max_migrations = 1;
  int64_t finished = 0;
  for (int round = 0; round < 300; ++round) {
    const int64_t prompt_before = Charged("prompt"), output_before = Charged("output");
    std::vector<Call> calls;
    std::map<const FakeDecodeClient::Worker*, int> sent;
    std::set<const FakeDecodeClient::Worker*> accepted;
    std::string id;
    bool whole = false;
    const auto key = std::to_string(round);
    for (int step = 0; step < 20'000 && !whole; ++step) {
      std::vector<size_t> live;
      for (size_t i = 0; i < calls.size(); ++i) {
        if (!calls[i].Ended()) live.push_back(i);
      }
      if (live.empty() || (live.size() < 4 && below(12) == 0)) {
        live.push_back(calls.size());
        if (id.empty() || below(2) == 0) {
          calls.push_back(Ask(Keyed(key)));
        } else {
          v1::ResumeRequest request = After(id, static_cast<uint32_t>(below(kTokens + 1)));
          calls.push_back(Resume(request));
        }
      }
      Call& call = calls[live[below(static_cast<int>(live.size()))]];
      if (call.client->writing && below(3) > 0) call.Take();
      if (id.empty() && !call.client->messages.empty()) id = IdOf(call);
      if (!call.Ended() && below(40) == 0) call.Leave();
      whole = whole || (call.Ended() && call.client->status->ok());
      if (workers_.calls.empty()) continue;
      FakeDecodeClient::Worker& worker = Worker();
      if (worker.callbacks.event == nullptr) continue;
      if (worker.cancelled) {
        worker.End(absl::CancelledError());
      } else if (below(40) == 0) {
        worker.End(absl::UnavailableError("gone"));
      } else if (worker.asked > 0) {
        if (accepted.insert(&worker).second) {
          sent[&worker] = static_cast<int>(worker.request.resumed_tokens());
          worker.Send(AcceptedEvent());
        } else if (sent[&worker] < kTokens) {
          const int token = sent[&worker]++;
          worker.Send(TokenEvent(std::string(1, static_cast<char>('a' + token)), token));
        } else {
          worker.Send(FinishedEvent());
          worker.End(absl::OkStatus());
        }
      }
    }
    ASSERT_TRUE(whole) << "seed " << seed << ", round " << round;
    for (Call& call : calls) {
      call.TakeAll();
      if (!call.Ended()) call.Leave();
    }
    EndCalls(absl::CancelledError());  // of workers that were hung up
    for (const Call& call : calls) {
      ASSERT_TRUE(call.Ended());
      if (!call.client->status->ok()) continue;
      ++finished;
      const std::string text = call.Text();
      EXPECT_EQ(text, std::string("abcdefgh").substr(kTokens - text.size())) << "seed " << seed;
      EXPECT_EQ(call.client->usage->usage().completion_tokens(), static_cast<uint32_t>(kTokens));
    }
    EXPECT_EQ(Charged("prompt") - prompt_before, 3) << "seed " << seed << ", round " << round;
    EXPECT_EQ(Charged("output") - output_before, kTokens) << "seed " << seed << ", round " << round;
    workers_.calls.clear();
    clock_.Advance(absl::Seconds(61));
    held_.LetGo();
    EXPECT_EQ(held_.ById(tenant_, id), nullptr);
    EXPECT_EQ(Bookings(), 0);
  }
  EXPECT_GT(finished, 300);
}

}  // namespace
}  // namespace baton::router
