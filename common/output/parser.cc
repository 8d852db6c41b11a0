#include "common/output/parser.h"

#include <utility>

#include "absl/strings/ascii.h"

namespace baton::output {
namespace {

size_t LeadingSpace(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && absl::ascii_isspace(static_cast<unsigned char>(text[size]))) ++size;
  return size;
}

size_t WithoutTrailingSpace(std::string_view text) {
  size_t size = text.size();
  while (size > 0 && absl::ascii_isspace(static_cast<unsigned char>(text[size - 1]))) --size;
  return size;
}

// Headers of channels are shorter; what is longer is an answer without channels.
constexpr size_t kLongestHeader = 256;

}  // namespace

Parser::Parser(const OutputFormat& format, const text::Tokenizer& tokenizer, Options options)
    : format_(format),
      options_(std::move(options)),
      lexer_(format, tokenizer),
      // A template that asks for channels ends inside a header ("<|start|>assistant").
      state_(format_.channels    ? State::kHeader
             : options_.thinking ? State::kThinking
                                 : State::kOpen),
      thinking_(state_ == State::kThinking) {}

void Parser::Push(TokenId token, std::string_view text, std::vector<PartEvent>* out) {
  const bool before = state_ == State::kThinking;
  lexer_.Push(token, text, &lexemes_);
  Handle(out);
  thinking_ = before || state_ == State::kThinking;
}

void Parser::Finish(std::string_view text, std::vector<PartEvent>* out) {
  lexer_.Finish(text, &lexemes_);
  Handle(out);
  out_ = out;
  const int warnings = warnings_;
  if (state_ == State::kCall) EndCall("");
  const bool cut = warnings_ > warnings;
  if (state_ == State::kHeader) EndHeader();
  const bool own = state_ == State::kText || (state_ == State::kOpen && start_);
  if (own) Write(PartKind::kText, std::exchange(spaces_, ""));
  if (in_part_) EndPart(/*complete=*/!cut && kind_ != PartKind::kThinking);
  out_ = nullptr;
}

void Parser::Handle(std::vector<PartEvent>* out) {
  out_ = out;
  for (const Lexeme& lexeme : lexemes_) {
    if (lexeme.marker) {
      OnMarker(lexeme.text);
    } else {
      OnText(lexeme.text);
    }
  }
  lexemes_.clear();
  out_ = nullptr;
}

void Parser::OnText(std::string_view text) {
  while (!text.empty()) {
    if (state_ == State::kCall) {
      text.remove_prefix(Collect(text));
      continue;
    }
    if (state_ == State::kHeader) {
      header_ += text;
      if (header_.size() > kLongestHeader) {
        Write(PartKind::kText, std::exchange(header_, ""));
        state_ = State::kText;
      }
      return;
    }
    const size_t lead = LeadingSpace(text);
    if (state_ == State::kOpen || state_ == State::kSection) {
      spaces_ += text.substr(0, lead);
      text.remove_prefix(lead);
      if (text.empty()) return;
      if (options_.tools && format_.bare != 0 && text.front() == format_.bare) {
        bare_ = true;
        StartCall("", State::kOpen);
        continue;
      }
      // Between bare calls.
      if (bare_ && text.front() == ';') {
        spaces_ += ';';
        text.remove_prefix(1);
        continue;
      }
      if (!start_ && !bare_) spaces_.clear();  // the format's, behind a marker
      state_ = State::kText;
    }
    const PartKind kind = state_ == State::kThinking ? PartKind::kThinking : PartKind::kText;
    if (kind == PartKind::kThinking && !(in_part_ && kind_ == kind)) {
      text.remove_prefix(lead);  // the line break after the opener
      if (text.empty()) return;
    }
    const size_t size = format_.channels ? text.size() : WithoutTrailingSpace(text);
    if (size > 0) {
      Write(kind, std::exchange(spaces_, ""));
      Write(kind, text.substr(0, size));
    }
    spaces_ += text.substr(size);
    return;
  }
}

