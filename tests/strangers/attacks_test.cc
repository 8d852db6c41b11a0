// Attacks of strangers who reach a port and have no key, on a router, a decode worker and a gateway, without
// TLS and open to all, and with TLS and keys. While each runs others are served; memory stays bounded, and
// memory and descriptors come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>
#include <sys/resource.h>
#include <zlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "baton/v1/inference.grpc.pb.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/base/check.h"
#include "common/base/secret.h"
#include "common/rpc/channel.h"
#include "common/rpc/security.h"
#include "tests/e2e/fleet.h"
#include "tests/integration/security/certificates.h"
#include "tests/patience.h"
#include "tests/strangers/raw_client.h"

namespace baton::strangers {
namespace {

namespace fs = std::filesystem;

const absl::Duration kGenerous = Scaled(absl::Seconds(60));
constexpr int64_t kMiB = 1 << 20;
// What may be left of an attack. Sanitizers keep what was freed.
constexpr int64_t kAfterwards = 24 * kMiB * kPatience;

// A number of /proc/PID/status, in bytes.
int64_t StatusOf(pid_t pid, const std::string& field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  BATON_CHECK(false) << field;
  return 0;
}

int64_t DescriptorsOf(pid_t pid) {
  const fs::directory_iterator open("/proc/" + std::to_string(pid) + "/fd");
  return std::distance(begin(open), end(open));
}

struct Victim {
  std::string name;
  std::string address;
  pid_t pid;
  // A method that takes any message.
  std::string path;
  // A real call of a real client, on a connection of its own.
  std::function<grpc::Status()> call;
};

class Deployment {
 public:
  explicit Deployment(bool secured)
      : secured_(secured), folder_(fs::path(testing::TempDir()) / ("strangers_" + RandomHex(6))) {
    fs::create_directories(folder_);
    std::vector<std::string> fleet = {"--model", e2e::kModel, "--log-level", "error", "--exit-with-parent"};
    rpc::SecurityOptions worker, client;
    std::vector<std::string> tenants;
    if (secured) {
      const rpc::PairFiles pair = authority_.Issue("party");
      std::ofstream(folder_ / "fleet.key") << RandomHex(32);
      const std::string id = RandomHex(6), key = "bk_" + id + "_" + RandomHex(32);
      std::ofstream(folder_ / "api.key") << key;
      unsigned char digest[SHA256_DIGEST_LENGTH];
      SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest);
      std::ofstream(folder_ / "tenants.json")
          << R"({"tenants": [{"name": "a", "keys": [{"id": ")" << id << R"(", "sha256": ")"
          << absl::BytesToHexString({reinterpret_cast<const char*>(digest), sizeof(digest)}) << R"("}]}]})";
      fleet.insert(fleet.end(), {"--tls-cert", pair.cert, "--tls-key", pair.key, "--tls-ca", authority_.ca(),
                                 "--tls-peer-name", "party", "--fleet-key-file", folder_ / "fleet.key"});
      tenants = {"--tenants", folder_ / "tenants.json"};
      worker = {.cert = pair.cert,
                .key = pair.key,
                .ca = authority_.ca(),
                .peer_name = "party",
                .fleet_key_file = folder_ / "fleet.key"};
      client = {.ca = authority_.ca(), .peer_name = "party", .api_key_file = folder_ / "api.key"};
    }
    std::vector<std::string> flags = fleet;
    flags.insert(flags.end(), {"--threads", "1", "--kv-memory", "64MiB"});
    decode_.emplace("baton-decode", flags);
    flags = fleet;
    flags.insert(flags.end(), {"--decode", decode_->grpc(), "--default-ttft-deadline", "0"});
    flags.insert(flags.end(), tenants.begin(), tenants.end());
    router_.emplace("baton-router", flags);
    flags = {"--router", router_->grpc(), "--log-level", "error", "--exit-with-parent"};
    if (secured) {
      flags.insert(flags.end(), {"--tls-cert", worker.cert, "--tls-key", worker.key, "--tls-ca",
                                 authority_.ca(), "--tls-server-name", "party"});
    }
    gateway_.emplace("baton-gateway", flags);
    worker_security_ = Load(worker);
    client_security_ = Load(client);
    BATON_CHECK(Await([this] { return Generate(*router_).ok() && Generate(*gateway_).ok(); },
                      "an answer by each door"));
  }
  ~Deployment() { fs::remove_all(folder_); }

  bool secured() const { return secured_; }
  std::vector<Victim> victims() {
    return {{"router", router_->grpc(), router_->pid(), "/baton.v1.Inference/Generate",
             [this] { return Generate(*router_); }},
            {"decode", decode_->grpc(), decode_->pid(), "/baton.v1.Worker/Watch", [this] { return Watch(); }},
            gateway()};
  }
  // Where strangers are meant to be.
  Victim gateway() {
    return {"gateway", gateway_->grpc(), gateway_->pid(), "/baton.v1.Inference/Generate",
            [this] { return Generate(*gateway_); }};
  }

 private:
  static std::shared_ptr<const rpc::Security> Load(const rpc::SecurityOptions& options) {
    auto security = rpc::Security::Load(options);
    BATON_CHECK(security.ok()) << security.status();
    return *security;
  }
  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(kGenerous));
  }
  grpc::Status Generate(const e2e::Process& door) {
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stub =
        v1::Inference::NewStub(rpc::MakeChannel(door.grpc(), rpc::kPublicKeepalive, client_security_.get()));
    const auto reader = stub->Generate(&context, e2e::TokenRequest({20, 21, 22}, 2));
    for (v1::GenerateResponse response; reader->Read(&response);) {
    }
    return reader->Finish();
  }
  grpc::Status Watch() {
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stub =
        v1::Worker::NewStub(rpc::MakeChannel(decode_->grpc(), rpc::kPublicKeepalive, worker_security_.get()));
    const auto reader = stub->Watch(&context, v1::WatchRequest());
    v1::WatchEvent event;
    const bool answered = reader->Read(&event);
    context.TryCancel();
    const grpc::Status status = reader->Finish();
    return answered ? grpc::Status::OK : status;
  }

  const bool secured_;
  const fs::path folder_;
  rpc::Authority authority_{"fleet"};
  std::optional<e2e::Process> decode_, router_, gateway_;
  std::shared_ptr<const rpc::Security> worker_security_, client_security_;
};

