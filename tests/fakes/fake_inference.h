// FakeInference: a router that plays scripts: a real gRPC server whose streams say what a test wants
// them to say, when it wants it. Waiting costs no thread, so thousands of streams are fine. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"

namespace baton::fakes {

struct Script {
  struct Step {
    // Before the event is sent. Infinite: until the client goes away.
    absl::Duration wait;
    v1::GenerateResponse event;
  };
  std::vector<Step> steps;
  // How the stream ends after the steps.
  absl::Status end = absl::OkStatus();
};

// A well-formed answer: Started, one delta for each token of `tokens` ("t<id> " as text), Finished with usage
// and a timing whose phases add up. `first` before the first token, `gap` before each other.
Script AnswerWith(const std::vector<int32_t>& tokens, uint32_t prompt_tokens, absl::Duration first = {},
                  absl::Duration gap = {});

struct FakeInferenceOptions {
  // Absent: max_tokens tokens 0, 1, 2, ...
  std::function<Script(const v1::GenerateRequest&)> generate = nullptr;
  // Absent: the last message's content, as one delta.
  std::function<Script(const v1::ChatRequest&)> chat = nullptr;
  // Absent: UNIMPLEMENTED.
  std::function<Script(const v1::ResumeRequest&)> resume = nullptr;
  // Tokens of a conversation, for Tokenize, whose pieces are "p0 ", "p1 ", ... Absent: one for each message.
  // A text has one for each byte.
  std::function<int(const v1::Conversation&)> tokens = nullptr;
  // Absent: texts with "bad" in them are flagged, as "violence".
  std::function<v1::ModerateResponse(const v1::ModerateRequest&)> moderate = nullptr;
  // Decode workers that ListModels counts, at each call. Absent: one.
  std::function<uint32_t()> decode_workers = nullptr;
  std::string model = "fake";
  uint32_t context_tokens = 4096;
  uint32_t vocabulary_tokens = 1000;
};

class FakeInference {
 public:
  explicit FakeInference(FakeInferenceOptions options = {});
  ~FakeInference();

  const std::string& address() const;
  // Sets its status in grpc.health.v1; true at first.
  void SetServing(bool serving);
  std::vector<v1::GenerateRequest> generate_requests() const;
  std::vector<v1::ChatRequest> chat_requests() const;
  std::vector<v1::ResumeRequest> resume_requests() const;
  // Streams that the client gave up. Waits for at least `count` of them; false if they don't come in time.
  bool WaitForCancelled(int count) const;
  // Streams open now, and the most there have been at once.
  int open() const;
  int max_open() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace baton::fakes
