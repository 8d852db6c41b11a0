// Discovery with a scripted resolver and a clock moved by hand; the file is a real one.
#include "router/discovery/discovery.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <fstream>

#include "absl/synchronization/notification.h"
#include "tests/patience.h"

namespace baton::router::discovery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using Answer = Resolver::Answer;
const absl::Duration kEvery = absl::Seconds(5);

// Keeps questions until the test answers them.
class ScriptedResolver final : public Resolver {
 public:
  void Resolve(const std::string& host, std::function<void(Answer)> done) override {
    ++questions;
    waiting.push_back({host, std::move(done)});
  }
  bool Reply(const std::string& host, const Answer& answer) {
    for (auto one = waiting.begin(); one != waiting.end(); ++one) {
      if (one->first != host) continue;
      const auto done = std::move(one->second);
      waiting.erase(one);
      done(answer);
      return true;
    }
    return false;
  }

  int questions = 0;
  std::deque<std::pair<std::string, std::function<void(Answer)>>> waiting;
};

class DiscoveryTest : public ::testing::Test {
 protected:
  DiscoveryTest() { std::remove(file_.c_str()); }

  absl::Status Open(std::vector<std::string> decode, std::vector<std::string> prefill = {},
                    bool with_file = false) {
    auto opened = Discovery::Open({.decode = std::move(decode),
                                   .prefill = std::move(prefill),
                                   .fleet_file = with_file ? file_ : "",
                                   .resolve_every = kEvery},
                                  resolver_, clock_, [this](const Found& found) {
                                    found_ = found;
                                    ++calls_;
                                  });
    if (!opened.ok()) return opened.status();
    discovery_ = *std::move(opened);
    discovery_->Step();
    return absl::OkStatus();
  }
  // Answers the question that must be waiting.
  void Answer(const std::string& host, const Resolver::Answer& answer) {
    ASSERT_TRUE(resolver_->Reply(host, answer)) << host << " was not asked";
    discovery_->Step();
  }
  void Advance(absl::Duration by) {
    clock_.Advance(by);
    discovery_->Step();
  }
  void WriteFile(const std::string& text) { std::ofstream(file_, std::ios::trunc) << text; }

  const std::string file_ = ::testing::TempDir() + "/discovery_test_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
  FakeClock clock_;
  const std::shared_ptr<ScriptedResolver> resolver_ = std::make_shared<ScriptedResolver>();
  std::unique_ptr<Discovery> discovery_;
  Found found_;
  int calls_ = 0;
};

TEST_F(DiscoveryTest, PlainAddressesNeedNoResolver) {
  ASSERT_TRUE(Open({"10.0.0.1:80", "host:81"}, {"[fd00::1]:82"}).ok());
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.1:80", "host:81"));
  EXPECT_THAT(found_.prefill, ElementsAre("[fd00::1]:82"));
  EXPECT_TRUE(found_.complete);
  Advance(kEvery * 10);
  EXPECT_EQ(resolver_->questions, 0);
  EXPECT_EQ(calls_, 1) << "nothing new, nothing said";
}

TEST_F(DiscoveryTest, WorkersJoinAndLeaveWithTheAnswers) {
  ASSERT_TRUE(Open({"dns:///decode.svc:80"}).ok());
  EXPECT_FALSE(found_.complete);
  EXPECT_EQ(found_.trouble, "dns:///decode.svc:80 (not resolved yet)");
  Answer("decode.svc", {{"10.0.0.2", "10.0.0.1"}});
  EXPECT_TRUE(found_.complete);
  EXPECT_EQ(found_.trouble, "");
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.1:80", "10.0.0.2:80"));
  Advance(kEvery - absl::Milliseconds(1));
  EXPECT_THAT(resolver_->waiting, IsEmpty()) << "too early";
  Advance(absl::Milliseconds(1));
  Answer("decode.svc", {{"10.0.0.3", "10.0.0.2"}});
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.2:80", "10.0.0.3:80"));
  const int calls = calls_;
  Advance(kEvery);
  Answer("decode.svc", {{"10.0.0.2", "10.0.0.3"}});
  EXPECT_EQ(calls_, calls) << "the order of records means nothing";
}

TEST_F(DiscoveryTest, OneQuestionAtATime) {
  ASSERT_TRUE(Open({"dns:///d:80"}, {"dns:///d:81"}).ok());
  Advance(kEvery * 3);
  EXPECT_EQ(resolver_->questions, 1) << "not asked again before it has answered";
  Answer("d", {{"10.0.0.1"}});
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.1:80"));
  EXPECT_THAT(found_.prefill, ElementsAre("10.0.0.1:81")) << "one host, two ports";
}

