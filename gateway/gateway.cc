#include "gateway/gateway.h"

#include <grpcpp/channel.h>

#include <utility>

#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "common/rpc/channel.h"
#include "common/rpc/security.h"
#include "common/rpc/status.h"
#include "gateway/answer_call.h"
#include "gateway/mapping/anthropic_answer.h"
#include "gateway/mapping/anthropic_request.h"
#include "gateway/mapping/http_status.h"
#include "gateway/mapping/openai_answer.h"
#include "gateway/mapping/openai_request.h"
#include "gateway/mapping/sse.h"
#include "gateway/probe.h"

namespace baton::gateway {
namespace {

// Values in one body: some hundred times what a long conversation with tools has.
constexpr int64_t kMaxValues = 1'000'000;

int64_t Now() { return absl::ToUnixSeconds(absl::Now()); }

std::string Shown(const Json& json) { return Dump(json) + "\n"; }

AnswerFormat OpenAiErrors() {
  AnswerFormat format;
  format.error = [](const absl::Status& status) { return Shown(OpenAiError(status)); };
  format.error_event = [](const absl::Status& status) { return Event(OpenAiError(status)); };
  return format;
}

AnswerFormat AnthropicErrors() {
  AnswerFormat format;
  format.error = [](const absl::Status& status) { return Shown(AnthropicError(status)); };
  format.error_event = [](const absl::Status& status) { return Event("error", AnthropicError(status)); };
  return format;
}

AnswerFormat FormatOf(OpenAiKind kind, const OpenAiAnswer& wanted, const std::string& echo) {
  AnswerFormat format = OpenAiErrors();
  if (wanted.stream) {
    const auto chunks = std::make_shared<OpenAiChunks>(kind, Now(), wanted.usage, echo);
    format.piece = [chunks](const v1::GenerateResponse& event) { return chunks->Add(event); };
    format.last = [chunks](const v1::Usage& usage) { return chunks->End(usage); };
  } else {
    format.whole = [kind, echo, created = Now()](const Answer& answer, const v1::Usage& usage) {
      return Shown(OpenAiWhole(kind, answer, usage, created, echo));
    };
  }
  return format;
}

AnswerFormat FormatOf(const AnthropicMessages& wanted) {
  AnswerFormat format = AnthropicErrors();
  if (wanted.stream) {
    const auto events = std::make_shared<AnthropicEvents>();
    format.piece = [events](const v1::GenerateResponse& event) { return events->Add(event); };
    format.last = [events](const v1::Usage& usage) { return events->End(usage); };
  } else {
    format.whole = [](const Answer& answer, const v1::Usage& usage) {
      return Shown(AnthropicWhole(answer, usage));
    };
  }
  return format;
}

Json ModelJson(const v1::ModelInfo& model) {
  return {{"id", model.name()},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "baton"},
          {"max_model_len", model.context_tokens()}};
}

// A handle that tells the probe how the exchange ended.
class Counted final : public http::Exchange {
 public:
  // `alive`: what the gateway waits for before it goes.
  Counted(std::shared_ptr<http::Exchange> exchange, std::string endpoint, Probe& probe,
          std::shared_ptr<void> alive)
      : alive_(std::move(alive)),
        exchange_(std::move(exchange)),
        endpoint_(std::move(endpoint)),
        probe_(probe) {}
  ~Counted() override { probe_.Answered(endpoint_, status_, absl::Now() - begun_); }

  const http::Request& request() const override { return exchange_->request(); }
  void Answer(http::Response response) override {
    status_ = response.status;
    exchange_->Answer(std::move(response));
  }
  void Begin(http::Response response) override {
    status_ = response.status;
    exchange_->Begin(std::move(response));
  }
  void Write(std::string piece, std::function<void()> taken) override {
    exchange_->Write(std::move(piece), std::move(taken));
  }
  void End() override { exchange_->End(); }
  void Abort() override { exchange_->Abort(); }
  void OnGone(std::function<void()> gone) override {
    exchange_->OnGone([this, gone = std::move(gone)] {
      status_ = HttpStatusOf(absl::StatusCode::kCancelled);
      gone();
    });
  }
  void Post(std::function<void()> what) override { exchange_->Post(std::move(what)); }
  void After(int milliseconds, std::function<void()> what) override {
    exchange_->After(milliseconds, std::move(what));
  }