void Parser::OnMarker(const std::string& marker) {
  if (format_.channels) return OnChannelMarker(marker);
  const bool first = std::exchange(start_, false);
  if (state_ == State::kCall) {
    const bool closes = marker == format_.call_close || marker == format_.section_close;
    const bool again = format_.bare_name && marker == format_.name_open;
    const bool opens = (marker == format_.call_open && WithoutTrailingSpace(raw_) > body_) ||
                       (again && raw_.find(marker, body_) != std::string::npos);
    if (!value_.quoted() && closes) {
      EndCall(marker);
      if (marker == format_.section_close && state_ == State::kSection) state_ = State::kOpen;
    } else if (!value_.quoted() && opens) {
      EndCall("");
      OnMarker(marker);
    } else {
      OnText(marker);
    }
    return;
  }
  if (marker == format_.think_close && (state_ == State::kThinking || closer_due_)) {
    closer_due_ = false;
    if (in_part_) EndPart();
    spaces_.clear();
    state_ = State::kOpen;
    return;
  }
  if (marker == format_.think_open && state_ == State::kOpen) {
    closer_due_ = false;
    if (in_part_) EndPart();
    spaces_.clear();
    state_ = State::kThinking;
    return;
  }
  if (options_.tools) {
    if (marker == format_.section_open) {
      if (format_.call_open.empty()) {
        bare_ = false;
        return StartCall(marker, State::kOpen);
      }
      closer_due_ = state_ == State::kThinking;
      if (in_part_) EndPart();
      spaces_.clear();
      state_ = State::kSection;
      return;
    }
    const bool after_calls = state_ == State::kOpen && !in_part_ && kind_ == PartKind::kToolCall;
    if (marker == format_.section_close && (state_ == State::kSection || after_calls)) {
      spaces_.clear();
      state_ = State::kOpen;
      return;
    }
    if (marker == format_.call_open)
      return StartCall(marker, state_ == State::kSection ? State::kSection : State::kOpen);
    if (format_.bare_name && marker == format_.name_open) {
      StartCall("", State::kOpen);
      return OnText(marker);
    }
  }
  // A marker where it means nothing is text.
  start_ = first;
  OnText(marker);
}

void Parser::OnChannelMarker(const std::string& marker) {
  if (state_ == State::kCall && value_.quoted()) return OnText(marker);
  if (marker == "<|message|>" && state_ == State::kHeader) return StartChannel();
  if ((marker == "<|constrain|>" || marker == "<|channel|>") && state_ == State::kHeader) {
    start_ = false;
    header_ += ' ';
    return;
  }
  if (state_ == State::kCall) EndCall("");
  if (state_ == State::kHeader) EndHeader();
  start_ = false;
  spaces_.clear();
  if (in_part_) EndPart();
  if (marker == "<|start|>" || marker == "<|channel|>") {
    state_ = State::kHeader;
    header_.clear();
  } else {
    state_ = State::kOpen;
  }
}

// Of a header that leads nowhere: before any marker it is an answer without channels.
void Parser::EndHeader() {
  if (start_) Write(PartKind::kText, header_);
  header_.clear();
}

// "analysis", "final", "commentary", and who a message goes to: "to=functions.NAME".
void Parser::StartChannel() {
  start_ = false;
  const std::string header = std::exchange(header_, "");
  constexpr std::string_view kTo = "to=functions.";
  if (const size_t to = header.find(kTo); to != std::string::npos && options_.tools) {
    const size_t begin = to + kTo.size();
    const std::string name = header.substr(begin, header.find_first_of(" \n<", begin) - begin);
    StartCall("", State::kOpen);
    raw_ = name + std::string(format_.separator);
    body_ = 0;
    value_begun_ = true;
    return;
  }
  state_ = header.find("analysis") != std::string::npos ? State::kThinking : State::kText;
}