TEST_F(DiscoveryTest, AFailureToAskKeepsWhatWasKnownAndAnEmptyAnswerDoesNot) {
  ASSERT_TRUE(Open({"dns:///d:80"}).ok());
  Answer("d", {{"10.0.0.1"}});
  Advance(kEvery);
  Answer("d", absl::UnavailableError("no name server"));
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.1:80"));
  EXPECT_EQ(found_.trouble, "");
  Advance(kEvery);
  Answer("d", absl::NotFoundError("no such name"));
  EXPECT_THAT(found_.decode, IsEmpty());
  EXPECT_EQ(found_.trouble, "dns:///d:80 (has no address: no such name)");
  Advance(kEvery);
  Answer("d", absl::UnavailableError("no name server"));
  EXPECT_THAT(found_.decode, IsEmpty()) << "what has gone does not come back by a failure";
  EXPECT_EQ(found_.trouble, "dns:///d:80 (can't be resolved: no name server)");
  Advance(kEvery);
  Answer("d", {{"10.0.0.1"}});
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.1:80"));
}

TEST_F(DiscoveryTest, ANameThatDoesNotResolveYetIsNoError) {
  ASSERT_TRUE(Open({"dns:///d:80", "10.0.0.9:80"}).ok());
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.9:80"));
  Answer("d", absl::NotFoundError("no such name"));
  EXPECT_TRUE(found_.complete) << "it has answered";
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.9:80"));
  Advance(kEvery);
  Answer("d", std::vector<std::string>());
  EXPECT_EQ(found_.trouble, "dns:///d:80 (has no address)");
}

TEST_F(DiscoveryTest, ALostWorkerHasTheNameAskedAtOnce) {
  ASSERT_TRUE(Open({"dns:///d:80"}).ok());
  Answer("d", {{"10.0.0.1", "10.0.0.2"}});
  Advance(absl::Seconds(2));
  EXPECT_EQ(resolver_->questions, 1);
  discovery_->Hurry();
  discovery_->Step();
  EXPECT_EQ(resolver_->questions, 2);
  // Another one, while the question is open: what comes may be from before.
  discovery_->Hurry();
  Answer("d", {{"10.0.0.1", "10.0.0.2"}});
  EXPECT_EQ(resolver_->questions, 2) << "not without a pause";
  Advance(Roster::kMinGap);
  EXPECT_EQ(resolver_->questions, 3);
  Answer("d", {{"10.0.0.2"}});
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.2:80"));
  Advance(kEvery - absl::Milliseconds(1));
  EXPECT_EQ(resolver_->questions, 3) << "back to the usual pace";
}

TEST_F(DiscoveryTest, AFlappingRecordComesAndGoes) {
  ASSERT_TRUE(Open({"dns:///d:80"}).ok());
  for (int i = 0; i < 5; ++i) {
    Answer("d", {{"10.0.0.1", "10.0.0.2"}});
    EXPECT_THAT(found_.decode, ElementsAre("10.0.0.1:80", "10.0.0.2:80"));
    Advance(kEvery);
    Answer("d", {{"10.0.0.1"}});
    EXPECT_THAT(found_.decode, ElementsAre("10.0.0.1:80"));
    Advance(kEvery);
  }
}

TEST_F(DiscoveryTest, OneWorkerFromSeveralSourcesIsOne) {
  WriteFile(R"({"decode": ["10.0.0.1:80", "[FD00:0::1]:80", "dns:///d:80", "10.0.0.3:80"]})");
  ASSERT_TRUE(Open({"dns:///d:80", "10.0.0.1:80", "10.0.0.1:80"}, {"10.0.0.1:80"}, true).ok());
  Answer("d", {{"10.0.0.1", "fd00::1", "10.0.0.1"}});
  EXPECT_EQ(resolver_->questions, 1);
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.1:80", "[fd00::1]:80", "10.0.0.3:80"));
  EXPECT_THAT(found_.prefill, ElementsAre("10.0.0.1:80")) << "each role has its own list";
  // It stays for as long as one of them names it.
  Advance(kEvery);
  Answer("d", absl::NotFoundError("no such name"));
  EXPECT_THAT(found_.decode, UnorderedElementsAre("10.0.0.1:80", "[fd00::1]:80", "10.0.0.3:80"));
}

TEST_F(DiscoveryTest, TheFileIsReadAgainAndABadOneChangesNothing) {
  WriteFile(R"({"decode": ["10.0.0.1:80"]})");
  ASSERT_TRUE(Open({}, {}, true).ok());
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.1:80"));
  WriteFile(R"({"decode": ["10.0.0.1:80", "10.0.0.2:80"], "prefill": ["dns:///p:80"]})");
  ASSERT_TRUE(discovery_->Reload().ok());
  discovery_->Step();
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.1:80", "10.0.0.2:80"));
  EXPECT_FALSE(found_.complete) << "a new name";
  Answer("p", {{"10.0.0.7"}});
  EXPECT_THAT(found_.prefill, ElementsAre("10.0.0.7:80"));
  for (const char* bad :
       {"", "[]", "{", R"({"decode": "10.0.0.1:80"})", R"({"decode": [1]})", R"({"decode": ["10.0.0.1"]})",
        R"({"decodes": []})", R"({"decode": [], "decode": []})"}) {
    WriteFile(bad);
    const absl::Status status = discovery_->Reload();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file_));
    discovery_->Step();
    EXPECT_EQ(found_.decode.size(), 2u);
  }
  std::remove(file_.c_str());
  EXPECT_TRUE(absl::IsNotFound(discovery_->Reload()));
  discovery_->Step();
  EXPECT_EQ(found_.decode.size(), 2u);
  WriteFile(R"({"decode": ["10.0.0.2:80"]})");
  ASSERT_TRUE(discovery_->Reload().ok());
  discovery_->Step();
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.2:80"));
  EXPECT_THAT(found_.prefill, IsEmpty());
  Advance(kEvery);
  EXPECT_THAT(resolver_->waiting, IsEmpty()) << "a name that is gone is not asked";
}

