#include "text/output/call_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "nlohmann/json.hpp"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

// No tool has a longer name.
constexpr size_t kLongestName = 256;

bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }

// A string of JSON with its quotes; empty if it is none.
std::string Unquoted(std::string_view quoted) {
  const Json json = Json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  return json.is_string() ? json.get<std::string>() : "";
}

// As it stands between the quotes of JSON. Each character becomes what it becomes in a longer text, too.
std::string Escaped(std::string_view text) {
  const std::string quoted = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

bool OpensACall(std::string_view key) {
  return key == "name" || key == "type" || key == "id" || key == "parameters" || key == "arguments";
}

}  // namespace

CallStream::CallStream(const OutputFormat& format, const ParameterType& type) : format_(format), type_(type) {
  switch (format.layout) {
    case Layout::kObject:
      state_ = State::kStart;
      break;
    case Layout::kNamed:
      state_ = State::kHeader;
      break;
    case Layout::kTagged:
      state_ = State::kTagName;
      break;
    case Layout::kPython:
      state_ = State::kList;
      break;
    case Layout::kNone:
    case Layout::kList:
      break;
  }
}

void CallStream::Push(std::string_view text, std::string* arguments) {
  pushed_ += text.size();
  if (state_ == State::kOff || state_ == State::kNoCall || state_ == State::kAfter) return;
  if (format_.layout == Layout::kTagged) {
    PushTags(text, arguments);
    return;
  }
  size_t at = 0;
  while (at < text.size() && state_ != State::kOff && state_ != State::kNoCall && state_ != State::kAfter) {
    PushByte(text[at++], arguments);
  }
  if (begun_) told_ = pushed_ - (text.size() - at);
}

void CallStream::EndKey() {
  key_ = Unquoted(word_);
  state_ = keys_++ == 0 && !OpensACall(key_) ? State::kNoCall : State::kColon;
}

void CallStream::PushByte(char c, std::string* arguments) {
  const auto begin_arguments = [&] {
    begun_ = true;
    value_ = ValueEnd();
    value_.Push(c);
    *arguments += c;
    state_ = State::kArguments;
  };
  const bool in_string = state_ == State::kKey || state_ == State::kName;
  if (in_string) {
    word_ += c;
    const bool ends = c == '"' && !escaped_;
    escaped_ = c == '\\' && !escaped_;
    if (!ends) return;
    if (state_ == State::kKey) return EndKey();
    call_.name = Unquoted(word_);
    state_ = call_.name.empty() ? State::kNoCall : State::kMember;
    return;
  }
  if (state_ == State::kArguments) {
    AppendJson(value_, c, arguments);
    value_.Push(c);
    if (value_.ended()) state_ = State::kAfter;
    return;
  }
  if (state_ == State::kOtherValue) {
    const bool over = value_.depth() == 0 && !value_.quoted();
    if (over && (c == ',' || c == '}')) {
      state_ = c == ',' ? State::kKeyStart : State::kOff;
    } else {
      value_.Push(c);
    }
    return;
  }
  if (state_ == State::kHeader) {
    word_ += c;
    const size_t least = format_.kind.size() + format_.kind_separator.size() + format_.separator.size();
    if (word_.size() <= least || !word_.ends_with(format_.separator)) return;
    word_.resize(word_.size() - format_.separator.size());
    auto header = ReadHeader(format_, word_);
    word_.clear();
    state_ = header.has_value() ? State::kFence : State::kOff;
    if (header.has_value()) call_ = *std::move(header);
    return;
  }
  if (state_ == State::kFunction) {  // of Python
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-') {
      word_ += c;
      if (word_.size() > kLongestName) state_ = State::kNoCall;
      return;
    }
    if (word_.empty()) {
      if (!IsSpace(c)) state_ = State::kNoCall;
    } else if (c == '(') {
      call_.name = word_;
      state_ = State::kOff;
    } else {
      state_ = State::kNoCall;
    }
    return;
  }
  if (IsSpace(c)) return;
  switch (state_) {
    case State::kStart:
      state_ = c == '{' ? State::kKeyStart : State::kNoCall;
      return;
    case State::kList:
      state_ = c == '[' ? State::kFunction : State::kNoCall;
      return;
    case State::kKeyStart:
      if (c == '"') {
        word_ = c;
        escaped_ = false;
        state_ = State::kKey;
      } else {
        state_ = keys_ == 0 ? State::kNoCall : State::kOff;
      }
      return;
    case State::kColon:
      state_ = c == ':' ? State::kValueStart : State::kOff;
      return;
    case State::kValueStart:
      if (key_ == "name") {
        word_ = c;
        escaped_ = false;
        state_ = c == '"' ? State::kName : State::kNoCall;
      } else if (key_ == "arguments" || key_ == "parameters") {
        if (named() && c == '{') return begin_arguments();
        state_ = State::kOff;
      } else {
        value_ = ValueEnd();
        value_.Push(c);
        state_ = State::kOtherValue;
      }
      return;
    case State::kMember:
      state_ = c == ',' ? State::kKeyStart : State::kOff;
      return;
    case State::kFence:
      if (c == '{' && word_.empty()) return begin_arguments();
      word_ += c;
      if (word_ == format_.fence_open) {
        word_.clear();
      } else if (!format_.fence_open.starts_with(word_)) {
        state_ = State::kOff;
      }
      return;
    default:
      return;
  }
}

