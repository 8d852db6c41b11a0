// InferenceClient: a blocking client of a router, for commands that talk to one stream at a time.
// Calls run on the caller's thread and events are handed over there; a descriptor that becomes readable
// cancels a stream, so that Ctrl-C needs no signal handler. One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"

namespace baton::rpc {
class Security;
}

namespace baton::cli {

inline constexpr int kDefaultPort = 8470;
inline constexpr char kDefaultServer[] = "127.0.0.1:8470";

// "host", "host:port", ":port" or "[v6]:port" to what a channel can dial. INVALID_ARGUMENT if it is none of
// them.
absl::StatusOr<std::string> ParseServer(std::string_view text);

struct StreamOptions {
  // Readable: cancel. Left unread. -1: none.
  int cancel_fd = -1;
  absl::Duration timeout = absl::InfiniteDuration();
};

class InferenceClient {
 public:
  // UNAVAILABLE, saying why and what to do, if no server answers within `patience`; with zero, if the first
  // attempt is refused. CANCELLED once `cancel_fd` is readable, and so are the client's unary calls; it
  // stays open as long as the client is used. -1: none.
  static absl::StatusOr<std::unique_ptr<InferenceClient>> Connect(
      const std::string& address, absl::Duration patience = absl::ZeroDuration(), int cancel_fd = -1,
      const rpc::Security* security = nullptr);
  ~InferenceClient();

  // An error ends the stream.
  using OnEvent = std::function<absl::Status(const v1::GenerateResponse&)>;

  // Return when the stream has ended. CANCELLED if cancel_fd asked for it; what `on_event` refused, as it is.
  // Errors of the server are ready to be shown (Explain).
  absl::Status Generate(const v1::GenerateRequest& request, const StreamOptions& options,
                        const OnEvent& on_event);
  absl::Status Chat(const v1::ChatRequest& request, const StreamOptions& options, const OnEvent& on_event);
  absl::StatusOr<v1::ListModelsResponse> ListModels();
  // Waits until the server has a decode worker of the model (empty: of its only one), at most until the
  // deadline; OK then too, since a request's own answer says better what is missing.
  absl::Status AwaitDecodeWorker(const std::string& model, absl::Time deadline);
  // True if grpc.health.v1 says SERVING for `service`. NOT_FOUND if the server knows none of that name,
  // DEADLINE_EXCEEDED if it gives no answer in time.
  absl::StatusOr<bool> IsServing(const std::string& service, absl::Duration timeout = absl::Seconds(30));
  absl::StatusOr<v1::CountTokensResponse> CountTokens(const v1::CountTokensRequest& request);
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request);
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request);

  const std::string& address() const { return address_; }

 private:
  struct Wire;
  InferenceClient(std::string address, int cancel_fd, std::unique_ptr<Wire> wire);

  const std::string address_;
  const int cancel_fd_;
  const std::unique_ptr<Wire> wire_;
};

// The same error, with words for a person: what failed at which server, and what to do about it.
absl::Status Explain(const absl::Status& status, const std::string& address);

}  // namespace baton::cli
