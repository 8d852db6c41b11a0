// A prefix fetched from a peer beside the same prefix computed again: two prefill and two decode servers in
// this process, over loopback, the host link and gRPC as everywhere. Each prompt is computed on the first
// prefill worker, then fetched from it by the second. Medians of the same run; read the ratios.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <random>

#include "baton/fleet/v1/decode.grpc.pb.h"
#include "baton/fleet/v1/worker.grpc.pb.h"
#include "common/base/build_info.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "decode_service/server.h"
#include "prefill_service/server.h"
#include "spdlog/spdlog.h"
#include "tests/bench/timing.h"

namespace baton::bench {
namespace {

fleet::v1::WorkerInfo InfoOf(const std::string& address) {
  const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel(address));
  grpc::ClientContext context;
  const auto reader = stub->Watch(&context, fleet::v1::WatchRequest());
  fleet::v1::WatchEvent event;
  BATON_CHECK(reader->Read(&event)) << address;
  context.TryCancel();
  return event.snapshot().info();
}

v1::Finished Run(fleet::v1::Decode::Stub& stub, const fleet::v1::DecodeRequest& request) {
  grpc::ClientContext context;
  const auto reader = stub.Generate(&context, request);
  v1::Finished finished;
  for (fleet::v1::DecodeEvent event; reader->Read(&event);) {
    if (event.has_finished()) finished = event.finished();
  }
  const grpc::Status status = reader->Finish();
  BATON_CHECK(status.ok()) << status.error_message();
  return finished;
}

// By itself: GCC 12 takes what it inlines into a larger function for uninitialized.
[[gnu::noinline]] std::unique_ptr<decode_service::DecodeServer> StartDecode(const worker::Options& worker) {
  decode_service::ServerOptions options;
  options.worker = worker;
  return decode_service::DecodeServer::Start(std::move(options)).value();
}

int Main(int argc, char** argv) {
  worker::Options worker{.peer_fetch = "always"};
  worker.process.log_level = "error";
  worker.engine.model_folder = BATON_SOURCE_DIR "/models/baton-tiny";
  worker.engine.kv_bytes = int64_t{512} << 20;
  worker.engine.threads = 1;
  int rounds = 9;
  std::vector<int64_t> sizes = {1024, 2048};
  CLI::App app{"Fetching a prefix from a peer beside computing it again."};
  app.add_option("--model", worker.engine.model_folder, "Model folder")->capture_default_str();
  app.add_option("--threads", worker.engine.threads, "Threads per worker")->capture_default_str();
  app.add_option("--rounds", rounds, "Prompts of each size")->capture_default_str();
  app.add_option("--tokens", sizes, "Sizes of prefixes")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::err);
  const BuildInfo build = GetBuildInfo();
  std::printf("%s, %d thread(s) per worker, %s, %s, commit %s, seed 1\n", worker.engine.model_folder.c_str(),
              worker.engine.threads, build.compiler, build.build_type, build.commit);

  std::unique_ptr<prefill_service::PrefillServer> prefill[2];
  std::unique_ptr<decode_service::DecodeServer> decode[2];
  std::unique_ptr<fleet::v1::Decode::Stub> stubs[2];
  for (int i = 0; i < 2; ++i) {
    prefill[i] = prefill_service::PrefillServer::Start({.worker = worker}).value();
    decode[i] = StartDecode(worker);
    stubs[i] = fleet::v1::Decode::NewStub(rpc::MakeChannel(decode[i]->address()));
  }
  const fleet::v1::WorkerInfo info = InfoOf(decode[0]->address());

  std::mt19937 random(1);
  for (const int64_t size : sizes) {
    std::vector<double> computing, fetching, ratios;
    uint64_t bytes = 0;
    for (int round = 0; round <= rounds; ++round) {
      fleet::v1::DecodeRequest request;
      *request.mutable_fingerprint() = info.fingerprint();
      for (int64_t i = 0; i <= size; ++i) {
        request.add_token_ids(static_cast<int32_t>(20 + random() % (info.vocabulary_tokens() - 20)));
      }
      request.mutable_sampling()->set_temperature(0);
      request.mutable_stop()->set_max_tokens(1);
      fleet::v1::PrefillTarget* target = request.add_prefill();
      target->set_address(prefill[0]->address());
      const v1::Finished computed = Run(*stubs[0], request);
      bytes = computed.relay().shipped_bytes();
      target->set_address(prefill[1]->address());
      target->mutable_fetch()->set_worker("peer");
      target->mutable_fetch()->set_address(prefill[0]->address());
      target->mutable_fetch()->set_blocks(static_cast<uint32_t>(size / kBlockTokens));
      const v1::Finished fetched = Run(*stubs[1], request);
      BATON_CHECK(fetched.relay().fetched_tokens() == size) << fetched.relay().fetched_tokens();
      if (round == 0) continue;  // connections are made
      computing.push_back(computed.timing().prefill_seconds());
      fetching.push_back(fetched.relay().fetch_seconds());
      ratios.push_back(fetching.back() / computing.back());
    }
    std::printf(
        "%5ld tokens, %5.1f MB of KV: computed in %7.1f ms, fetched in %7.1f ms, ratio %.3f (median of %d)\n",
        static_cast<long>(size), static_cast<double>(bytes) / 1e6, 1e3 * Median(computing),
        1e3 * Median(fetching), Median(ratios), rounds);
  }
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