 private:
  const std::shared_ptr<void> alive_;  // before, so destroyed after, all others
  const std::shared_ptr<http::Exchange> exchange_;
  const std::string endpoint_;
  Probe& probe_;
  const absl::Time begun_ = absl::Now();
  int status_ = HttpStatusOf(absl::StatusCode::kInternal);
};

}  // namespace

struct Gateway::Parts {
  using Handle = std::shared_ptr<http::Exchange>;

  Parts(const GatewayOptions& given, std::shared_ptr<const rpc::Security> proof)
      : options(given),
        security(std::move(proof)),
        router(rpc::MakeChannel(given.router, rpc::kPublicKeepalive, security.get())),
        stub(router) {}

  void Route(const Handle& plain) {
    const std::string& path = plain->request().path;
    static constexpr std::string_view kModel = "/v1/models/";
    struct Endpoint {
      std::string_view method, path;
      void (Parts::*serve)(const Handle&);
    };
    static constexpr Endpoint kEndpoints[] = {
        {"POST", "/v1/chat/completions", &Parts::Chat},
        {"POST", "/v1/completions", &Parts::Complete},
        {"GET", "/v1/models", &Parts::Models},
        {"POST", "/v1/messages", &Parts::Messages},
        {"POST", "/v1/messages/count_tokens", &Parts::CountTokens},
        {"POST", "/tokenize", &Parts::Tokenize},
        {"POST", "/detokenize", &Parts::Detokenize},
        {"GET", "/health", &Parts::Health},
        {"GET", "/ready", &Parts::Ready},
        {"GET", "/version", &Parts::Version},
    };
    const bool one_model = path.starts_with(kModel);
    for (const Endpoint& endpoint : kEndpoints) {
      if (path != endpoint.path && !(one_model && endpoint.path == "/v1/models")) continue;
      const auto exchange = std::make_shared<Counted>(plain, std::string(endpoint.path), probe, alive);
      const std::string& method = exchange->request().method;
      if (method == endpoint.method || (method == "HEAD" && endpoint.method == "GET")) {
        return (this->*endpoint.serve)(exchange);
      }
      http::Response response =
          ErrorResponse(absl::InvalidArgumentError("use " + std::string(endpoint.method)), OpenAiErrors());
      response.status = 405;
      response.headers.emplace_back("Allow", std::string(endpoint.method));
      return exchange->Answer(std::move(response));
    }
    http::Response response =
        ErrorResponse(absl::InvalidArgumentError("nothing is served at " + path), OpenAiErrors());
    response.status = 404;
    std::make_shared<Counted>(plain, "other", probe, alive)->Answer(std::move(response));
  }

  // The body as JSON; nothing: it was answered that it is none.
  std::optional<Json> Body(const Handle& exchange, const AnswerFormat& errors) const {
    auto body = json::Parse<Json>(exchange->request().body, {.values = kMaxValues});
    if (body.ok()) return *std::move(body);
    exchange->Answer(ErrorResponse(
        absl::InvalidArgumentError("the body: " + std::string(body.status().message())), errors));
    return std::nullopt;
  }

  void AddIgnored(const std::vector<std::string>& ignored, AnswerFormat* format) {
    probe.Ignored(ignored.size());
    // Names come from clients: what could end a header's line is left out.
    std::string names = absl::StrJoin(ignored, ", ").substr(0, 400);
    for (char& c : names) {
      if (c < ' ' || c > '~') c = '?';
    }
    if (!names.empty()) format->headers.emplace_back("x-baton-ignored", names);
  }

  CallTimes Times() const {
    return {.comment_after = options.comment_after, .head_after = options.head_after};
  }

