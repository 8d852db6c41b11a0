#include "engine/device/core_share.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "engine/device/thread_pool.h"

namespace baton::device {
namespace {

constexpr int kPrefill = 0, kDecode = 1;

// Two cores for each of two members; the second is urgent.
CoreTable TwoAndTwo() { return *CoreTable::Create(4, std::vector<CoreHome>{{0, 2, false}, {2, 2, true}}); }

std::unique_ptr<CoreShare> Join(const CoreTable& table, int member) {
  auto share = CoreShare::Join(table.NameOf(member));
  EXPECT_TRUE(share.ok()) << share.status();
  return *std::move(share);
}

// How many foreign cores a member gets when it asks for all.
int Borrowed(CoreShare& share) {
  int borrowed = 0;
  for (int i = 0; i < share.foreign(); ++i) borrowed += share.Borrow(i);
  return borrowed;
}

// A process that joins and does something, says so, and waits to be killed.
class Process {
 public:
  explicit Process(const std::function<std::unique_ptr<CoreShare>()>& act) {
    int ends[2];
    BATON_CHECK(pipe(ends) == 0);
    pid_ = fork();
    BATON_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      const std::unique_ptr<CoreShare> share = act();
      if (write(ends[1], "", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ends[1]);
    char byte;
    acted_ = read(ends[0], &byte, 1) == 1;
    close(ends[0]);
  }
  ~Process() { Kill(); }
  bool acted() const { return acted_; }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  bool acted_ = false;
};

TEST(CoreShareTest, LendsTheCoresOfAMemberThatRests) {
  const CoreTable table = TwoAndTwo();
  const auto prefill = Join(table, kPrefill), decode = Join(table, kDecode);
  EXPECT_EQ(prefill->home(), 2);
  EXPECT_EQ(prefill->foreign(), 2);
  prefill->Work();
  EXPECT_EQ(Borrowed(*prefill), 2);
  EXPECT_TRUE(prefill->Keep(0));
  decode->Work();
  EXPECT_FALSE(prefill->Keep(0)) << "its owner works";
  EXPECT_EQ(Borrowed(*decode), 0) << "those of a member that works";
  EXPECT_EQ(Borrowed(*prefill), 0);
  decode->Rest();
  EXPECT_FALSE(prefill->Keep(0)) << "was given back, and is not borrowed by being kept";
  EXPECT_EQ(Borrowed(*prefill), 2) << "in the same step";
  prefill->Rest();
  decode->Work();
  EXPECT_EQ(Borrowed(*decode), 2);
}

TEST(CoreShareTest, LendsCoresOfAMemberThatHasNotJoined) {
  const CoreTable table = TwoAndTwo();
  const auto prefill = Join(table, kPrefill);
  prefill->Work();
  EXPECT_EQ(Borrowed(*prefill), 2);
}

TEST(CoreShareTest, LendsACoreToOneMember) {
  const CoreTable table = *CoreTable::Create(3, std::vector<CoreHome>{{0, 1}, {1, 1}, {2, 1}});
  const auto first = Join(table, 0), second = Join(table, 1);
  first->Work();
  second->Work();
  EXPECT_EQ(Borrowed(*first) + Borrowed(*second), 1) << "the third member's core, once";
  first->Rest();
  EXPECT_EQ(Borrowed(*second), 1) << "its owner's; of the other one it has been told no";
  second->Work();
  EXPECT_EQ(Borrowed(*second), 2);
}

TEST(CoreShareTest, IdleCoresAreForUrgentMembers) {
  const CoreTable table = *CoreTable::Create(4, std::vector<CoreHome>{{0, 1}, {1, 1}, {2, 1, true}});
  const auto prefill = Join(table, 0), decode = Join(table, 2);
  prefill->Work();
  EXPECT_EQ(Borrowed(*prefill), 3) << "one of them has no owner";
  decode->Work();
  EXPECT_EQ(Borrowed(*prefill), 0);
  EXPECT_EQ(Borrowed(*decode), 2);
}

TEST(CoreShareTest, MembersMayOwnTheSameCore) {
  const CoreTable table = *CoreTable::Create(2, std::vector<CoreHome>{{0, 1}, {1, 1}, {1, 1}});
  const auto first = Join(table, 0), second = Join(table, 1), third = Join(table, 2);
  first->Work();
  second->Work();
  EXPECT_EQ(Borrowed(*first), 0);
  second->Rest();
  third->Work();
  EXPECT_EQ(Borrowed(*first), 0) << "its other owner works";
  third->Rest();
  EXPECT_EQ(Borrowed(*first), 1);
}

TEST(CoreShareTest, AMemberIsOneProcessAtATime) {
  const CoreTable table = TwoAndTwo();
  auto share = Join(table, kPrefill);
  EXPECT_EQ(CoreShare::Join(table.NameOf(kPrefill)).status().code(), absl::StatusCode::kAlreadyExists);
  share.reset();
  EXPECT_TRUE(CoreShare::Join(table.NameOf(kPrefill)).ok());
}

TEST(CoreShareTest, RefusesWhatIsNoShare) {
  const CoreTable table = TwoAndTwo();
  const auto code = [](const std::string& name) { return CoreShare::Join(name).status().code(); };
  EXPECT_EQ(code(table.NameOf(2)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(table.NameOf(-1)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("cores"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("/dev/null:0"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("/no/such/file:0"), absl::StatusCode::kUnavailable);
}

TEST(CoreShareTest, AKilledProcessGivesBackWhatItBorrowed) {
  const CoreTable table = *CoreTable::Create(3, std::vector<CoreHome>{{0, 1}, {1, 1}, {2, 1}});
  const auto share = Join(table, 0);
  Process other([&] {
    auto theirs = *CoreShare::Join(table.NameOf(1));
    theirs->Work();
    BATON_CHECK(theirs->Borrow(1)) << " the third core";
    return theirs;
  });
  ASSERT_TRUE(other.acted());
  share->Work();
  EXPECT_EQ(Borrowed(*share), 0) << "one works and has borrowed the other";
  other.Kill();
  EXPECT_EQ(Borrowed(*share), 0) << "who is there is looked at once a step";
  share->Work();
  EXPECT_EQ(Borrowed(*share), 2);
}

TEST(CoreShareTest, TheCoresOfAKilledProcessAreLentUntilItIsBack) {
  const CoreTable table = TwoAndTwo();
  const auto prefill = Join(table, kPrefill);
  const auto work = [&] {
    auto decode = *CoreShare::Join(table.NameOf(kDecode));
    decode->Work();
    return decode;
  };
  for (int life = 0; life < 3; ++life) {
    Process decode(work);
    ASSERT_TRUE(decode.acted());
    prefill->Work();
    ASSERT_EQ(Borrowed(*prefill), 0) << "life " << life;
    decode.Kill();
    prefill->Work();
    ASSERT_EQ(Borrowed(*prefill), 2) << "life " << life;
  }
}

TEST(CoreShareTest, APoolUsesWhatIsIdleAndNoMore) {
  const CoreTable table = *CoreTable::Create(2, std::vector<CoreHome>{{0, 1}, {1, 1, true}});
  const auto prefill = Join(table, kPrefill), decode = Join(table, kDecode);
  ThreadPool pool(*prefill);
  EXPECT_EQ(pool.threads(), 2);
  prefill->Work();
  for (int round = 0; round < 20; ++round) {
    // Two tasks that wait for each other end only when two threads run them.
    decode->Rest();
    std::atomic<int> arrived{0};
    pool.ParallelFor(2, [&](int64_t) {
      arrived.fetch_add(1);
      arrived.notify_all();
      for (int seen; (seen = arrived.load()) < 2;) arrived.wait(seen);
    });
    decode->Work();
    const std::thread::id owner = std::this_thread::get_id();
    std::atomic<int> elsewhere{0};
    pool.ParallelFor(50, [&](int64_t) { elsewhere += std::this_thread::get_id() != owner; });
    ASSERT_EQ(elsewhere, 0) << "round " << round;
  }
}

TEST(CoreShareTest, AThreadOnABorrowedCoreStopsBetweenTasksWhenTheOwnerWorks) {
  const CoreTable table = *CoreTable::Create(2, std::vector<CoreHome>{{0, 1}, {1, 1, true}});
  const auto prefill = Join(table, kPrefill), decode = Join(table, kDecode);
  ThreadPool pool(*prefill);
  prefill->Work();
  const std::thread::id owner = std::this_thread::get_id();
  std::atomic<int> arrived{0}, borrowed{0};
  pool.ParallelFor(100, [&](int64_t) {
    // The first two tasks meet, on both threads; then the core's owner works.
    if (const int mine = arrived.fetch_add(1); mine == 1) {
      decode->Work();
      arrived.notify_all();
    } else if (mine == 0) {
      for (int seen; (seen = arrived.load()) < 2;) arrived.wait(seen);
    }
    borrowed += std::this_thread::get_id() != owner;
  });
  EXPECT_EQ(borrowed, 1);
}

TEST(CoreShareTest, TasksRunOnceWhateverMembersDo) {
  const CoreTable table = *CoreTable::Create(4, std::vector<CoreHome>{{0, 1}, {1, 1}, {2, 1, true}});
  // A thread for each member: they work, compute and rest in turn.
  std::vector<std::thread> members;
  for (int m = 0; m < 3; ++m) {
    members.emplace_back([&table, m] {
      const auto share = Join(table, m);
      ThreadPool pool(*share);
      std::vector<int> runs(64);
      for (int step = 1; step <= 300; ++step) {
        share->Work();
        for (int round = 0; round < 3; ++round) {
          pool.ParallelFor(std::ssize(runs), [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
        }
        if ((step + m) % 3 == 0) share->Rest();
        for (const int count : runs) ASSERT_EQ(count, 3 * step) << "member " << m;
      }
    });
  }
  for (std::thread& member : members) member.join();
}

}  // namespace
}  // namespace baton::device
