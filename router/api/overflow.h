// Shortening: a conversation that is longer than the model's context, without its oldest parts, as
// v1::Overflow asks. What goes is decided by replaying how the conversation grew, message by message:
// whenever it outgrew the window, the oldest parts went until it was down to a share of the window. So the
// cut depends on nothing that comes after it: as the conversation grows on, it stays where it is until the
// window is full again, and the prompts between begin alike, which keeps their KV cached.
//
// Tokens are those of the messages' texts and kMessageTokens for what a template writes around one; the exact
// number is the caller's to find out, who asks for More if it is too large. Plain data, any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"

namespace baton::router {

// INVALID_ARGUMENT naming the field. `of_tokens`: of a prompt that is no conversation.
absl::Status CheckOverflow(const v1::Overflow& overflow, bool of_tokens);

// True if the conversation may be shortened; false: it is refused if it is too long.
bool Shortens(const v1::Overflow& overflow);

// True if max_tokens is cut to the room that is left of the context.
bool Clamps(const v1::Overflow& overflow);

// Some part of a conversation that may go: its tokens, and the message, by number, with whose coming it may.
struct RemovablePart {
  int64_t tokens = 0;
  int from = 0;
};

// How many of `parts`, oldest first and with `from` ascending, have gone once all messages have come: when
// they have more than `window` tokens, together with the `fixed` ones that are always there, parts go until
// at most `keep` (0 to 1) of the window is left.
int PartsGone(std::span<const int64_t> messages, std::span<const RemovablePart> parts, int64_t fixed,
              int64_t window, double keep);

// The tokens that go of a prompt that is no conversation, from `begin` to before `end`.
struct TokensGone {
  int64_t begin = 0;
  int64_t end = 0;
};
// How `overflow`, whose mode drops, cuts a prompt of so many tokens to at most `window`: the first `head` of
// them stay. The cut depends on the number of tokens alone, and grows by steps, as that of a conversation
// does. OUT_OF_RANGE: the head leaves no room for others.
absl::StatusOr<TokensGone> CutTokens(const v1::Overflow& overflow, int64_t tokens, int64_t head,
                                     int64_t window);

class Shortening {
 public:
  // Tokens of a text by itself, special tokens not added.
  using CountTokens = std::function<absl::StatusOr<int64_t>(const std::string& text)>;
  static constexpr int64_t kMessageTokens = 8;
  static constexpr float kKeep = 0.75F;        // if the request names no share
  static constexpr uint32_t kToolResults = 3;  // that stay if the request names no number
  static constexpr int64_t kFirst = 8;  // that part of the window is a prompt's beginning, if it names none
  static constexpr char kCleared[] = "[This result was removed to save space.]";

  // For a conversation that passed CheckConversation and outlives it, and a mode that Shortens. Linear in the
  // conversation's bytes. Errors are those of `count`.
  static absl::StatusOr<Shortening> Make(const v1::Conversation& conversation, const v1::Overflow& overflow,
                                         const CountTokens& count);

  // The conversation's system prompt and tools, with one short turn: what its fixed tokens are counted of.
  v1::Conversation Frame() const;

  // How many parts go for a window of so many tokens, of which the frame takes `fixed`.
  int Gone(int64_t fixed, int64_t window) const;
  // How many go if `gone` did not suffice by so many tokens: more than `gone`, or as many if none is left.
  int More(int gone, int64_t tokens) const;

  struct Shortened {
    v1::Conversation conversation;
    v1::ContextReport report;
  };
  // The conversation without the first `gone` parts.
  Shortened Without(int gone) const;

 private:
  // The messages of a part that goes whole, from `first` to before `end`; or, in modes that clear, the one
  // message.
  struct Range {
    int first = 0;
    int end = 0;
  };

  Shortening(const v1::Conversation& conversation, const v1::Overflow& overflow)
      : conversation_(conversation),
        mode_(overflow.mode()),
        keep_(overflow.has_keep() ? overflow.keep() : kKeep) {}
  void FindTurns(std::span<const int64_t> tokens);

  const v1::Conversation& conversation_;
  v1::Overflow::Mode mode_;
  double keep_;
  int frame_ = 0;                  // messages of the system prompt, with which the conversation begins
  std::vector<int64_t> messages_;  // tokens of the others, and what is left of a cleared one is none of them
  std::vector<RemovablePart> parts_;
  std::vector<Range> ranges_;  // of the parts
};

}  // namespace baton::router