void CallStream::PushTags(std::string_view text, std::string* arguments) {
  buffer_ += text;
  while (state_ != State::kOff && NextTag(arguments)) searched_ = 0;
  if (begun_) told_ = pushed_ - buffer_.size();
}

bool CallStream::TakeUntil(std::string_view tag, std::string* before) {
  const size_t at = buffer_.find(tag, searched_);
  if (at == std::string::npos) {
    searched_ = buffer_.size() - std::min(buffer_.size(), tag.size() - 1);
    return false;
  }
  *before = buffer_.substr(0, at);
  buffer_.erase(0, at + tag.size());
  return true;
}

bool CallStream::NextTag(std::string* arguments) {
  std::string before;
  switch (state_) {
    case State::kTagName: {
      if (!TakeUntil(format_.key_open, &before)) return false;
      const auto name = ReadTaggedName(format_, before);
      if (!name.has_value()) {
        state_ = State::kOff;
        return false;
      }
      call_.name = *name;
      begun_ = true;
      *arguments += '{';
      state_ = State::kTagKey;
      return true;
    }
    case State::kTagKey: {
      if (!TakeUntil(format_.key_close, &before)) return false;
      key_ = std::string(absl::StripAsciiWhitespace(before));
      value_type_ = type_ == nullptr ? "" : type_(call_.name, key_);
      if (keys_++ > 0) *arguments += ',';
      *arguments += '"' + Escaped(key_) + "\":";
      value_begun_ = false;
      state_ = format_.value_open.empty() ? State::kTagValue : State::kTagOpen;
      return true;
    }
    case State::kTagOpen: {
      absl::StripLeadingAsciiWhitespace(&buffer_);
      if (buffer_.size() < format_.value_open.size() && format_.value_open.starts_with(buffer_)) return false;
      if (!buffer_.starts_with(format_.value_open)) {
        state_ = State::kOff;
        return false;
      }
      buffer_.erase(0, format_.value_open.size());
      state_ = State::kTagValue;
      return true;
    }
    case State::kTagValue:
      return TagValue(arguments);
    case State::kTagNext:
      if (!TakeUntil(format_.key_open, &before)) return false;
      state_ = State::kTagKey;
      return true;
    default:
      return false;
  }
}

bool CallStream::TagValue(std::string* arguments) {
  const bool breaks = format_.value_open.empty();  // a line break at each end is none of the value
  std::string raw;
  if (value_type_ != "string") {
    if (!TakeUntil(format_.value_close, &raw)) return false;
    std::string_view value = raw;
    if (breaks && value.starts_with('\n')) value.remove_prefix(1);
    if (breaks && value.ends_with('\n')) value.remove_suffix(1);
    *arguments += ReadTaggedValue(value, value_type_);
    state_ = State::kTagNext;
    return true;
  }
  if (!value_begun_) {
    if (buffer_.empty()) return false;
    if (breaks && buffer_.starts_with('\n')) buffer_.erase(0, 1);
    *arguments += '"';
    value_begun_ = true;
    searched_ = 0;
  }
  if (TakeUntil(format_.value_close, &raw)) {
    if (breaks && raw.ends_with('\n')) raw.pop_back();
    *arguments += Escaped(raw) + '"';
    state_ = State::kTagNext;
    return true;
  }
  // A possible closer, or the line break before it, stays.
  const std::string close(format_.value_close);
  const std::string last = breaks ? "\n" + close : close;
  size_t held = std::min(buffer_.size(), last.size() - 1);
  while (held > 0 && !last.starts_with(std::string_view(buffer_).substr(buffer_.size() - held)) &&
         !close.starts_with(std::string_view(buffer_).substr(buffer_.size() - held))) {
    --held;
  }
  *arguments += Escaped(std::string_view(buffer_).substr(0, buffer_.size() - held));
  buffer_.erase(0, buffer_.size() - held);
  searched_ = 0;
  return false;
}

}  // namespace baton::output
