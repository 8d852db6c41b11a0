#include "gateway/routes.h"

#include <fmt/format.h>
#include <google/protobuf/message_lite.h>

#include <string_view>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/json/strict_json.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "gateway/mapping/moderation.h"
#include "gateway/mapping/openai_request.h"
#include "gateway/mapping/responses_request.h"
#include "gateway/page_answer.h"
#include "gateway/passed_on.h"
#include "gateway/question.h"

namespace baton::gateway {
namespace {

// Limits of what a body may cost: numbers are cheap, and a prompt may be a list of token ids; objects, lists
// and members take some hundred bytes and nanoseconds each, and the longest conversation that is taken has
// some hundred thousand.
constexpr json::Limits kBodyLimits = {.values = 1'000'000, .members = 200'000};
// From so many bytes on, reading a body or writing an answer takes the time of a hundred small ones.
constexpr size_t kLargeBytes = 64 << 10;
// A message grows by so much at most on its way to a router: keys, seeds, builds, and what a Resume has.
constexpr size_t kAddedBytes = 1 << 10;

// The context's length has no name in OpenAI's API: these are vLLM's and the one that most agents read.
Json OpenAiModel(const v1::ModelInfo& model) {
  return {{"id", model.name()},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "baton"},
          {"max_model_len", model.context_tokens()},
          {"context_window", model.context_tokens()}};
}

Json AnthropicModel(const v1::ModelInfo& model) {
  return {{"type", "model"},
          {"id", model.name()},
          {"display_name", model.name()},
          {"created_at", "1970-01-01T00:00:00Z"},
          {"max_input_tokens", model.context_tokens()}};
}

Json ModelList(const Json& models, bool anthropic) {
  if (!anthropic) return {{"object", "list"}, {"data", models}};
  const auto id = [&](bool first) {
    return models.empty() ? Json(nullptr) : (first ? models.front() : models.back())["id"];
  };
  return {{"data", models}, {"has_more", false}, {"first_id", id(true)}, {"last_id", id(false)}};
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// A path as it was meant (RFC 3986, section 2.1), without a slash at its end: clients send a model's name as
// "owner%2Fname". Escapes that are none stay.
std::string MeantBy(std::string_view path) {
  std::string meant;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool escape =
        path[i] == '%' && i + 2 < path.size() && HexDigit(path[i + 1]) >= 0 && HexDigit(path[i + 2]) >= 0;
    if (!escape) {
      meant += path[i];
      continue;
    }
    meant += static_cast<char>(HexDigit(path[i + 1]) * 16 + HexDigit(path[i + 2]));
    i += 2;
  }
  while (meant.size() > 1 && meant.ends_with('/')) meant.pop_back();
  return meant;
}

constexpr std::string_view kResponse = "/v1/responses/";

}  // namespace

void Routes::Serve(const std::shared_ptr<http::Exchange>& plain, const std::shared_ptr<void>& alive) {
  const std::string path = MeantBy(plain->request().path);
  static constexpr std::string_view kModel = "/v1/models/";
  struct Endpoint {
    std::string_view method, path;
    void (Routes::*serve)(const Handle&);
  };
  static constexpr Endpoint kEndpoints[] = {
      {"POST", "/v1/chat/completions", &Routes::Chat},
      {"POST", "/v1/completions", &Routes::Complete},
      {"POST", "/v1/responses", &Routes::Responses},
      {"POST", "/v1/moderations", &Routes::Moderations},
      {"GET", "/v1/models", &Routes::Models},
      {"POST", "/v1/messages", &Routes::Messages},
      {"POST", "/v1/messages/count_tokens", &Routes::CountTokens},
      {"POST", "/tokenize", &Routes::Tokenize},
      {"POST", "/detokenize", &Routes::Detokenize},
      {"GET", "/health", &Routes::Health},
      {"GET", "/ready", &Routes::Ready},
      {"GET", "/version", &Routes::Version},
  };
  const auto counted = [&](std::string_view endpoint) {
    return std::make_shared<CountedExchange>(plain, std::string(endpoint), probe_, alive,
                                             origins_.HeadersFor(plain->request()));
  };
  if (const std::string why = origins_.WhyRefused(plain->request()); !why.empty())
    return counted("other")->Answer(Refusal(403, path, why));
  if (origins_.IsPreflight(plain->request()))
    return counted("preflight")->Answer(origins_.Preflight(plain->request()));
  if (options_.page) {
    if (auto page = PageAnswer(plain->request()); page.has_value())
      return counted("/")->Answer(*std::move(page));
  }
  const bool one_model = path.starts_with(kModel);
  for (const Endpoint& endpoint : kEndpoints) {
    if (path != endpoint.path && !(one_model && endpoint.path == "/v1/models")) continue;
    const Handle exchange = counted(endpoint.path);
    const std::string& method = exchange->request().method;
    if (method == endpoint.method || (method == "HEAD" && endpoint.method == "GET")) {
      if (const std::string why = WhyNotPassedOn(exchange->request()); !why.empty())
        return exchange->Answer(Refusal(431, path, why));
      if (exchange->request().body.size() <= kLargeBytes) return (this->*endpoint.serve)(exchange);
      return side_thread_.Run(exchange->request().address,
                              [this, exchange, serve = endpoint.serve] { (this->*serve)(exchange); });
    }
    http::Response response = Refusal(405, path, "use " + std::string(endpoint.method));
    response.headers.emplace_back("Allow", std::string(endpoint.method));
    return exchange->Answer(std::move(response));
  }
  const std::string& given = plain->request().path;
  counted("other")->Answer(Refusal(
      404, given,
      path.starts_with(kResponse)
          ? "no answer is kept here, so there is none to read, to cancel or to delete: send the whole "
            "conversation with each request"
          : "nothing is served at " + given));
}

std::optional<Json> Routes::Body(const Handle& exchange, const AnswerFormat& errors) const {
  const std::string_view encoding = exchange->request().Header("content-encoding");
  if (!encoding.empty() && encoding != "identity") {
    exchange->Answer(Refusal(415, exchange->request().path,
                             fmt::format("content-encoding: \"{}\" is not read here: send the body as it is",
                                         encoding.substr(0, 40))));
    return std::nullopt;
  }
  auto body = json::Parse<Json>(exchange->request().body, kBodyLimits);
  if (body.ok()) return *std::move(body);
  exchange->Answer(
      ErrorResponse(absl::InvalidArgumentError("the body: " + std::string(body.status().message())), errors));
  return std::nullopt;
}

// JSON of many short numbers is smaller than the message that it becomes, which gRPC would refuse in words
// that ask for another try.
bool Routes::Fits(const Handle& exchange, const google::protobuf::MessageLite& request) {
  const size_t bytes = request.ByteSizeLong();
  if (bytes + kAddedBytes <= rpc::kMaxMessageBytes) return true;
  exchange->Answer(Refusal(413, exchange->request().path,
                           fmt::format("the request is a message of {} bytes to the router, which takes {}",
                                       bytes, rpc::kMaxMessageBytes)));
  return false;
}

void Routes::AddIgnored(const std::vector<std::string>& ignored, AnswerFormat* format) {
  probe_.Ignored(ignored.size());
  // Names come from clients: what could end a header's line is left out.
  std::string names = absl::StrJoin(ignored, ", ").substr(0, 400);
  for (char& c : names) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (!names.empty()) format->headers.emplace_back("x-baton-ignored", names);
}

void Routes::StartChat(const Handle& exchange, v1::ChatRequest request, AnswerFormat format) {
  if (!Fits(exchange, request)) return;
  std::vector<v1::ChatRequest> requests;
  requests.push_back(std::move(request));
  StartAnswer(exchange, routers_, std::move(requests), std::move(format), options_.times, probe_,
              side_thread_);
}

void Routes::Chat(const Handle& exchange) {
  const auto body = Body(exchange, OpenAiErrors(Api::kChat, exchange->id()));
  if (!body.has_value()) return;
  auto chat = ReadOpenAiChat(*body);
  if (!chat.ok())
    return exchange->Answer(ErrorResponse(chat.status(), OpenAiErrors(Api::kChat, exchange->id())));
  AnswerFormat format = FormatOf(OpenAiKind::kChat, chat->answer, exchange->id());
  AddIgnored(chat->answer.ignored, &format);
  StartChat(exchange, std::move(chat->request), std::move(format));
}

void Routes::Complete(const Handle& exchange) {
  const auto body = Body(exchange, OpenAiErrors(Api::kCompletion, exchange->id()));
  if (!body.has_value()) return;
  auto completion = ReadOpenAiCompletion(*body);
  if (!completion.ok())
    return exchange->Answer(
        ErrorResponse(completion.status(), OpenAiErrors(Api::kCompletion, exchange->id())));
  for (const v1::GenerateRequest& request : completion->requests) {
    if (!Fits(exchange, request)) return;
  }
  AnswerFormat format = FormatOf(OpenAiKind::kCompletion, completion->answer, exchange->id());
  AddIgnored(completion->answer.ignored, &format);
  StartAnswer(exchange, routers_, std::move(completion->requests), std::move(format), options_.times, probe_,
              side_thread_);
}

void Routes::Responses(const Handle& exchange) {
  const auto body = Body(exchange, OpenAiErrors(Api::kResponses, exchange->id()));
  if (!body.has_value()) return;
  auto responses = ReadResponses(*body);
  if (!responses.ok())
    return exchange->Answer(ErrorResponse(responses.status(), OpenAiErrors(Api::kResponses, exchange->id())));
  AnswerFormat format = FormatOf(responses->answer, exchange->id());
  AddIgnored(responses->answer.ignored, &format);
  StartChat(exchange, std::move(responses->request), std::move(format));
}

void Routes::Messages(const Handle& exchange) {
  const auto body = Body(exchange, AnthropicErrors(exchange->id()));
  if (!body.has_value()) return;
  auto messages = ReadAnthropicMessages(*body, options_.rules);
  if (!messages.ok())
    return exchange->Answer(ErrorResponse(messages.status(), AnthropicErrors(exchange->id())));
  AnswerFormat format = FormatOf(*messages, exchange->id());
  AddIgnored(messages->ignored, &format);
  StartChat(exchange, std::move(messages->request), std::move(format));
}

template <typename Request, typename Answer, typename Call, typename Show>
void Routes::Ask(const Handle& exchange, Request request, const AnswerFormat& format, Call call, Show show,
                 Tries tries) {
  if (!Fits(exchange, request)) return;
  const auto question = std::make_shared<Question<Request, Answer, Call, Show>>(
      exchange, routers_, probe_, std::move(request), format, std::move(call), std::move(show), tries);
  // The request may have been read on another thread than the server's, which the question belongs to.
  exchange->Post([question] { question->Start(); });
}

void Routes::Models(const Handle& exchange) {
  const std::string path = MeantBy(exchange->request().path);
  const std::string wanted = path == "/v1/models" ? "" : path.substr(std::string_view("/v1/models/").size());
  // Clients of both vendors ask here, and Anthropic's alone have this header.
  const bool anthropic = !exchange->request().Header("anthropic-version").empty();
  const AnswerFormat errors =
      anthropic ? AnthropicErrors(exchange->id()) : OpenAiErrors(Api::kChat, exchange->id());
  Ask<v1::ListModelsRequest, v1::ListModelsResponse>(
      exchange, {}, errors,
      [](Router& router, auto* context, auto* request, auto* models, auto done) {
        router.inference.async()->ListModels(context, request, models, std::move(done));
      },
      [wanted, errors, anthropic](const v1::ListModelsResponse& models) {
        Json list = Json::array();
        for (const v1::ModelInfo& model : models.models()) {
          list.push_back(anthropic ? AnthropicModel(model) : OpenAiModel(model));
          if (model.name() == wanted) return http::Response{.body = Shown(list.back())};
        }
        if (!wanted.empty())
          return ErrorResponse(absl::NotFoundError("no model of that name is served here"), errors);
        return http::Response{.body = Shown(ModelList(list, anthropic))};
      });
}

void Routes::CountTokens(const Handle& exchange) {
  AnswerFormat format = AnthropicErrors(exchange->id());
  const auto body = Body(exchange, format);
  if (!body.has_value()) return;
  std::vector<std::string> ignored;
  auto request = ReadAnthropicCount(*body, options_.rules, &ignored);
  if (!request.ok()) return exchange->Answer(ErrorResponse(request.status(), format));
  AddIgnored(ignored, &format);
  Ask<v1::CountTokensRequest, v1::CountTokensResponse>(
      exchange, *std::move(request), format,
      [](Router& router, auto* context, auto* asked, auto* count, auto done) {
        router.inference.async()->CountTokens(context, asked, count, std::move(done));
      },
      [](const v1::CountTokensResponse& count) {
        return http::Response{.body = Shown(Json::object({{"input_tokens", count.prompt_tokens()}}))};
      });
}

void Routes::Tokenize(const Handle& exchange) {
  AnswerFormat format = OpenAiErrors(Api::kTokens, exchange->id());
  const auto body = Body(exchange, format);
  if (!body.has_value()) return;
  std::vector<std::string> ignored;
  auto request = ReadTokenize(*body, &ignored);
  if (!request.ok()) return exchange->Answer(ErrorResponse(request.status(), format));
  AddIgnored(ignored, &format);
  Ask<v1::TokenizeRequest, v1::TokenizeResponse>(
      exchange, *std::move(request), format,
      [](Router& router, auto* context, auto* asked, auto* tokens, auto done) {
        router.inference.async()->Tokenize(context, asked, tokens, std::move(done));
      },
      [](const v1::TokenizeResponse& tokens) {
        const auto& ids = tokens.token_ids();
        return http::Response{.body = Shown(Json{{"count", ids.size()},
                                                 {"tokens", std::vector<int32_t>(ids.begin(), ids.end())}})};
      });
}

void Routes::Detokenize(const Handle& exchange) {
  AnswerFormat format = OpenAiErrors(Api::kTokens, exchange->id());
  const auto body = Body(exchange, format);
  if (!body.has_value()) return;
  std::vector<std::string> ignored;
  auto request = ReadDetokenize(*body, &ignored);
  if (!request.ok()) return exchange->Answer(ErrorResponse(request.status(), format));
  AddIgnored(ignored, &format);
  Ask<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      exchange, *std::move(request), format,
      [](Router& router, auto* context, auto* asked, auto* text, auto done) {
        router.inference.async()->Detokenize(context, asked, text, std::move(done));
      },
      [](const v1::DetokenizeResponse& text) {
        return http::Response{.body = Shown(Json::object({{"prompt", text.text()}}))};
      });
}