TEST_F(DiscoveryTest, AnAnswerForANameThatHasGoneIsDropped) {
  WriteFile(R"({"decode": ["dns:///old:80"]})");
  ASSERT_TRUE(Open({}, {}, true).ok());
  WriteFile(R"({"decode": ["dns:///new:80"]})");
  ASSERT_TRUE(discovery_->Reload().ok());
  discovery_->Step();
  Answer("old", {{"10.0.0.1"}});
  EXPECT_THAT(found_.decode, IsEmpty());
  Answer("new", {{"10.0.0.2"}});
  EXPECT_THAT(found_.decode, ElementsAre("10.0.0.2:80"));
}

TEST_F(DiscoveryTest, RefusesToStartWithoutAnythingToFollow) {
  EXPECT_THAT(std::string(Open({}, {"10.0.0.1:80"}).message()), HasSubstr("--fleet-file"));
  EXPECT_TRUE(absl::IsNotFound(Open({}, {}, true)));
  EXPECT_THAT(std::string(Open({"10.0.0.1:80"}, {"worker"}).message()), HasSubstr("--prefill: \"worker\""));
}

TEST_F(DiscoveryTest, ItsThreadFollowsTheFileAndTheAnswers) {
  WriteFile(R"({"decode": ["10.0.0.1:80"]})");
  absl::Notification first, second;
  auto opened = Discovery::Open({.fleet_file = file_, .look_every = absl::Milliseconds(10)}, nullptr, clock_,
                                [&](const Found& found) {
                                  if (found.decode == std::vector<std::string>{"10.0.0.1:80"}) first.Notify();
                                  // A name that the system knows without a server.
                                  if (found.decode == std::vector<std::string>{"127.0.0.7:81"})
                                    second.Notify();
                                });
  ASSERT_TRUE(opened.ok()) << opened.status();
  (*opened)->Start();
  EXPECT_TRUE(first.HasBeenNotified()) << "before Start returns";
  WriteFile(R"({"decode": ["dns:///127.0.0.7:81"]})");
  EXPECT_TRUE(second.WaitForNotificationWithTimeout(Scaled(absl::Seconds(60))));
  (*opened)->Stop();
  (*opened)->Hurry();
}

TEST(RosterTest, SaysEachTroubleOnce) {
  Lists lists;
  lists.decode.push_back({.host = "d", .port = 80, .is_name = true});
  Roster roster(lists, kEvery);
  const absl::Time now = absl::UnixEpoch();
  const auto news = [&](const Resolver::Answer& answer) {
    const auto said = roster.OnAnswer("d", answer, now);
    return said.has_value() ? (said->trouble ? "! " : "") + said->text : "";
  };
  EXPECT_THAT(news(absl::NotFoundError("no such name")), HasSubstr("! d has no address: no such name"));
  EXPECT_EQ(news(absl::NotFoundError("no such name")), "");
  EXPECT_THAT(news({{"10.0.0.1", "10.0.0.2"}}), "d resolves now, to 2 addresses");
  EXPECT_EQ(news({{"10.0.0.1"}}), "");
  EXPECT_THAT(news(absl::UnavailableError("no server")),
              HasSubstr("! d can't be resolved: no server; its 1 workers stay"));
  EXPECT_EQ(news(absl::UnavailableError("no server")), "");
  EXPECT_THAT(news(absl::NotFoundError("no such name")), HasSubstr("! d has no address"));
}

TEST(FleetFileTest, RefusesMoreEntriesThanARouterWatches) {
  const auto file = [](size_t entries) {
    std::string text = R"({"prefill": ["p:1"], "decode": [)";
    for (size_t i = 1; i < entries; ++i) text += fmt::format(R"({}"10.0.0.1:{}")", i == 1 ? "" : ",", i);
    return text + "]}";
  };
  EXPECT_EQ(ParseFleetFile(file(kMaxFleetFileEntries), "f").value().decode.size(), kMaxFleetFileEntries - 1);
  const absl::Status refused = ParseFleetFile(file(kMaxFleetFileEntries + 1), "f").status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("f: 4097 entries; a router watches at most 4096"));
}

}  // namespace
}  // namespace baton::router::discovery
