#include "text/output/parser.h"

#include <algorithm>
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

Parser::Parser(const MarkerTable& markers, Options options)
    : format_(markers.format()),
      options_(std::move(options)),
      lexer_(markers),
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
  if (!doubted_.empty()) Settle(/*quoted=*/false);
  const int warned = warnings();
  if (state_ == State::kCall) EndCall("", /*cut=*/true);
  const bool cut = warnings() > warned;
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
    if (!doubted_.empty()) return Doubt(text);
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
        if (!start_ && !bare_) spaces_.clear();
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
    if (!doubted_.empty()) return DoubtMarker(marker);
    const bool closes = Closes(marker);
    const bool again = format_.bare_name && marker == format_.name_open;
    const bool opens = (marker == format_.call_open && WithoutTrailingSpace(raw_) > body_) ||
                       (again && raw_.find(marker, body_) != std::string::npos);
    const bool quoted = value_.quoted() && !settled_;
    if (quoted && (closes || marker == format_.call_open) && format_.layout != Layout::kPython) {
      DoubtMarker(marker);
    } else if (!quoted && closes) {
      EndCall(marker);
      if (marker == format_.section_close && state_ == State::kSection) state_ = State::kOpen;
    } else if (!quoted && opens) {
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
    // Inside thinking a name alone is words about a call.
    if (format_.bare_name && marker == format_.name_open && state_ != State::kThinking) {
      StartCall("", State::kOpen);
      return OnText(marker);
    }
  }
  // A marker where it means nothing is text.
  start_ = first;
  OnText(marker);
}

void Parser::OnChannelMarker(const std::string& marker) {
  if (state_ == State::kCall && (!doubted_.empty() || (value_.quoted() && !settled_))) {
    return DoubtMarker(marker);
  }
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

// A header that leads nowhere, before any marker, is an answer without channels.
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
    Tell(raw_);
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
  stream_.emplace(format_, options_.type);
  begun_ = false;
  streamed_.clear();
  listed_ = listed_end_ = 0;
  listing_ = true;
  state_ = State::kCall;
}

size_t Parser::Collect(std::string_view text) {
  if (format_.layout == Layout::kTagged) {
    raw_ += text;
    Tell(text);
    return text.size();
  }
  const bool ends = format_.call_close.empty() && !format_.channels;
  bool ended = false;
  size_t size = 0;
  while (size < text.size() && !ended) {
    const char c = text[size++];
    raw_ += c;
    if (!value_begun_) {  // a name may hold anything but the separator
      value_begun_ = std::string_view(raw_).substr(body_).ends_with(format_.separator);
      continue;
    }
    const int depth = value_.depth();
    value_.Push(c);
    if (format_.layout == Layout::kList && depth == 1 && value_.depth() == 2) item_ = raw_.size() - 1;
    if (format_.layout == Layout::kList && depth == 2 && value_.depth() == 1) {
      EndItem(std::string_view(raw_).substr(item_));
    }
    ended = ends && value_.ended();
  }
  Tell(text.substr(0, size));
  if (ended && state_ == State::kCall) EndCall("");
  return size;
}

void Parser::Tell(std::string_view text) {
  if (!stream_.has_value()) return;
  std::string arguments;
  stream_->Push(text, &arguments);
  const bool other = stream_->named() && !Offered(stream_->call().name);
  if (bare_ && (stream_->no_call() || other)) {  // an answer that only begins as calls do
    bare_ = false;
    stream_.reset();
    state_ = State::kText;
    OnText(std::exchange(raw_, ""));
    return;
  }
  if (!stream_->begun()) return;
  if (!begun_) {
    if (other) {
      stream_.reset();
      return;
    }
    begun_ = true;
    if (in_part_) EndPart();
    const Call& call = stream_->call();
    StartPart(PartKind::kToolCall, call.id.empty() ? MadeId(call.name) : call.id, call.name);
  }
  streamed_ += arguments;
  WriteArguments(arguments);
}

void Parser::EndItem(std::string_view item) {
  if (!listing_) return;
  const auto call = ReadObject(item);
  listing_ = call.has_value() && Offered(call->name);
  if (!listing_) return;  // the rest is told when the list is over
  EmitCall(*call);
  ++listed_;
  listed_end_ = raw_.size();
}

bool Parser::Closes(const std::string& marker) const {
  return marker == format_.call_close || marker == format_.section_close;
}

bool Parser::Offered(std::string_view tool) const {
  return options_.names.empty() || std::ranges::find(options_.names, tool) != options_.names.end();
}

void Parser::EmitCall(const Call& call) {
  if (in_part_) EndPart();
  StartPart(PartKind::kToolCall, call.id.empty() ? MadeId(call.name) : call.id, call.name);
  WriteArguments(call.arguments);
  EndPart();
  ++calls_;
}