  void Chat(const Handle& exchange) {
    const auto body = Body(exchange, OpenAiErrors());
    if (!body.has_value()) return;
    auto chat = ReadOpenAiChat(*body);
    if (!chat.ok()) return exchange->Answer(ErrorResponse(chat.status(), OpenAiErrors()));
    AnswerFormat format = FormatOf(OpenAiKind::kChat, chat->answer, "");
    AddIgnored(chat->answer.ignored, &format);
    StartAnswer(exchange, stub, std::move(chat->request), std::move(format), Times(), probe);
  }

  void Complete(const Handle& exchange) {
    const auto body = Body(exchange, OpenAiErrors());
    if (!body.has_value()) return;
    auto completion = ReadOpenAiCompletion(*body);
    if (!completion.ok()) return exchange->Answer(ErrorResponse(completion.status(), OpenAiErrors()));
    AnswerFormat format = FormatOf(OpenAiKind::kCompletion, completion->answer,
                                   completion->echo ? completion->request.text() : "");
    AddIgnored(completion->answer.ignored, &format);
    StartAnswer(exchange, stub, std::move(completion->request), std::move(format), Times(), probe);
  }

  void Messages(const Handle& exchange) {
    const auto body = Body(exchange, AnthropicErrors());
    if (!body.has_value()) return;
    auto messages = ReadAnthropicMessages(*body);
    if (!messages.ok()) return exchange->Answer(ErrorResponse(messages.status(), AnthropicErrors()));
    AnswerFormat format = FormatOf(*messages);
    AddIgnored(messages->ignored, &format);
    StartAnswer(exchange, stub, std::move(messages->request), std::move(format), Times(), probe);
  }

  // A call that has one answer.
  template <typename Request, typename Answer, typename Method, typename Show>
  void Ask(const Handle& exchange, Request request, const AnswerFormat& errors, Method method, Show show) {
    struct State {
      grpc::ClientContext context;
      Request request;
      Answer answer;
    };
    const auto state = std::make_shared<State>();
    state->request = std::move(request);
    PassOn(exchange->request(), &state->context);
    exchange->OnGone([state] { state->context.TryCancel(); });
    (stub.async()->*method)(
        &state->context, &state->request, &state->answer,
        [exchange, state, errors, show](const grpc::Status& status) {
          exchange->Answer(status.ok() ? show(state->answer) : ErrorResponse(rpc::FromGrpc(status), errors));
        });
  }

  template <typename Show>
  void AskModels(const Handle& exchange, Show show) {
    using Async = v1::Inference::StubInterface::async_interface;
    Ask<v1::ListModelsRequest, v1::ListModelsResponse>(
        exchange, {}, OpenAiErrors(),
        static_cast<void (Async::*)(grpc::ClientContext*, const v1::ListModelsRequest*,
                                    v1::ListModelsResponse*, std::function<void(grpc::Status)>)>(
            &Async::ListModels),
        show);
  }

  void Models(const Handle& exchange) {
    const std::string& path = exchange->request().path;
    const std::string wanted =
        path == "/v1/models" ? "" : path.substr(std::string_view("/v1/models/").size());
    AskModels(exchange, [wanted](const v1::ListModelsResponse& models) {
      Json list = Json::array();
      for (const v1::ModelInfo& model : models.models()) {
        if (model.name() == wanted) return http::Response{.body = Shown(ModelJson(model))};
        list.push_back(ModelJson(model));
      }
      if (!wanted.empty())
        return ErrorResponse(absl::NotFoundError("no model of that name is served here"), OpenAiErrors());
      return http::Response{.body = Shown({{"object", "list"}, {"data", std::move(list)}})};
    });
  }

  void AskTokens(const Handle& exchange, absl::StatusOr<v1::TokenizeRequest> request,
                 const AnswerFormat& errors, std::function<Json(const v1::TokenizeResponse&)> show) {
    if (!request.ok()) return exchange->Answer(ErrorResponse(request.status(), errors));
    using Async = v1::Inference::StubInterface::async_interface;
    Ask<v1::TokenizeRequest, v1::TokenizeResponse>(
        exchange, *std::move(request), errors,
        static_cast<void (Async::*)(grpc::ClientContext*, const v1::TokenizeRequest*, v1::TokenizeResponse*,
                                    std::function<void(grpc::Status)>)>(&Async::Tokenize),
        [show = std::move(show)](const v1::TokenizeResponse& tokens) {
          return http::Response{.body = Shown(show(tokens))};
        });
  }

