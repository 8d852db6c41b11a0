#include "router/kserve/infer_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "router/kserve/tensors.h"

namespace baton::router::kserve {
namespace {

using Json = nlohmann::ordered_json;

constexpr TensorInfo kInputs[] = {
    {"text_input", "BYTES", false},
    {"input_ids", "INT32", true},
    {"stream", "BOOL", false},
    {"sampling_parameters", "BYTES", false},
    {"exclude_input_in_output", "BOOL", false},
    {"return_finish_reason", "BOOL", false},
    {"return_cumulative_logprob", "BOOL", false},
    {"return_num_input_tokens", "BOOL", false},
    {"return_num_output_tokens", "BOOL", false},
    {"max_tokens", "INT32", false},
    {"stop_words", "BYTES", true},
    {"end_id", "INT32", false},
    {"temperature", "FP32", false},
    {"top_k", "INT32", false},
    {"top_p", "FP32", false},
    {"min_p", "FP32", false},
    {"random_seed", "UINT64", false},
    {"repetition_penalty", "FP32", false},
    {"presence_penalty", "FP32", false},
    {"frequency_penalty", "FP32", false},
    // As TensorRT-LLM's models have them, where its ensemble has other names.
    {"input_lengths", "INT32", false},
    {"request_output_len", "INT32", false},
    {"streaming", "BOOL", false},
    {"runtime_top_k", "INT32", false},
    {"runtime_top_p", "FP32", false},
    {"pad_id", "INT32", false},
    {"beam_width", "INT32", false},
    {"num_return_sequences", "INT32", false},
    {"min_length", "INT32", false},
    {"min_tokens", "INT32", false},
    {"bad_words", "BYTES", true},
    {"return_log_probs", "BOOL", false},
    {"return_context_logits", "BOOL", false},
    {"return_generation_logits", "BOOL", false},
    {"return_logprobs", "BOOL", false},
    {"return_num_token_ids", "BOOL", false},
};
constexpr TensorInfo kOutputs[] = {
    {"text_output", "BYTES", false},       {"output_ids", "INT32", true},
    {"finish_reason", "BYTES", false},     {"cumulative_logprob", "FP32", false},
    {"num_input_tokens", "UINT32", false}, {"num_output_tokens", "UINT32", false},
    {"sequence_length", "INT32", true},    {"cum_log_probs", "FP32", false},
};

// Names that two servers have for one thing.
struct Alias {
  const char* name;
  const char* other;
};
constexpr Alias kMaxTokens = {"max_tokens", "request_output_len"};
constexpr Alias kTopK = {"top_k", "runtime_top_k"};
constexpr Alias kTopP = {"top_p", "runtime_top_p"};
constexpr Alias kStream = {"stream", "streaming"};

// Parameters of both writings that are numbers of any kind.
constexpr std::pair<const char*, void (v1::SamplingParams::*)(float)> kNumbers[] = {
    {"temperature", &v1::SamplingParams::set_temperature},
    {"top_p", &v1::SamplingParams::set_top_p},
    {"min_p", &v1::SamplingParams::set_min_p},
    {"repetition_penalty", &v1::SamplingParams::set_repetition_penalty},
    {"presence_penalty", &v1::SamplingParams::set_presence_penalty},
    {"frequency_penalty", &v1::SamplingParams::set_frequency_penalty}};

absl::Status WrongParameter(std::string_view name, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("sampling_parameters.{}: {}", name, why));
}

// As a number, or as a text that is one: clients of Triton's examples write texts.
std::optional<double> NumberOf(const Json& value) {
  if (value.is_number()) return value.get<double>();
  double number = 0;
  if (!value.is_string() || !absl::SimpleAtod(value.get<std::string>(), &number)) return std::nullopt;
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> WholeOf(const Json& value) {
  if (value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)) {
    return value.get<int64_t>();
  }
  int64_t number = 0;
  if (!value.is_string() || !absl::SimpleAtoi(value.get<std::string>(), &number)) return std::nullopt;
  return number;
}

// A number that a parameter's range can refuse: what no int32 holds is out of every range.
absl::Status SetCount(int64_t count, std::string_view name, v1::StopConditions* stop) {
  if (count < 1 || count > INT32_MAX) {
    return absl::InvalidArgumentError(fmt::format("{}: {} is out of range", name, count));
  }
  stop->set_max_tokens(static_cast<uint32_t>(count));
  return absl::OkStatus();
}

absl::Status SetTopK(int64_t k, std::string_view name, v1::SamplingParams* sampling) {
  if (k < -1 || k > INT32_MAX) {
    return absl::InvalidArgumentError(fmt::format("{}: {} is out of range", name, k));
  }
  sampling->set_top_k(static_cast<int32_t>(std::max<int64_t>(k, 0)));  // vLLM's -1: all
  return absl::OkStatus();
}

absl::Status AddStopToken(int64_t id, std::string_view name, v1::StopConditions* stop) {
  if (id < 0 || id > INT32_MAX)
    return absl::InvalidArgumentError(fmt::format("{}: {} is no token", name, id));
  stop->add_stop_token_ids(static_cast<int32_t>(id));
  return absl::OkStatus();
}

// One of vLLM's sampling parameters.
absl::Status SetParameter(const std::string& name, const Json& value, v1::GenerateRequest* request) {
  v1::SamplingParams* const sampling = request->mutable_sampling();
  v1::StopConditions* const stop = request->mutable_stop();
  const auto number = NumberOf(value);
  const auto whole = WholeOf(value);
  for (const auto& [known, set] : kNumbers) {
    if (name != known) continue;
    if (!number.has_value()) return WrongParameter(name, "not a number");
    (sampling->*set)(static_cast<float>(*number));
    return absl::OkStatus();
  }
  if (name == "n") {
    if (whole == 1) return absl::OkStatus();
    return WrongParameter(name, "one answer for each request is served here");
  }
  if (name == "max_tokens" || name == "top_k" || name == "seed") {
    if (!whole.has_value()) return WrongParameter(name, "not a whole number");
    const std::string path = "sampling_parameters." + name;
    if (name == "max_tokens") return SetCount(*whole, path, stop);
    if (name == "top_k") return SetTopK(*whole, path, sampling);
    sampling->set_seed(static_cast<uint64_t>(*whole));
    return absl::OkStatus();
  }
  if (name == "ignore_eos" || name == "skip_special_tokens") {
    if (!value.is_boolean()) return WrongParameter(name, "not true or false");
    if (name == "ignore_eos") {
      stop->set_ignore_eos(value.get<bool>());
    } else {
      request->mutable_output()->set_special_tokens(!value.get<bool>());
    }
    return absl::OkStatus();
  }
  if (name == "stop") {
    const Json list = value.is_string() ? Json::array({value}) : value;
    if (!list.is_array()) return WrongParameter(name, "neither a text nor a list of texts");
    for (const Json& text : list) {
      if (!text.is_string()) return WrongParameter(name, "neither a text nor a list of texts");
      stop->add_stop(text.get<std::string>());
    }
    return absl::OkStatus();
  }
  if (name == "stop_token_ids") {
    if (!value.is_array()) return WrongParameter(name, "not a list of tokens");
    for (const Json& id : value) {
      const auto token = WholeOf(id);
      if (!token.has_value()) return WrongParameter(name, "not a list of tokens");
      BATON_RETURN_IF_ERROR(AddStopToken(*token, "sampling_parameters.stop_token_ids", stop));
    }
    return absl::OkStatus();
  }
  return WrongParameter(name, "not served here");
}

absl::Status ReadSamplingParameters(InputTensors& inputs, v1::GenerateRequest* request) {
  BATON_ASSIGN_OR_RETURN(const auto text, inputs.Text("sampling_parameters"));
  if (!text.has_value() || text->empty()) return absl::OkStatus();
  const auto parsed = json::Parse<Json>(*text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("sampling_parameters: {}", std::string(parsed.status().message())));
  }
  if (!parsed->is_object()) return absl::InvalidArgumentError("sampling_parameters: not a JSON object");
  for (const auto& [name, value] : parsed->items()) {
    if (!value.is_null()) BATON_RETURN_IF_ERROR(SetParameter(name, value, request));
  }
  return absl::OkStatus();
}

