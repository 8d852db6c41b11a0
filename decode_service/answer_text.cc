#include "decode_service/answer_text.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace baton::decode_service {
namespace {

constexpr size_t kLongestBeginning = 3;  // of a character in UTF-8

// True if these bytes end inside a character.
bool EndsInsideCharacter(std::string_view bytes) {
  for (size_t size = 1; size <= std::min(bytes.size(), kLongestBeginning); ++size) {
    const auto byte = static_cast<uint8_t>(bytes[bytes.size() - size]);
    if ((byte & 0xC0) == 0x80) continue;  // it goes on
    return size < (byte >= 0xF0 ? 4u : byte >= 0xE0 ? 3u : byte >= 0xC0 ? 2u : 1u);
  }
  return false;
}

// A probability for the wire. One above 0 stays so.
float Shortened(double probability) {
  const auto shortened = static_cast<float>(probability);
  return probability > 0 ? std::max(shortened, std::numeric_limits<float>::min()) : shortened;
}

}  // namespace

AnswerText::AnswerText(std::shared_ptr<const text::Tokenizer> tokenizer, const v1::StopConditions& stop,
                       const v1::OutputOptions& output, uint32_t choice, std::span<const TokenId> eos,
                       std::optional<AnswerParts::Options> parts)
    : tokenizer_(std::move(tokenizer)),
      output_(output),
      choice_(choice),
      max_tokens_(stop.max_tokens()),
      detokenizer_(tokenizer_, output.special_tokens()),
      stops_({stop.stop().begin(), stop.stop().end()}) {
  for (int32_t id : stop.stop_token_ids()) stop_tokens_.insert(TokenId(id));
  if (!stop.ignore_eos()) stop_tokens_.insert(eos.begin(), eos.end());
  if (parts.has_value()) {
    parts_.emplace(*std::move(parts), std::vector<std::string>(stop.stop().begin(), stop.stop().end()));
  }
}

absl::StatusOr<std::optional<AnswerText::End>> AnswerText::Resume(std::span<const TokenId> tokens,
                                                                  AnswerGrammar* grammar) {
  std::optional<End> end;
  for (TokenId token : tokens) {
    if (end.has_value()) {
      return absl::InvalidArgumentError("resumed_tokens: the answer ends before the last of them");
    }
    v1::Delta shown;
    end = Advance(token, shown, grammar);
  }
  return end;
}

std::optional<int> AnswerText::logprobs() const {
  if (!output_.logprobs()) return std::nullopt;
  return static_cast<int>(output_.top_logprobs());
}

v1::TokenLogprob AnswerText::Describe(TokenId token, float logprob) const {
  v1::TokenLogprob described;
  described.set_token_id(token.value());
  described.set_logprob(logprob);
  described.set_bytes(std::string(tokenizer_->TokenBytes(token)));
  return described;
}

v1::StepLogprobs AnswerText::Described(const sampling::Draw& draw) const {
  v1::StepLogprobs step;
  *step.mutable_chosen() = Describe(draw.token, *draw.logprob);
  for (const auto& top : draw.top) *step.add_top() = Describe(top.token, top.logprob);
  return step;
}

v1::SamplingTrace AnswerText::Described(const sampling::Trace& trace) const {
  using How = sampling::Trace::How;
  v1::SamplingTrace told;
  told.set_how(trace.how == How::kForced   ? v1::SamplingTrace::HOW_FORCED
               : trace.how == How::kGreedy ? v1::SamplingTrace::HOW_GREEDY
                                           : v1::SamplingTrace::HOW_DRAWN);
  told.set_token_id(trace.token.value());
  told.set_vocabulary(static_cast<uint32_t>(trace.vocabulary));
  told.set_after_constraint(static_cast<uint32_t>(trace.after_mask));
  told.set_after_temperature(static_cast<uint32_t>(trace.after_temperature));
  told.set_after_top_k(static_cast<uint32_t>(trace.after_top_k));
  told.set_after_top_p(static_cast<uint32_t>(trace.after_top_p));
  told.set_after_min_p(static_cast<uint32_t>(trace.after_min_p));
  if (trace.uniform.has_value()) told.set_uniform(*trace.uniform);
  for (const sampling::TokenTrace& token : trace.likeliest) {
    v1::TokenTrace& one = *told.add_likeliest();
    one.set_token_id(token.token.value());
    one.set_bytes(std::string(tokenizer_->TokenBytes(token.token)));
    one.set_logit(token.logit);
    one.set_adjusted_logit(token.adjusted);
    one.set_probability(Shortened(token.probability));
    one.set_tempered_probability(Shortened(token.tempered));
    one.set_drawn_probability(Shortened(token.drawn));
  }
  return told;
}

