// CallStream: what can be told of a call before its text is whole: its name as soon as its arguments begin,
// and the arguments as they come. The text of a call that is whole is read again by ReadCalls, and what was
// told is a prefix of what comes out there, or the call is not well-formed. Lists of calls are not told
// early. Linear in the text; one per call, one thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/output/call_reader.h"
#include "text/output/output_format.h"
#include "text/output/value_end.h"

namespace baton::output {

class CallStream {
 public:
  // Both outlive the stream; `type` may be empty.
  CallStream(const OutputFormat& format, const ParameterType& type);

  // The next text of the call, without its opener, in any pieces of whole characters. Appends to `arguments`
  // what of them is certain.
  void Push(std::string_view text, std::string* arguments);

  // The arguments have begun, so name and id of call() are known.
  bool begun() const { return begun_; }
  // The name is known; of an object, maybe before its arguments.
  bool named() const { return !call_.name.empty(); }
  const Call& call() const { return call_; }
  // The text so far begins no call: bare text, which then is an answer.
  bool no_call() const { return state_ == State::kNoCall; }
  // Bytes that have been told, or stand before what has been told.
  size_t told() const { return told_; }

 private:
  enum class State {
    kOff,     // the rest is told when the call is whole
    kNoCall,  //
    kArguments,
    kAfter,
    // Objects.
    kStart,
    kKeyStart,
    kKey,
    kColon,
    kValueStart,
    kName,
    kOtherValue,
    kMember,
    // Named calls.
    kHeader,
    kFence,
    // Calls in Python.
    kList,
    kFunction,
    // Tagged calls.
    kTagName,
    kTagKey,
    kTagOpen,
    kTagValue,
    kTagNext,
  };

  void PushByte(char c, std::string* arguments);
  void PushTags(std::string_view text, std::string* arguments);
  // One step of a tagged call: false if it takes more text.
  bool NextTag(std::string* arguments);
  bool TagValue(std::string* arguments);
  // Takes what stands before the next `tag` out of the buffer, and the tag. False: it is not there yet.
  bool TakeUntil(std::string_view tag, std::string* before);
  void EndKey();

  const OutputFormat& format_;
  const ParameterType& type_;
  State state_ = State::kOff;
  bool begun_ = false;
  Call call_;
  size_t pushed_ = 0;
  size_t told_ = 0;

  std::string word_;  // a string of JSON, a header, or a fence so far
  bool escaped_ = false;
  int keys_ = 0;
  std::string key_;
  ValueEnd value_;

  // A tagged call's text that has not been told, from where on a tag is looked for, and the value's type.
  std::string buffer_;
  size_t searched_ = 0;
  std::string value_type_;
  bool value_begun_ = false;
};

}  // namespace baton::output
