#include "tests/strangers/deployment.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/escaping.h"
#include "baton/fleet/v1/worker.grpc.pb.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/check.h"
#include "common/base/secret.h"
#include "common/rpc/channel.h"

namespace baton::strangers {
namespace {

namespace fs = std::filesystem;

// So much may be left of an attack. Sanitizers keep what was freed.
constexpr int64_t kAfterwards = 24 * kMiB * kPatience;

std::shared_ptr<const rpc::Security> Load(const rpc::SecurityOptions& options) {
  auto security = rpc::Security::Load(options);
  BATON_CHECK(security.ok()) << security.status();
  return *security;
}
void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(kGenerous));
}

}  // namespace

Deployment::Deployment(bool secured)
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

Deployment::~Deployment() { fs::remove_all(folder_); }

std::vector<Victim> Deployment::victims() {
  return {
      {"router", router_->grpc(), router_->pid(), "/baton.v1.Inference/Generate",
       [this] { return Generate(*router_); }},
      {"decode", decode_->grpc(), decode_->pid(), "/baton.fleet.v1.Worker/Watch", [this] { return Watch(); }},
      gateway()};
}

Victim Deployment::gateway() {
  return {"gateway", gateway_->grpc(), gateway_->pid(), "/baton.v1.Inference/Generate",
          [this] { return Generate(*gateway_); }};
}

grpc::Status Deployment::Generate(const e2e::Process& door) {
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stub =
      v1::Inference::NewStub(rpc::MakeChannel(door.grpc(), rpc::kPublicKeepalive, client_security_.get()));
  const auto reader = stub->Generate(&context, e2e::TokenRequest({20, 21, 22}, 2));
  for (v1::GenerateResponse response; reader->Read(&response);) {
  }
  return reader->Finish();
}

grpc::Status Deployment::Watch() {
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stub = fleet::v1::Worker::NewStub(
      rpc::MakeChannel(decode_->grpc(), rpc::kPublicKeepalive, worker_security_.get()));
  const auto reader = stub->Watch(&context, fleet::v1::WatchRequest());
  fleet::v1::WatchEvent event;
  const bool answered = reader->Read(&event);
  context.TryCancel();
  const grpc::Status status = reader->Finish();
  return answered ? grpc::Status::OK : status;
}

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

}  // namespace baton::strangers