// The value of either name. INVALID_ARGUMENT: both are there.
template <typename T>
absl::StatusOr<std::optional<T>> Either(
    InputTensors& inputs, const Alias& alias,
    absl::StatusOr<std::optional<T>> (InputTensors::*read)(std::string_view)) {
  BATON_ASSIGN_OR_RETURN(auto value, (inputs.*read)(alias.name));
  BATON_ASSIGN_OR_RETURN(auto other, (inputs.*read)(alias.other));
  if (value.has_value() && other.has_value()) {
    return absl::InvalidArgumentError(
        fmt::format("{} and {} say the same: send one", alias.name, alias.other));
  }
  return value.has_value() ? value : other;
}

// Refuses inputs that only other servers support, where they ask for something.
absl::Status RefuseUnserved(InputTensors& inputs) {
  struct Count {
    const char* name;
    int64_t nothing;
    const char* why;
  };
  static constexpr Count kCounts[] = {
      {"beam_width", 1, "answers are sampled here, not searched: 1 is served"},
      {"num_return_sequences", 1, "one answer for each request is served here"},
      {"min_length", 0, "not served here: an answer may end with its first token"},
      {"min_tokens", 0, "not served here: an answer may end with its first token"}};
  for (const Count& count : kCounts) {
    BATON_ASSIGN_OR_RETURN(const auto value, inputs.Whole(count.name));
    if (value.value_or(count.nothing) != count.nothing)
      return absl::InvalidArgumentError(fmt::format("{}: {}", count.name, count.why));
  }
  static constexpr std::pair<const char*, const char*> kFlags[] = {
      {"return_log_probs", "cum_log_probs is served; each token's are by baton.v1"},
      {"return_logprobs", "return_cumulative_logprob is served; each token's are by baton.v1"},
      {"return_num_token_ids", "return_num_output_tokens is served"},
      {"return_context_logits", "logits are not served here"},
      {"return_generation_logits", "logits are not served here"}};
  for (const auto& [name, why] : kFlags) {
    BATON_ASSIGN_OR_RETURN(const auto asked, inputs.Flag(name));
    if (asked.value_or(false)) return absl::InvalidArgumentError(fmt::format("{}: {}", name, why));
  }
  // An empty word is how clients of fixed tensors say that there is none.
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string> bad, inputs.Texts("bad_words"));
  if (std::ranges::any_of(bad, [](const std::string& word) { return !word.empty(); })) {
    return absl::InvalidArgumentError("bad_words: not served here");
  }
  // One answer in a message needs no padding.
  return inputs.Whole("pad_id").status();
}

