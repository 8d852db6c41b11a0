// Attacks of strangers who reach a port and have no key, on a router, a decode worker and a gateway, without
// TLS and open to all, and with TLS and keys. While each runs others are served; memory stays bounded, and
// memory and descriptors come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "tests/patience.h"
#include "tests/strangers/deployment.h"
#include "tests/strangers/raw_client.h"

namespace baton::strangers {
namespace {

class AttacksTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(AttacksTest, AttacksTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "TlsAndKeys" : "Plain"; });

// One header block without an end: a name and a value in HPACK's table, and then that pair by its index, a
// byte each. Or a string that is said to be long and never ends.
enum class Flood { kIndexed, kIndexedAfterAck, kEndlessString };

// True if the server hung up.
bool SendHeadersWithoutEnd(const Victim& victim, bool tls, Flood flood, size_t bytes) {
  RawClient client(victim.address, tls);
  if (!client.Open()) return true;
  if (flood == Flood::kIndexedAfterAck && !client.Send(Frame(kSettings, kAck, 0, ""))) return true;
  std::string begin = CallHeaders(victim.path), more;
  if (flood == Flood::kEndlessString) {
    begin += std::string("\0\1x\x7f\xff\xff\xff\x7f", 8);
    more = std::string(16'000, 'x');
  } else {
    begin += Indexed("x-stranger", "y");
    // After the SETTINGS are acknowledged gRPC counts 8 KiB of names, values and 32 bytes each, per frame.
    more = std::string(flood == Flood::kIndexed ? 16'000 : 180, static_cast<char>(0x80 | 62));
  }
  if (!client.Send(Frame(kHeaders, 0, 1, begin))) return true;
  std::string frames;
  while (frames.size() < (64 << 10)) frames += Frame(kContinuation, 0, 1, more);
  for (size_t sent = 0; sent < bytes; sent += frames.size()) {
    if (!client.Send(frames)) return true;
  }
  return client.AwaitClose(absl::Now() + absl::Seconds(1));
}

TEST_P(AttacksTest, HeadersWithoutEnd) {
  Deployment deployment(GetParam());
  for (const Victim& victim : deployment.victims()) {
    for (const Flood flood : {Flood::kIndexed, Flood::kIndexedAfterAck, Flood::kEndlessString}) {
      // A string that never ends costs gRPC the square of its length in copies: less of it.
      const size_t bytes = flood == Flood::kEndlessString ? 4 * kMiB : 24 * kMiB;
      Withstand(victim, "headers without end, " + std::to_string(static_cast<int>(flood)), 48 * kMiB, [&] {
        for (int i = 0; i < 8; ++i) {
          const bool cut = SendHeadersWithoutEnd(victim, GetParam(), flood, bytes);
          EXPECT_TRUE(cut);
          if (!cut) return;
        }
      });
    }
  }
}

std::string Gzip(size_t zeros) {
  z_stream stream = {};
  BATON_CHECK(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  const std::string block(1 << 20, '\0');
  std::string packed(zeros / 900 + 1024, '\0');
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  for (size_t done = 0; done < zeros; done += block.size()) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(block.data()));
    stream.avail_in = static_cast<uInt>(block.size());
    BATON_CHECK(deflate(&stream, done + block.size() >= zeros ? Z_FINISH : Z_NO_FLUSH) >= Z_OK);
  }
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

TEST_P(AttacksTest, CompressedZeros) {
  Deployment deployment(GetParam());
  // As much as HTTP/2's first window lets pass: the server would unpack a thousand times that for each call.
  const std::string bomb = Gzip(60 * kMiB);
  ASSERT_LT(bomb.size(), 65'000u);
  // The size that a router reads: the truth, and a lie of 1 MiB, which it takes.
  std::string liar = bomb;
  liar.replace(liar.size() - 4, 4, std::string("\0\0\x10\0", 4));
  const auto framed = [](const std::string& data) {
    std::string message(1, 1);
    for (int shift = 24; shift >= 0; shift -= 8) message += static_cast<char>(data.size() >> shift);
    return message + data;
  };
  const std::string messages[] = {framed(bomb), framed(liar)};
  for (const Victim& victim : deployment.victims()) {
    Withstand(victim, "compressed zeros", 32 * kMiB, [&] {
      std::vector<RawClient> clients;
      for (int i = 0; i < 8; ++i) {
        RawClient& client = clients.emplace_back(victim.address, GetParam());
        if (!client.Open()) continue;
        const std::string& message = messages[i % 2];
        client.Send(
            Frame(kHeaders, kEndHeaders, 1, CallHeaders(victim.path) + Literal("grpc-encoding", "gzip")));
        for (size_t at = 0; at < message.size(); at += 16'000) {
          const std::string_view piece = std::string_view(message).substr(at, 16'000);
          client.Send(Frame(kData, at + 16'000 >= message.size() ? kEndStream : 0, 1, piece));
        }
      }
      // Each call is answered, or its connection closed.
      for (RawClient& client : clients) {
        while (const auto frame = client.Receive(absl::Now() + kGenerous)) {
          if (frame->stream == 1 && (frame->type == kHeaders || frame->type == kReset)) break;
        }
      }
    });
  }
}

// A soft limit of 1,024 descriptors, as shells have it, and more connections than that.
TEST_P(AttacksTest, SilentConnections) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_GE(limit.rlim_max, 2500u) << "this test needs a higher hard limit of open files: see ulimit -Hn";
  limit.rlim_cur = 1024;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Deployment deployment(GetParam());
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  for (const Victim& victim : deployment.victims()) {
    SCOPED_TRACE(victim.name);
    const int64_t before = DescriptorsOf(victim.pid);
    {
      std::vector<RawClient> silent;
      // Without TLS: a client that sends nothing does not shake hands either.
      for (int i = 0; i < 1104; ++i) silent.emplace_back(victim.address);
      const grpc::Status status = victim.call();
      EXPECT_TRUE(status.ok()) << "a client from another address: " << status.error_message();
    }
    Await([&] { return DescriptorsOf(victim.pid) <= before; },
          [&] {
            return std::to_string(before) + " descriptors as before, not " +
                   std::to_string(DescriptorsOf(victim.pid));
          });
    EXPECT_TRUE(victim.call().ok()) << "and it accepts on";
  }
}

// --- What only the gateway stands: nothing in gRPC 1.51 counts it.

// A call with an empty message, complete.
std::string CompleteCall(const std::string& path, uint32_t stream) {
  return Frame(kHeaders, kEndHeaders, stream, CallHeaders(path)) +
         Frame(kData, kEndStream, stream, std::string(5, '\0'));
}

// Sends what `frames` gives for stream 1, 3, 5 ... . True if the server hung up before so many.
bool SendUntilCut(const Victim& victim, bool tls, int most,
                  const std::function<std::string(uint32_t)>& frames) {
  RawClient client(victim.address, tls);
  if (!client.Open()) return true;
  for (int i = 0; i < most; i += 50) {
    std::string bytes;
    for (int j = i; j < i + 50; ++j) bytes += frames(static_cast<uint32_t>(2 * j + 1));
    if (!client.Send(bytes)) return true;
  }
  return client.AwaitClose(absl::Now() + absl::Seconds(1));
}

TEST_P(AttacksTest, RapidReset) {
  Deployment deployment(GetParam());
  const Victim victim = deployment.gateway();
  Withstand(victim, "rapid reset", 96 * kMiB, [&] {
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(SendUntilCut(victim, GetParam(), 50'000, [&](uint32_t stream) {
        return CompleteCall(victim.path, stream) + Frame(kReset, 0, stream, std::string("\0\0\0\x8", 4));
      }));
    }
  });
}

// The client resets nothing: it makes the server do so, while the call goes on behind it.
TEST_P(AttacksTest, MadeYouReset) {
  Deployment deployment(GetParam());
  const Victim victim = deployment.gateway();
  constexpr uint8_t kPriority = 2, kWindowUpdate = 8;
  const auto self = [](uint32_t stream) {
    return std::string{0, 0, static_cast<char>(stream >> 8), static_cast<char>(stream), 1};
  };
  const std::vector<std::pair<std::string, std::function<std::string(uint32_t)>>> ways = {
      {"no window update",
       [](uint32_t stream) { return Frame(kWindowUpdate, 0, stream, std::string(4, '\0')); }},
      {"too much window",
       [](uint32_t stream) { return Frame(kWindowUpdate, 0, stream, "\x7f\xff\xff\xff"); }},
      {"its own parent", [&](uint32_t stream) { return Frame(kPriority, 0, stream, self(stream)); }},
      {"more data", [](uint32_t stream) { return Frame(kData, 0, stream, "x"); }},
      {"more headers",
       [](uint32_t stream) { return Frame(kHeaders, kEndHeaders, stream, Literal("a", "b")); }}};
  for (const auto& [name, provoke] : ways) {
    Withstand(victim, name, 48 * kMiB, [&] {
      for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(SendUntilCut(victim, GetParam(), 50'000, [&](uint32_t stream) {
          return CompleteCall(victim.path, stream) + provoke(stream);
        }));
      }
    });
  }
}

TEST_P(AttacksTest, ControlFrames) {
  Deployment deployment(GetParam());
  const Victim victim = deployment.gateway();
  const std::vector<std::pair<std::string, std::string>> floods = {
      {"pings", Frame(kPing, 0, 0, std::string(8, 'x'))},
      {"settings", Frame(kSettings, 0, 0, std::string("\0\4\0\0\1\0", 6))},
      {"empty settings", Frame(kSettings, 0, 0, "")},
      {"windows", Frame(8, 0, 0, std::string("\0\0\0\1", 4))}};
  for (const auto& [name, frame] : floods) {
    Withstand(victim, name, 32 * kMiB, [&, frame = frame] {
      for (int i = 0; i < 4; ++i)
        EXPECT_TRUE(SendUntilCut(victim, GetParam(), 200'000, [&](uint32_t) { return frame; }));
    });
  }
}

// Answers that are there, and windows that never open.
TEST_P(AttacksTest, SlowReaders) {
  Deployment deployment(GetParam());
  const Victim victim = deployment.gateway();
  Withstand(victim, "slow readers", 128 * kMiB, [&] {
    std::vector<RawClient> clients;
    for (uint32_t i = 0; i < 16; ++i) {
      RawClient& client = clients.emplace_back(victim.address, GetParam(), 2 + i % 4);
      // No window for data.
      client.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
                  Frame(kSettings, 0, 0, std::string("\0\4\0\0\0\0", 6)));
      for (uint32_t stream = 1; stream < 2 * 200; stream += 2)
        client.Send(CompleteCall("/baton.v1.Inference/ListModels", stream));
    }
    for (RawClient& client : clients) {
      // Their heads have come, or their refusals.
      while (const auto frame = client.Receive(absl::Now() + kGenerous)) {
        if (frame->type == kHeaders) break;
      }
    }
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(victim.call().ok());
  });
}

}  // namespace
}  // namespace baton::strangers