void AnswerText::TellPrompt(const sampling::Draw& token, v1::Delta& delta) const {
  delta.set_choice(choice_);
  *delta.add_prompt_logprobs() = Described(token);
}

std::optional<AnswerText::End> AnswerText::Push(const sampling::Draw& draw, uint32_t logits_digest,
                                                v1::Delta& delta, AnswerGrammar* grammar) {
  delta.set_choice(choice_);
  delta.set_tokens(delta.tokens() + 1);
  if (output_.token_ids()) delta.add_token_ids(draw.token.value());
  if (output_.logits_digest()) delta.add_logits_digests(logits_digest);
  if (draw.logprob.has_value()) *delta.add_logprobs() = Described(draw);
  if (draw.trace.has_value()) *delta.add_sampling() = Described(*draw.trace);
  return Advance(draw.token, delta, grammar);
}

std::optional<AnswerText::End> AnswerText::Advance(TokenId token, v1::Delta& delta, AnswerGrammar* grammar) {
  ++tokens_;
  auto end = parts_.has_value() ? AdvanceParts(token, delta) : AdvanceText(token, *delta.mutable_text());
  if (grammar != nullptr && !end.has_value()) {
    const bool thinking = parts_.has_value() && parts_->thinking();
    grammar->Push(token, thinking, parts_.has_value() && parts_->in_thinking());
  }
  return end;
}

std::optional<AnswerText::End> AnswerText::AdvanceParts(TokenId token, v1::Delta& delta) {
  const bool stops = stop_tokens_.contains(token);
  if (!stops) {
    last_bytes_ += tokenizer_->TokenBytes(token);
    last_bytes_.erase(0, last_bytes_.size() - std::min(last_bytes_.size(), kLongestBeginning));
    parts_->Push(token, detokenizer_.Push(token), !EndsInsideCharacter(last_bytes_), delta);
  }
  const bool by_call = parts_->ended_by_call();
  if (!parts_->ended() && (stops || tokens_ >= max_tokens_)) parts_->Finish(detokenizer_.Flush(), delta);
  if (parts_->stop_match().has_value()) {
    return End{v1::FINISH_REASON_STOP_STRING, *parts_->stop_match(), std::nullopt};
  }
  if (by_call) return End{v1::FINISH_REASON_TOOL_CALLS, "", std::nullopt};
  if (stops) {
    const bool called = parts_->calls() > 0;
    return End{called ? v1::FINISH_REASON_TOOL_CALLS : v1::FINISH_REASON_STOP_TOKEN, "", token};
  }
  if (tokens_ >= max_tokens_) return End{v1::FINISH_REASON_LENGTH, "", std::nullopt};
  return std::nullopt;
}

std::optional<AnswerText::End> AnswerText::AdvanceText(TokenId token, std::string& text) {
  if (stop_tokens_.contains(token)) {
    // The token itself is no text; what was held back is.
    text::StopMatcher::Result rest = stops_.Push(detokenizer_.Flush());
    text += rest.text;
    if (!rest.match.has_value()) text += stops_.Flush();
    return End{v1::FINISH_REASON_STOP_TOKEN, "", token};
  }
  text::StopMatcher::Result shown = stops_.Push(detokenizer_.Push(token));
  text += shown.text;
  if (!shown.match.has_value() && tokens_ >= max_tokens_) {
    text::StopMatcher::Result rest = stops_.Push(detokenizer_.Flush());
    text += rest.text;
    shown.match = std::move(rest.match);
    if (!shown.match.has_value()) text += stops_.Flush();
  }
  if (shown.match.has_value())
    return End{v1::FINISH_REASON_STOP_STRING, *std::move(shown.match), std::nullopt};
  if (tokens_ >= max_tokens_) return End{v1::FINISH_REASON_LENGTH, "", std::nullopt};
  return std::nullopt;
}

}  // namespace baton::decode_service