// Parameters that are tensors of their own.
absl::Status ReadScalars(InputTensors& inputs, v1::GenerateRequest* request) {
  v1::SamplingParams* const sampling = request->mutable_sampling();
  for (const auto& [name, set] : kNumbers) {
    BATON_ASSIGN_OR_RETURN(const auto number, inputs.Number(name));
    if (number.has_value()) (sampling->*set)(static_cast<float>(*number));
  }
  BATON_ASSIGN_OR_RETURN(const auto top_p, inputs.Number(kTopP.other));
  if (top_p.has_value()) {
    BATON_RETURN_IF_ERROR(Either(inputs, kTopP, &InputTensors::Number).status());
    sampling->set_top_p(static_cast<float>(*top_p));
  }
  BATON_ASSIGN_OR_RETURN(const auto max_tokens, Either(inputs, kMaxTokens, &InputTensors::Whole));
  if (max_tokens.has_value())
    BATON_RETURN_IF_ERROR(SetCount(*max_tokens, "max_tokens", request->mutable_stop()));
  BATON_ASSIGN_OR_RETURN(const auto top_k, Either(inputs, kTopK, &InputTensors::Whole));
  if (top_k.has_value()) BATON_RETURN_IF_ERROR(SetTopK(*top_k, "top_k", sampling));
  BATON_ASSIGN_OR_RETURN(const auto seed, inputs.Whole("random_seed"));
  if (seed.has_value()) sampling->set_seed(static_cast<uint64_t>(*seed));
  BATON_ASSIGN_OR_RETURN(const auto end_id, inputs.Whole("end_id"));
  if (end_id.has_value()) BATON_RETURN_IF_ERROR(AddStopToken(*end_id, "end_id", request->mutable_stop()));
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string> stop, inputs.Texts("stop_words"));
  for (const std::string& word : stop) {
    if (!word.empty()) request->mutable_stop()->add_stop(word);
  }
  return RefuseUnserved(inputs);
}