  void CountTokens(const Handle& exchange) {
    const auto body = Body(exchange, AnthropicErrors());
    if (!body.has_value()) return;
    AskTokens(exchange, ReadAnthropicCount(*body), AnthropicErrors(), [](const v1::TokenizeResponse& tokens) {
      return Json::object({{"input_tokens", tokens.token_ids_size()}});
    });
  }

  void Tokenize(const Handle& exchange) {
    const auto body = Body(exchange, OpenAiErrors());
    if (!body.has_value()) return;
    AskTokens(exchange, ReadTokenize(*body), OpenAiErrors(), [](const v1::TokenizeResponse& tokens) {
      return Json{{"count", tokens.token_ids_size()},
                  {"tokens", std::vector<int32_t>(tokens.token_ids().begin(), tokens.token_ids().end())}};
    });
  }

  void Detokenize(const Handle& exchange) {
    const auto body = Body(exchange, OpenAiErrors());
    if (!body.has_value()) return;
    auto request = ReadDetokenize(*body);
    if (!request.ok()) return exchange->Answer(ErrorResponse(request.status(), OpenAiErrors()));
    using Async = v1::Inference::StubInterface::async_interface;
    Ask<v1::DetokenizeRequest, v1::DetokenizeResponse>(
        exchange, *std::move(request), OpenAiErrors(),
        static_cast<void (Async::*)(grpc::ClientContext*, const v1::DetokenizeRequest*,
                                    v1::DetokenizeResponse*, std::function<void(grpc::Status)>)>(
            &Async::Detokenize),
        [](const v1::DetokenizeResponse& text) {
          return http::Response{.body = Shown(Json::object({{"prompt", text.text()}}))};
        });
  }

  void Health(const Handle& exchange) {
    exchange->Answer({.content_type = "text/plain; charset=utf-8", .body = "alive\n"});
  }

  void Ready(const Handle& exchange) {
    AskModels(exchange, [](const v1::ListModelsResponse& models) {
      for (const v1::ModelInfo& model : models.models()) {
        if (model.ready_decode_workers() > 0) {
          return http::Response{.content_type = "text/plain; charset=utf-8", .body = "ready\n"};
        }
      }
      return ErrorResponse(absl::UnavailableError("no decode worker is up"), OpenAiErrors());
    });
  }

  void Version(const Handle& exchange) {
    exchange->Answer({.body = Shown(Json::object({{"version", BATON_VERSION}}))});
  }

  const GatewayOptions options;
  const std::shared_ptr<const rpc::Security> security;
  telemetry::Metrics metrics;
  Probe probe{metrics};
  const std::shared_ptr<grpc::Channel> router;
  v1::Inference::Stub stub;
  std::unique_ptr<http::Server> server;
  // Every exchange holds it; its end is the end of the last one.
  absl::Notification none_left;
  std::shared_ptr<void> alive{this, [this](void*) { none_left.Notify(); }};
};

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(const GatewayOptions& options) {
  BATON_ASSIGN_OR_RETURN(auto security, rpc::Security::Load(options.security));
  auto parts = std::make_unique<Parts>(options, std::move(security));
  Parts& served = *parts;
  BATON_ASSIGN_OR_RETURN(
      parts->server, http::Server::Start(options.http, [&served](std::shared_ptr<http::Exchange> exchange) {
        served.Route(exchange);
      }));
  return std::unique_ptr<Gateway>(new Gateway(std::move(parts)));
}

Gateway::Gateway(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Gateway::~Gateway() { Stop(absl::ZeroDuration()); }

const std::string& Gateway::address() const { return parts_->server->address(); }
const telemetry::Metrics& Gateway::metrics() const { return parts_->metrics; }
void Gateway::Stop(absl::Duration grace) {
  if (parts_->alive == nullptr) return;
  parts_->server->Stop(grace);
  parts_->alive.reset();
  parts_->none_left.WaitForNotification();
}

}  // namespace baton::gateway
