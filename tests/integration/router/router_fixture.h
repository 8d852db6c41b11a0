// RouterTest: a real router over real sockets, with the shipped model's tokenizer and template, and fake
// workers.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/inference.grpc.pb.h"
#include "router/router.h"
#include "tests/fakes/fake_worker.h"
#include "tests/patience.h"

namespace baton::router {

// The results of a stream.
struct Answer {
  absl::Status status;
  std::vector<v1::Started> started;
  std::vector<v1::Delta> deltas;
  std::vector<v1::Finished> finished;

  std::string text(uint32_t choice = 0) const;
};

class RouterTest : public ::testing::Test {
 protected:
  void TearDown() override;

  // A worker that lives as long as the test.
  fakes::FakeWorker* AddWorker(fakes::FakeWorker::Options options = {});
  // Over all workers so far, and further decode addresses. Returns when every worker was heard of.
  void StartRouter(RouterOptions options = {}, std::vector<std::string> more_decode = {});

  Answer Generate(const v1::GenerateRequest& request, absl::Duration deadline = Scaled(absl::Seconds(60)));
  Answer Chat(const v1::ChatRequest& request);
  template <typename Response>
  static Answer ReadAll(grpc::ClientContext* context, grpc::ClientReader<Response>* reader);

  static v1::GenerateRequest TextRequest(const std::string& text = "Hello there");
  // Value of a metric line, by its name and labels exactly as on the page; 0 if it is not there.
  double Metric(const std::string& line_start) const;
  // Waits for the metric to have this value. The test has failed if it does not get it.
  bool AwaitMetric(const std::string& line_start, double value) const;

  std::vector<std::unique_ptr<fakes::FakeWorker>> workers_;
  std::vector<std::string> decode_, prefill_;
  std::unique_ptr<Router> router_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

}  // namespace baton::router
