#include "tests/fuzz/gateway_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "common/json/strict_json.h"
#include "gateway/mapping/anthropic_answer.h"
#include "gateway/mapping/anthropic_request.h"
#include "gateway/mapping/http_status.h"
#include "gateway/mapping/moderation.h"
#include "gateway/mapping/openai_answer.h"
#include "gateway/mapping/openai_request.h"
#include "gateway/mapping/responses_answer.h"
#include "gateway/mapping/responses_request.h"
#include "gateway/mapping/usage.h"

namespace baton::gateway {
namespace {

absl::Status Unsound(const std::string& what) { return absl::InternalError(what); }

// Refusals are in words, and can be told to a client.
absl::Status Judge(const absl::Status& status) {
  if (status.ok()) return status;
  if (!absl::IsInvalidArgument(status) || status.message().empty()) return Unsound(status.ToString());
  if (OpenAiError(status)["error"]["message"].empty()) return Unsound("an error without words");
  return absl::OkStatus();
}

absl::Status ReadBody(uint8_t kind, std::string_view text) {
  const auto body = json::Parse<Json>(text, {.values = 10000});
  if (!body.ok()) return absl::OkStatus();
  switch (kind % 8) {
    case 0: {
      const auto chat = ReadOpenAiChat(*body);
      if (chat.ok() && chat->request.ByteSizeLong() > 64 * text.size() + 1024)
        return Unsound("a request out of nothing");
      return Judge(chat.status());
    }
    case 1:
      return Judge(ReadOpenAiCompletion(*body).status());
    case 2:
      return Judge(ReadAnthropicMessages(*body).status());
    case 3:
      return Judge(ReadTokenize(*body).status());
    case 7:
      return Judge(ReadDetokenize(*body).status());
    case 5:
      return Judge(ReadModerations(*body).status());
    case 4: {
      const auto responses = ReadResponses(*body);
      if (responses.ok() && responses->request.ByteSizeLong() > 64 * text.size() + 1024)
        return Unsound("a request out of nothing");
      return Judge(responses.status());
    }
    default:
      return Judge(ReadAnthropicCount(*body).status());
  }
}

// Each event ends with an empty line, and its data is JSON, or OpenAI's end.
absl::Status CheckEvents(std::string_view stream) {
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    if (end == stream.npos) return Unsound("an event does not end");
    std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    if (const size_t line = event.find('\n'); event.starts_with("event: ") && line != event.npos) {
      event.remove_prefix(line + 1);
    }
    if (!event.starts_with("data: ") || event.find('\n') != event.npos)
      return Unsound("an event without data");
    event.remove_prefix(6);
    if (event != "[DONE]" && !Json::accept(event)) return Unsound(fmt::format("no JSON: {}", event));
  }
  return absl::OkStatus();
}

absl::Status WriteStream(uint8_t kind, std::span<const uint8_t> bytes) {
  OpenAiChunks chunks(kind % 2 == 0 ? OpenAiKind::kChat : OpenAiKind::kCompletion, 1,
                      {.usage = true, .timing = true, .echoes = {"a", "b"}});
  AnthropicEvents events({});
  const ResponsesAnswer shown = {.summary = kind % 2 == 0, .encrypted = kind % 3 == 0};
  ResponsesEvents typed(1, shown), broken(1, shown);
  protocol::AnswerFold answer;
  std::string openai, anthropic, responses, failed;
  while (!bytes.empty()) {
    const size_t size = std::min<size_t>(bytes[0], bytes.size() - 1);
    v1::GenerateResponse event;
    if (event.ParseFromArray(bytes.data() + 1, static_cast<int>(size))) {
      openai += chunks.Add(event);
      anthropic += events.Add(event);
      responses += typed.Add(event);
      failed += broken.Add(event);
      answer.Add(event);
    }
    bytes = bytes.subspan(size + 1);
  }
  const v1::Usage usage = UsageOf(std::nullopt, answer.choices());
  openai += chunks.End(usage);
  anthropic += events.End(usage);
  responses += typed.End(usage);
  failed += broken.Fail(absl::UnavailableError("gone"));
  for (const std::string& stream : {openai, anthropic, responses, failed}) {
    if (const absl::Status sound = CheckEvents(stream); !sound.ok()) return sound;
  }
  if (!answer.CheckWhole().ok()) return absl::OkStatus();
  OpenAiWhole(OpenAiKind::kChat, answer, usage, 1, {.timing = true});
  OpenAiWhole(OpenAiKind::kCompletion, answer, usage, 1, {.echoes = {"a", "b"}, .n = 2});
  AnthropicWhole(answer, usage, {});
  ResponsesWhole(answer, usage, 1, shown);
  return absl::OkStatus();
}

}  // namespace

absl::Status FuzzGateway(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  const auto rest = bytes.subspan(1);
  if (bytes[0] >= 128) return WriteStream(bytes[0], rest);
  return ReadBody(bytes[0], {reinterpret_cast<const char*>(rest.data()), rest.size()});
}

}  // namespace baton::gateway