void Parser::StartCall(std::string_view opener, State after) {
  raw_ = std::exchange(spaces_, "");
  raw_ += opener;
  body_ = raw_.size();
  before_call_ = state_;
  after_call_ = after;
  value_begun_ = format_.layout != Layout::kNamed;
  value_ = ValueEnd(format_.layout == Layout::kPython);
  state_ = State::kCall;
}

size_t Parser::Collect(std::string_view text) {
  if (format_.layout == Layout::kTagged) {
    raw_ += text;
    return text.size();
  }
  const bool ends = format_.call_close.empty() && !format_.channels;
  for (size_t i = 0; i < text.size(); ++i) {
    raw_ += text[i];
    if (!value_begun_) {  // a name may hold anything but the separator
      value_begun_ = std::string_view(raw_).substr(body_).ends_with(format_.separator);
      continue;
    }
    value_.Push(text[i]);
    if (ends && value_.ended()) {
      EndCall("");
      return i + 1;
    }
  }
  return text.size();
}

void Parser::EndCall(std::string_view closer) {
  const std::string raw = std::exchange(raw_, "");
  const std::string_view body = std::string_view(raw).substr(body_);
  state_ = after_call_;
  // JSON shows by itself that it is whole; tags need one that closes.
  const std::string_view said = body.substr(0, WithoutTrailingSpace(body));
  const bool cut = format_.layout == Layout::kTagged && closer.empty() &&
                   (format_.end.empty() || !said.ends_with(format_.end));
  const auto calls = cut ? std::nullopt : ReadCalls(format_, body, options_.type);
  if (calls.has_value()) {
    if (in_part_) EndPart();
    for (const Call& call : *calls) {
      StartPart(PartKind::kToolCall, call.id.empty() ? MadeId(body) : call.id, call.name);
      out_->push_back(
          {.part = parts_ - 1, .type = PartEvent::Type::kArguments, .kind = kind_, .text = call.arguments});
      EndPart();
      ++calls_;
    }
    bare_ = format_.bare != 0;
    closer_due_ |= before_call_ == State::kThinking;
    return;
  }
  // An object or a list that is no call is an answer of that form.
  if (!bare_) ++warnings_;
  bare_ = false;
  const bool thinking = before_call_ == State::kThinking;
  state_ = thinking ? State::kThinking : State::kText;
  Write(thinking ? PartKind::kThinking : PartKind::kText, raw);
  Write(thinking ? PartKind::kThinking : PartKind::kText, closer);
}

void Parser::Write(PartKind kind, std::string_view text) {
  if (text.empty()) return;
  if (!in_part_ || kind_ != kind) {
    if (in_part_) EndPart();
    StartPart(kind);
  }
  if (!out_->empty() && out_->back().type == PartEvent::Type::kText) {
    out_->back().text += text;
    return;
  }
  out_->push_back(
      {.part = parts_ - 1, .type = PartEvent::Type::kText, .kind = kind, .text = std::string(text)});
}

void Parser::StartPart(PartKind kind, std::string id, std::string name) {
  in_part_ = true;
  kind_ = kind;
  out_->push_back({.part = parts_++,
                   .type = PartEvent::Type::kStart,
                   .kind = kind,
                   .id = std::move(id),
                   .name = std::move(name)});
}

void Parser::EndPart(bool complete) {
  in_part_ = false;
  out_->push_back({.part = parts_ - 1, .type = PartEvent::Type::kEnd, .kind = kind_, .complete = complete});
}

// Nine letters and digits, which is what the strictest templates take; of the place and the call's text.
std::string Parser::MadeId(std::string_view call) const {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t hash = 0xcbf29ce484222325 + static_cast<uint64_t>(calls_);  // FNV-1a
  for (const char c : call) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  std::string id;
  for (int i = 0; i < 9; ++i, hash /= kDigits.size()) id += kDigits[hash % kDigits.size()];
  return id;
}

}  // namespace baton::output
