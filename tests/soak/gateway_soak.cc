// baton-gateway-soak: honest clients beside strangers of every kind, over one gateway, for as many requests
// as one likes; meanwhile the processes are stopped for moments and let go on. Every answer is compared with
// the undisturbed one. At the end the gateway is the same process, and its memory and descriptors are what
// they were after the first tenth.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/patience.h"
#include "tests/strangers/deployment.h"
#include "tests/strangers/raw_client.h"
#include "tests/unit/common/telemetry/http_peer.h"

namespace baton::strangers {
namespace {

struct Options {
  int requests = 3000;
  int clients = 3;
  int strangers = 3;
  uint32_t seed = 1;
};

constexpr std::array<const char*, 6> kQuestions = {
    "Hello!", "Who are you?", "Tell me a story.", "What is two and two?", "Name a colour.", "Bye!",
};

std::string Post(int which, bool stream) {
  const nlohmann::json body = {{"messages", {{{"role", "user"}, {"content", kQuestions[which]}}}},
                               {"temperature", 0},
                               {"max_tokens", 40},
                               {"stream", stream}};
  const std::string text = body.dump();
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
      text.size(), text);
}

// The text of an answer as it came, whole or in events; empty if it is not whole.
std::string TextOf(const std::string& answer, bool stream) {
  const size_t head = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 200") || head == std::string::npos) return "";
  const auto content = [](const nlohmann::json& event, const char* part) -> std::string {
    const auto& choices = event.value("choices", nlohmann::json::array());
    if (choices.empty() || !choices[0].contains(part)) return "";
    const auto& message = choices[0][part];
    return message.contains("content") && message["content"].is_string() ? message["content"] : "";
  };
  if (!stream) {
    const auto body = nlohmann::json::parse(answer.substr(head + 4), nullptr, /*allow_exceptions=*/false);
    return body.is_object() ? content(body, "message") : "";
  }
  if (answer.find("data: [DONE]") == std::string::npos) return "";
  std::string text;
  // Each event is one chunk of the body.
  for (size_t at = answer.find("data: {"); at != std::string::npos; at = answer.find("data: {", at + 1)) {
    const std::string line = answer.substr(at + 6, answer.find('\n', at) - at - 6);
    const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) return "";
    text += content(event, "delta");
  }
  return text;
}

struct Counts {
  std::atomic<int> asked = 0, whole = 0, left = 0, lost = 0, wrong = 0, attacks = 0;
};

void Ask(const std::string& address, const Options& options, int client,
         const std::vector<std::string>& expected, Counts& counts) {
  std::mt19937 random(options.seed * 1000 + client);
  while (counts.asked.fetch_add(1) < options.requests) {
    const int which = static_cast<int>(random() % kQuestions.size());
    const bool stream = random() % 2 == 0, leaves = random() % 8 == 0;
    telemetry::HttpPeer peer(address, 100 + client);
    const bool sent = peer.Send(Post(which, stream));
    if (leaves) {
      (void)peer.Readable(static_cast<int>(random() % 30));
      ++counts.left;
      continue;
    }
    const std::string answer = sent ? peer.ReadToEnd() : "";
    const std::string text = TextOf(answer, stream);
    if (text == expected[which]) {
      ++counts.whole;
    } else if (text.empty()) {
      ++counts.lost;
      std::fprintf(stderr, "lost: %s\n", answer.substr(0, 300).c_str());
    } else {
      ++counts.wrong;
      std::fprintf(stderr, "wrong: %s\n", text.c_str());
    }
  }
}

