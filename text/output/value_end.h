// ValueEnd: follows a JSON value, or a list of Python's, byte by byte and says where it ends, and whether a
// byte stands inside a string, where a marker would be quoted text. It checks nothing else.
#pragma once

namespace baton::output {

class ValueEnd {
 public:
  // `python`: single quotes quote, too.
  explicit ValueEnd(bool python = false) : python_(python) {}

  void Push(char c) {
    if (quote_ != 0) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == quote_) {
        quote_ = 0;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        broken_ = true;
      }
      return;
    }
    if (c == '"' || (python_ && c == '\'')) quote_ = c;
    if (c == '{' || c == '[' || (python_ && c == '(')) {
      ++depth_;
      opened_ = true;
    }
    // A closer before any opener is not the value's.
    if ((c == '}' || c == ']' || (python_ && c == ')')) && depth_ > 0) --depth_;
  }

  // Inside a string. No string has a line break or another control character in it: where one came, nothing
  // is known of quotes any more.
  bool quoted() const { return quote_ != 0 && !broken_; }
  // The next byte is text of a string in JSON, if it does not end the string.
  bool takes_text() const { return quote_ == '"' && !escaped_; }
  // Brackets that are open.
  int depth() const { return depth_; }
  // The outermost bracket was closed.
  bool ended() const { return opened_ && depth_ == 0 && quote_ == 0; }

 private:
  bool python_;
  char quote_ = 0;
  bool escaped_ = false;
  bool broken_ = false;
  bool opened_ = false;
  int depth_ = 0;
};

// QuotedMarker: whether a marker that came inside a string is of the string. It is if the string goes on
// without control characters to its quote, and behind that stands what may follow a string.
class QuotedMarker {
 public:
  enum class Verdict { kUnknown, kQuoted, kReal };

  // The next text behind the marker, byte by byte until there is a verdict.
  Verdict Push(char c) {
    if (closed_) {
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') return Verdict::kUnknown;
      return c == ',' || c == '}' || c == ']' || c == ':' || c == ')' ? Verdict::kQuoted : Verdict::kReal;
    }
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      closed_ = true;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      return Verdict::kReal;
    }
    return Verdict::kUnknown;
  }
  // The string is over, and what follows it is not there yet.
  bool closed() const { return closed_; }

 private:
  bool escaped_ = false;
  bool closed_ = false;
};

}  // namespace baton::output