void Routes::Moderations(const Handle& exchange) {
  AnswerFormat format = OpenAiErrors(Api::kModerations, exchange->id());
  const auto body = Body(exchange, format);
  if (!body.has_value()) return;
  std::vector<std::string> ignored;
  auto request = ReadModerations(*body, &ignored);
  if (!request.ok()) return exchange->Answer(ErrorResponse(request.status(), format));
  AddIgnored(ignored, &format);
  Ask<v1::ModerateRequest, v1::ModerateResponse>(
      exchange, *std::move(request), format,
      [](Router& router, auto* context, auto* asked, auto* verdicts, auto done) {
        router.inference.async()->Moderate(context, asked, verdicts, std::move(done));
      },
      [](const v1::ModerateResponse& verdicts) {
        static thread_local absl::BitGen random;
        return http::Response{.body = Shown(ModerationsJson(
                                  verdicts, absl::StrCat("modr-", absl::Hex(random(), absl::kZeroPad16))))};
      });
}

void Routes::Health(const Handle& exchange) {
  exchange->Answer({.content_type = "text/plain; charset=utf-8", .body = "alive\n"});
}

// The router's own health, for which it asks nobody for a key.
void Routes::Ready(const Handle& exchange) {
  using Question = grpc::health::v1::HealthCheckRequest;
  using Answer = grpc::health::v1::HealthCheckResponse;
  Ask<Question, Answer>(
      exchange, {}, OpenAiErrors(Api::kChat, exchange->id()),
      [](Router& router, auto* context, auto* question, auto* answer, auto done) {
        router.checks.UnaryCall(context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), question,
                                answer, std::move(done));
      },
      [errors = OpenAiErrors(Api::kChat, exchange->id())](const Answer& answer) {
        if (answer.status() == Answer::SERVING)
          return http::Response{.content_type = "text/plain; charset=utf-8", .body = "ready\n"};
        return ErrorResponse(absl::UnavailableError("no router sees a decode worker, or all are leaving"),
                             errors);
      },
      // A probe wants to know how it stands now.
      Tries::None());
}

void Routes::Version(const Handle& exchange) {
  exchange->Answer({.body = Shown(Json::object({{"version", BATON_VERSION}}))});
}

}  // namespace baton::gateway