std::string RandomBytes(std::mt19937& random, size_t most) {
  std::string bytes(random() % most, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Sends `more` until the gateway hangs up.
void SendUntilCut(RawClient& client, const std::string& more) {
  for (int i = 0; i < 300 && client.Send(more); ++i) {
  }
}

// One attack. Clients that shall stay silent go to `held`.
void Attack(const std::string& address, uint32_t from, std::mt19937& random, std::vector<RawClient>& held) {
  constexpr char kChunked[] = "POST /v1/models HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  RawClient client(address, false, from);
  std::string request = Post(static_cast<int>(random() % kQuestions.size()), random() % 2 == 0);
  switch (random() % 10) {
    case 0:  // a part of a request
      (void)client.Send(request.substr(0, random() % request.size()));
      break;
    case 1:  // all but the last byte, and silence
      (void)client.Send(request.substr(0, request.size() - 1));
      held.push_back(std::move(client));
      break;
    case 2:
      held.push_back(std::move(client));
      break;
    case 3:  // trailers without end
      if (client.Send(kChunked) && client.Send("0\r\n")) {
        std::string fields;
        while (fields.size() < 60'000) fields += "a:b\r\n";
        SendUntilCut(client, fields);
      }
      break;
    case 4:  // an endless chunk extension
      if (client.Send(kChunked) && client.Send("1;a=")) SendUntilCut(client, std::string(60'000, 'e'));
      break;
    case 5:  // answers that nobody takes, then a reset
      for (int i = 0; i < 200; ++i) request += "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n";
      (void)client.Send(request);
      break;
    case 6:  // a byte behind a request, and gone
      (void)client.Send(request + "G");
      break;
    case 7:  // long keys
      (void)client.Send(
          fmt::format("GET /v1/models HTTP/1.1\r\nHost: h\r\nConnection: close\r\nx-api-key: "
                      "{}\r\n\r\n",
                      std::string(random() % 20'000, 'k')));
      (void)client.AwaitClose();
      break;
    case 8:  // what is no HTTP
      (void)client.Send(RandomBytes(random, 4096));
      break;
    default:  // HTTP/2: calls that are reset at once, and odd frames
      if (!client.Open()) break;
      for (uint32_t stream = 1; stream < 200; stream += 2) {
        if (!client.Send(Frame(kHeaders, kEndHeaders, stream, CallHeaders("/baton.v1.Inference/Generate"))) ||
            !client.Send(Frame(kReset, 0, stream, std::string("\0\0\0\x08", 4)))) {
          break;
        }
      }
      (void)client.Send(Frame(static_cast<uint8_t>(random() % 12), static_cast<uint8_t>(random()),
                              random() % 64, RandomBytes(random, 512)));
  }
  if (held.size() > 32) held.clear();
}

int Soak(const Options& options) {
  std::printf("seed %u, %d requests from %d clients beside %d strangers\n", options.seed, options.requests,
              options.clients, options.strangers);
  const auto begin = std::chrono::steady_clock::now();
  Deployment deployment(false);
  const Victim gateway = deployment.gateway();
  std::vector<std::string> expected;
  for (int which = 0; which < static_cast<int>(kQuestions.size()); ++which) {
    telemetry::HttpPeer peer(gateway.address);
    const bool sent = peer.Send(Post(which, false));
    expected.push_back(TextOf(sent ? peer.ReadToEnd() : "", false));
    if (expected.back().empty()) {
      std::fprintf(stderr, "no undisturbed answer to %s\n", kQuestions[which]);
      return 1;
    }
  }
  Counts counts;
  std::atomic<bool> over = false;
  std::vector<std::thread> clients, strangers;
  for (int client = 0; client < options.clients; ++client) {
    clients.emplace_back([&, client] { Ask(gateway.address, options, client, expected, counts); });
  }
  for (int stranger = 0; stranger < options.strangers; ++stranger) {
    strangers.emplace_back([&, stranger] {
      std::mt19937 random(options.seed * 2000 + stranger);
      std::vector<RawClient> held;
      for (; !over; ++counts.attacks) Attack(gateway.address, 2 + stranger, random, held);
    });
  }
  std::mt19937 random(options.seed);
  std::map<std::string, int> stops;
  int64_t early_bytes = 0, early_descriptors = 0;
  const std::vector<Victim> processes = deployment.victims();
  while (counts.asked < options.requests) {
    const Victim& process = processes[random() % processes.size()];
    ++stops[process.name];
    kill(process.pid, SIGSTOP);
    // Shorter than keepalive's patience.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 500));
    kill(process.pid, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1000));
    if (early_bytes == 0 && counts.asked > options.requests / 10) {
      early_bytes = StatusOf(gateway.pid, "VmRSS");
      early_descriptors = DescriptorsOf(gateway.pid);
    }
  }
  for (std::thread& client : clients) client.join();
  over = true;
  for (std::thread& stranger : strangers) stranger.join();
  const bool flat = Await(
      [&] {
        return DescriptorsOf(gateway.pid) <= early_descriptors &&
               StatusOf(gateway.pid, "VmRSS") <= early_bytes + 16 * kMiB;
      },
      [&] {
        return fmt::format("{} descriptors and {} MiB, not {} and {}", early_descriptors, early_bytes / kMiB,
                           DescriptorsOf(gateway.pid), StatusOf(gateway.pid, "VmRSS") / kMiB);
      });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%d whole, %d left by their client, %d lost, %d WRONG; %d attacks in %.0f s\n",
              counts.whole.load(), counts.left.load(), counts.lost.load(), counts.wrong.load(),
              counts.attacks.load(), seconds);
  for (const auto& [name, count] : stops) std::printf("  %3d SIGSTOP of the %s\n", count, name.c_str());
  std::printf("gateway: %ld MiB and %ld descriptors early, %ld MiB and %ld at the end\n",
              static_cast<long>(early_bytes / kMiB), static_cast<long>(early_descriptors),
              static_cast<long>(StatusOf(gateway.pid, "VmRSS") / kMiB),
              static_cast<long>(DescriptorsOf(gateway.pid)));
  return flat && counts.wrong == 0 && counts.lost == 0 && !::testing::Test::HasFailure() ? 0 : 1;
}

}  // namespace
}  // namespace baton::strangers

int main(int argc, char** argv) {
  CLI::App app("Honest clients and strangers on a gateway");
  baton::strangers::Options options;
  app.add_option("--requests", options.requests, "Requests of honest clients")->check(CLI::PositiveNumber);
  app.add_option("--clients", options.clients, "That ask at a time")->check(CLI::Range(1, 64));
  app.add_option("--strangers", options.strangers, "That attack at a time")->check(CLI::Range(0, 64));
  app.add_option("--seed", options.seed, "Of requests, attacks and stops");
  CLI11_PARSE(app, argc, argv);
  return baton::strangers::Soak(options);
}