// Which outputs there are, by the inputs that ask for them and by the list of outputs.
absl::Status ReadOutputs(const inference::ModelInferRequest& infer, InputTensors& inputs, ReplyShape* reply) {
  const std::pair<const char*, bool ReplyShape::*> asks[] = {
      {"return_finish_reason", &ReplyShape::finish_reason},
      {"return_cumulative_logprob", &ReplyShape::cumulative_logprob},
      {"return_num_input_tokens", &ReplyShape::input_tokens},
      {"return_num_output_tokens", &ReplyShape::output_tokens}};
  for (const auto& [name, member] : asks) {
    BATON_ASSIGN_OR_RETURN(const auto asked, inputs.Flag(name));
    reply->*member = asked.value_or(false);
  }
  for (const auto& output : infer.outputs()) {
    if (output.name() == "finish_reason") {
      reply->finish_reason = true;
    } else if (output.name() == "sequence_length") {
      reply->sequence_length = true;
    } else if (output.name() == "cum_log_probs") {
      reply->cum_log_probs = true;
    } else if (output.name() == "cumulative_logprob") {
      reply->cumulative_logprob = true;
    } else if (output.name() == "num_input_tokens") {
      reply->input_tokens = true;
    } else if (output.name() == "num_output_tokens") {
      reply->output_tokens = true;
    } else if (output.name() != (reply->text ? "text_output" : "output_ids")) {
      return absl::InvalidArgumentError(fmt::format("output {}: not served here{}", Quoted(output.name()),
                                                    output.name() == "text_output" ? " for input_ids" : ""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const TensorInfo> Inputs() { return kInputs; }
std::span<const TensorInfo> Outputs() { return kOutputs; }

absl::Status CheckVersion(std::string_view version) {
  if (version.empty() || version == "1") return absl::OkStatus();
  return absl::NotFoundError(fmt::format("there is no version {} of a model; there is 1", Quoted(version)));
}

absl::StatusOr<InferRequest> ReadInferRequest(const inference::ModelInferRequest& infer, bool streams) {
  InferRequest read;
  v1::GenerateRequest& request = read.request;
  BATON_RETURN_IF_ERROR(CheckVersion(infer.model_version()));
  request.set_model(infer.model_name());
  BATON_ASSIGN_OR_RETURN(InputTensors inputs, InputTensors::Of(infer));
  BATON_ASSIGN_OR_RETURN(const auto text, inputs.Text("text_input"));
  BATON_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, inputs.Wholes("input_ids"));
  if (text.has_value() == !ids.empty()) {
    return absl::InvalidArgumentError("the prompt is one of text_input and input_ids");
  }
  if (text.has_value()) request.set_text(*text);
  BATON_ASSIGN_OR_RETURN(const auto length, inputs.Whole("input_lengths"));
  if (length.has_value() && (text.has_value() || *length != static_cast<int64_t>(ids.size()))) {
    return absl::InvalidArgumentError(
        fmt::format("input_lengths: {}, and input_ids has {} tokens", *length, ids.size()));
  }
  for (const int64_t id : ids) {
    if (id < 0 || id > INT32_MAX)
      return absl::InvalidArgumentError(fmt::format("input_ids: {} is no token", id));
    request.mutable_token_ids()->add_ids(static_cast<int32_t>(id));
  }
  BATON_RETURN_IF_ERROR(ReadSamplingParameters(inputs, &request));
  BATON_RETURN_IF_ERROR(ReadScalars(inputs, &request));
  BATON_ASSIGN_OR_RETURN(const auto stream, Either(inputs, kStream, &InputTensors::Flag));
  if (stream.value_or(false) && !streams) {
    return absl::InvalidArgumentError("stream: ModelInfer answers with one message; call ModelStreamInfer");
  }
  ReplyShape& reply = read.reply;
  reply = {.id = infer.id(),
           .model = infer.model_name(),
           .raw = infer.raw_input_contents_size() > 0,
           .stream = stream.value_or(false),
           .text = text.has_value()};
  // As Triton's vLLM backend has it: a whole answer begins with the prompt, unless the client says otherwise.
  BATON_ASSIGN_OR_RETURN(const auto exclude, inputs.Flag("exclude_input_in_output"));
  if (text.has_value() && !exclude.value_or(reply.stream)) {
    if (reply.stream) {
      return absl::InvalidArgumentError(
          "exclude_input_in_output: a streamed answer does not repeat the prompt");
    }
    reply.before = *text;
  }
  BATON_RETURN_IF_ERROR(ReadOutputs(infer, inputs, &reply));
  BATON_RETURN_IF_ERROR(inputs.AllAsked());
  request.mutable_output()->set_token_ids(!reply.text);
  request.mutable_output()->set_logprobs(reply.cumulative_logprob || reply.cum_log_probs);
  return read;
}

}  // namespace baton::router::kserve