// Runs `attack` while others call, and looks at what it cost.
void Withstand(const Victim& victim, const std::string& name, int64_t height_allowed,
               const std::function<void()>& attack) {
  SCOPED_TRACE(victim.name + ": " + name);
  const int64_t before = StatusOf(victim.pid, "VmRSS");
  std::ofstream("/proc/" + std::to_string(victim.pid) + "/clear_refs") << "5";  // the height counts from here
  std::atomic<bool> over = false;
  std::thread attacker([&] {
    attack();
    over = true;
  });
  do {
    const grpc::Status status = victim.call();
    EXPECT_TRUE(status.ok()) << "others are served meanwhile: " << status.error_message();
    if (!status.ok()) break;
  } while (!over);
  attacker.join();
  const int64_t height = StatusOf(victim.pid, "VmHWM") - before;
  EXPECT_LE(height, height_allowed * kPatience);
  const auto left = [&] { return StatusOf(victim.pid, "VmRSS") - before; };
  Await([&] { return left() <= kAfterwards; },
        [&] { return "memory, of which " + std::to_string(left() / kMiB) + " MiB are left"; });
  std::printf("%s, %s: %.1f MiB at its height, %.1f MiB afterwards\n", victim.name.c_str(), name.c_str(),
              static_cast<double>(height) / kMiB,
              static_cast<double>(StatusOf(victim.pid, "VmRSS") - before) / kMiB);
}

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
  std::string message(1, 1);
  for (int shift = 24; shift >= 0; shift -= 8) message += static_cast<char>(bomb.size() >> shift);
  message += bomb;
  for (const Victim& victim : deployment.victims()) {
    Withstand(victim, "compressed zeros", 32 * kMiB, [&] {
      std::vector<RawClient> clients;
      for (int i = 0; i < 8; ++i) {
        RawClient& client = clients.emplace_back(victim.address, GetParam());
        if (!client.Open()) continue;
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
