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
      }
      return;
    }
    if (c == '"' || (python_ && c == '\'')) quote_ = c;
    if (c == '{' || c == '[' || (python_ && c == '(')) {
      ++depth_;
      opened_ = true;
    }
    // What closes before anything was opened is not the value's.
    if ((c == '}' || c == ']' || (python_ && c == ')')) && depth_ > 0) --depth_;
  }

  bool quoted() const { return quote_ != 0; }
  // The outermost bracket was closed.
  bool ended() const { return opened_ && depth_ == 0 && quote_ == 0; }

 private:
  bool python_;
  char quote_ = 0;
  bool escaped_ = false;
  bool opened_ = false;
  int depth_ = 0;
};

}  // namespace baton::output
