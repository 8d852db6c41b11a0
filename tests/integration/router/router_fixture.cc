#include "tests/integration/router/router_fixture.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <sstream>

#include "common/base/check.h"
#include "common/rpc/status.h"
#include "tests/patience.h"

namespace baton::router {

std::string Answer::text(uint32_t choice) const {
  std::string text;
  for (const v1::Delta& delta : deltas) {
    if (delta.choice() == choice) text += delta.text();
  }
  return text;
}

void RouterTest::TearDown() {
  if (router_ == nullptr) return;
  // Whatever happened in the test: nothing is left behind.
  EXPECT_TRUE(AwaitMetric("baton_router_running ", 0)) << router_->metrics().Text();
  EXPECT_TRUE(AwaitMetric("baton_router_bookings ", 0)) << router_->metrics().Text();
  EXPECT_TRUE(AwaitMetric("baton_router_queue_requests ", 0)) << router_->metrics().Text();
  for (const auto& worker : workers_) {
    EXPECT_TRUE(worker->Await([](const fakes::FakeWorker::Counts& counts) { return counts.running == 0; }));
  }
  router_->Stop();
}

fakes::FakeWorker* RouterTest::AddWorker(fakes::FakeWorker::Options options) {
  if (options.incarnation == 1) options.incarnation = 100 + workers_.size();
  const bool decodes = options.role == baton::fleet::v1::ROLE_DECODE;
  auto worker = fakes::FakeWorker::Start(std::move(options));
  BATON_CHECK(worker.ok()) << worker.status();
  (decodes ? decode_ : prefill_).push_back((*worker)->address());
  workers_.push_back(*std::move(worker));
  return workers_.back().get();
}

void RouterTest::StartRouter(RouterOptions options, std::vector<std::string> more_decode) {
  if (options.models.empty()) options.models = {{.folder = BATON_SOURCE_DIR "/models/baton-tiny"}};
  options.decode = decode_;
  options.decode.insert(options.decode.end(), more_decode.begin(), more_decode.end());
  options.prefill = prefill_;
  options.drain = absl::Seconds(1);
  // On a loaded machine a living process may be silent for seconds.
  options.keepalive.timeout = Scaled(absl::Seconds(60));
  auto router = Router::Start(options);
  BATON_CHECK(router.ok()) << router.status();
  router_ = *std::move(router);
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  channel_ = grpc::CreateCustomChannel(router_->address(), grpc::InsecureChannelCredentials(), arguments);
  stub_ = v1::Inference::NewStub(channel_);
  Await([&] { return router_->fleet().settled(); }, "word of every worker at the router");
}

template <typename Response>
Answer RouterTest::ReadAll(grpc::ClientContext* context, grpc::ClientReader<Response>* reader) {
  Answer answer;
  Response response;
  while (reader->Read(&response)) {
    if (response.has_started()) answer.started.push_back(response.started());
    if (response.has_delta()) answer.deltas.push_back(response.delta());
    if (response.has_finished()) answer.finished.push_back(response.finished());
  }
  answer.status = rpc::FromGrpc(reader->Finish());
  return answer;
}
template Answer RouterTest::ReadAll(grpc::ClientContext*, grpc::ClientReader<v1::ChatResponse>*);
template Answer RouterTest::ReadAll(grpc::ClientContext*, grpc::ClientReader<v1::GenerateResponse>*);
template Answer RouterTest::ReadAll(grpc::ClientContext*, grpc::ClientReader<v1::ResumeResponse>*);

Answer RouterTest::Generate(const v1::GenerateRequest& request, absl::Duration deadline) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(deadline));
  return ReadAll(&context, stub_->Generate(&context, request).get());
}

Answer RouterTest::Chat(const v1::ChatRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
  return ReadAll(&context, stub_->Chat(&context, request).get());
}

v1::GenerateRequest RouterTest::TextRequest(const std::string& text) {
  v1::GenerateRequest request;
  request.set_text(text);
  return request;
}

double RouterTest::Metric(const std::string& line_start) const {
  std::istringstream page(router_->metrics().Text());
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with(line_start)) return std::stod(line.substr(line.rfind(' ')));
  }
  return 0;
}

bool RouterTest::AwaitMetric(const std::string& line_start, double value) const {
  return Await([&] { return Metric(line_start) == value; },
               [&] { return fmt::format("{}{}, which is {}", line_start, value, Metric(line_start)); });
}

}  // namespace baton::router