void Parser::EndCall(std::string_view closer, bool cut) {
  const std::string raw = std::exchange(raw_, "");
  const std::string_view body = std::string_view(raw).substr(body_);
  const bool bare = std::exchange(bare_, false);
  state_ = after_call_;
  // JSON shows by itself that it is whole; tags need one that closes.
  const std::string_view said = body.substr(0, WithoutTrailingSpace(body));
  const bool open = format_.layout == Layout::kTagged && closer.empty() &&
                    (format_.end.empty() || !said.ends_with(format_.end));
  auto calls = open ? std::nullopt : ReadCalls(format_, body, options_.type);
  if (begun_) return EndBegunCall(calls, body, cut);
  const bool unknown =
      calls.has_value() && !std::ranges::all_of(*calls, [&](const Call& call) { return Offered(call.name); });
  if (calls.has_value() && !unknown) {
    for (size_t i = listed_; i < calls->size(); ++i) EmitCall((*calls)[i]);
    bare_ = format_.bare != 0;
    closer_due_ |= before_call_ == State::kThinking;
    return;
  }
  // An object or a list that is no call is an answer of that form, unless it names a tool.
  const bool named = stream_.has_value() && stream_->named() && !options_.names.empty();
  if (!bare || named || listed_ > 0) {
    Warn(unknown ? Warning::kUnknownTool : cut ? Warning::kIncompleteCall : Warning::kMalformedCall);
  }
  const bool thinking = before_call_ == State::kThinking && listed_ == 0;
  state_ = thinking ? State::kThinking : State::kText;
  const PartKind kind = thinking ? PartKind::kThinking : PartKind::kText;
  Write(kind, std::string_view(raw).substr(listed_end_));
  Write(kind, closer);
}

void Parser::EndBegunCall(const std::optional<std::vector<Call>>& calls, std::string_view body, bool cut) {
  begun_ = false;
  bare_ = format_.bare != 0;
  closer_due_ |= before_call_ == State::kThinking;
  const Call& begun = stream_->call();
  if (calls.has_value() && calls->size() == 1 && calls->front().name == begun.name &&
      calls->front().arguments.starts_with(streamed_)) {
    WriteArguments(std::string_view(calls->front().arguments).substr(streamed_.size()));
    EndPart();
    ++calls_;
    return;
  }
  Warn(cut ? Warning::kIncompleteCall : Warning::kMalformedCall);
  EndPart(/*complete=*/false);
  if (cut) return;
  // Text behind the arguments is kept, unless it only closes the call.
  const std::string_view rest = body.substr(stream_->told());
  const size_t lead = LeadingSpace(rest);
  const bool ends =
      lead == rest.size() || rest.substr(lead, WithoutTrailingSpace(rest) - lead) == format_.end;
  if (!ends && rest.find_first_not_of(" \t\r\n}]") != std::string_view::npos) {
    state_ = State::kText;
    Write(PartKind::kText, rest);
  }
}

void Parser::DoubtMarker(const std::string& marker) {
  if (doubted_.empty()) {
    doubt_ = QuotedMarker();
    doubted_.push_back({.marker = true, .text = marker});
    return;
  }
  // A closer and then an opener: a call that broke off, and the next one.
  const bool next = marker == format_.call_open && Closes(doubted_.front().text) &&
                    std::all_of(doubted_.begin() + 1, doubted_.end(), [](const Lexeme& lexeme) {
                      return LeadingSpace(lexeme.text) == lexeme.text.size();
                    });
  doubted_.push_back({.marker = true, .text = marker});
  if (next || doubt_.closed()) Settle(/*quoted=*/false);
}

void Parser::Doubt(std::string_view text) {
  using Verdict = QuotedMarker::Verdict;
  for (size_t i = 0; i < text.size(); ++i) {
    const Verdict verdict = doubt_.Push(text[i]);
    if (verdict == Verdict::kUnknown) continue;
    doubted_.push_back({.marker = false, .text = std::string(text.substr(0, i))});
    Settle(verdict == Verdict::kQuoted);
    return OnText(text.substr(i));
  }
  doubted_.push_back({.marker = false, .text = std::string(text)});
}

void Parser::Settle(bool quoted) {
  const std::vector<Lexeme> lexemes = std::exchange(doubted_, {});
  if (quoted) {
    for (const Lexeme& lexeme : lexemes) OnText(lexeme.text);
    return;
  }
  settled_ = true;
  for (const Lexeme& lexeme : lexemes) {
    if (lexeme.marker) {
      OnMarker(lexeme.text);
    } else {
      OnText(lexeme.text);
    }
  }
  settled_ = false;
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

void Parser::WriteArguments(std::string_view arguments) {
  if (arguments.empty()) return;
  if (!out_->empty() && out_->back().type == PartEvent::Type::kArguments) {
    out_->back().text += arguments;
    return;
  }
  out_->push_back({.part = parts_ - 1,
                   .type = PartEvent::Type::kArguments,
                   .kind = PartKind::kToolCall,
                   .text = std::string(arguments)});
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

// Nine letters and digits, which is what the strictest templates take.
std::string Parser::MadeId(std::string_view name) const {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (int shift = 0; shift < 64; shift += 8) add(static_cast<uint8_t>(options_.id_seed >> shift));
  for (int shift = 0; shift < 32; shift += 8) add(static_cast<uint8_t>(parts_ >> shift));
  for (const char c : name) add(static_cast<uint8_t>(c));
  std::string id;
  for (int i = 0; i < 9; ++i, hash /= kDigits.size()) id += kDigits[hash % kDigits.size()];
  return id;
}

}  // namespace baton::output
