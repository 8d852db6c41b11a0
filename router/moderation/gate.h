// Gate: holds one choice's answer back until verdicts cover it. Deltas come in, texts to be judged come out,
// and after each verdict the deltas whose whole text it covers; with them, and never before, what else shows
// the text: token ids, log probabilities, digests, parts. With `holds` false it only gathers texts, and asks
// as seldom as it can.
//
// A text to be judged is the answer from its start (so that the classifier finds most of it in its cache)
// up to the last token; when that is more than `room` bytes, it begins anew, kOverlapBytes before what is not
// judged yet. A verdict is asked for when a window of tokens is full: kFirstWindow, then kWindow. One verdict
// is out at a time, and the next window fills meanwhile; when it is full too, Full() says so, and no more is
// to be read: at most two windows, or `room` bytes and a delta, are held. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/v1/generation.pb.h"

namespace baton::router::moderation {

class Gate {
 public:
  static constexpr int64_t kFirstWindow = 16;
  static constexpr int64_t kWindow = 64;
  // About 16 tokens.
  static constexpr size_t kOverlapBytes = 64;
  static constexpr size_t kLeastRoom = 256;

  // `room`: bytes of text that a verdict may take; at least kLeastRoom.
  Gate(bool holds, size_t room);

  // A delta to be held, and the text that it shows: TextOf, or what its token ids say. `pending`: its last
  // token has text that comes later, as a part of a character has.
  void Add(v1::Delta delta, std::string_view text, bool pending = false);
  // Text alone, to be judged.
  void AddText(std::string_view text);
  // No delta follows.
  void End() { ended_ = true; }
  // The next text for a verdict; nothing while one is out, or no window is full.
  std::optional<std::string> Next();
  // The last text of Next() may be sent.
  void Passed();
  // Deltas that may be sent now, each once, in order.
  std::vector<v1::Delta> Take();

  // A verdict is out.
  bool judging() const { return out_.has_value(); }
  // No more is to be read before the verdict that is out.
  bool Full() const;
  // All came, was judged and taken.
  bool Done() const { return ended_ && !judging() && judged_ == came_ && held_.empty(); }
  size_t held() const { return held_.size(); }

 private:
  struct Held {
    v1::Delta delta;
    uint64_t end;  // bytes of the answer that are to be judged before it may go
  };
  bool WindowFull(uint64_t unjudged) const;

  const bool holds_;
  const size_t room_;
  std::deque<Held> held_;
  std::string text_;     // of the answer, from base_ on
  uint64_t base_ = 0;    // offsets in the answer, in bytes
  uint64_t judged_ = 0;  // up to here it may be sent
  uint64_t came_ = 0;    // up to here it is known
  int64_t tokens_ = 0;   // since the last Next()
  int64_t window_ = kFirstWindow;
  std::optional<uint64_t> out_;  // the end of what is being judged
  bool ended_ = false;
};

}  // namespace baton::router::moderation
