#include "router/api/instructions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "router/api/conversation.h"

namespace baton::router {
namespace {

using Parts = google::protobuf::RepeatedPtrField<v1::ContentPart>;

constexpr char kOpen[] = "<system>\n", kClose[] = "\n</system>", kBetween[] = "\n\n";

void AddText(const char* text, Parts* parts) { parts->Add()->set_text(text); }

// The content of a message; a mark at its end is one at that of its last part.
Parts PartsOf(const v1::Message& message) {
  Parts parts = message.parts();
  if (parts.empty() && (!message.content().empty() || message.has_cache())) {
    parts.Add()->set_text(message.content());
  }
  if (message.has_cache()) *parts[parts.size() - 1].mutable_cache() = message.cache();
  return parts;
}

void SetParts(Parts parts, v1::Message* message) {
  message->clear_content();
  message->clear_cache();
  *message->mutable_parts() = std::move(parts);
}

// All in one text, with empty lines between them.
Parts Joined(const std::vector<v1::Message>& messages) {
  Parts all;
  for (const v1::Message& message : messages) {
    const Parts parts = PartsOf(message);
    if (parts.empty()) continue;
    if (!all.empty()) AddText(kBetween, &all);
    all.MergeFrom(parts);
  }
  return all;
}

Parts InMarks(const std::vector<v1::Message>& messages) {
  Parts parts;
  AddText(kOpen, &parts);
  parts.MergeFrom(Joined(messages));
  AddText(kClose, &parts);
  return parts;
}

bool TakesMore(const v1::Message& message) { return message.role() == "user" || message.role() == "tool"; }

void Append(const v1::Message& instruction, v1::Message* turn) {
  Parts parts = PartsOf(*turn);
  if (!ContentOf(*turn).empty()) AddText(kBetween, &parts);
  parts.MergeFrom(InMarks({instruction}));
  SetParts(std::move(parts), turn);
}

void Prepend(const std::vector<v1::Message>& instructions, v1::Message* turn) {
  Parts parts = InMarks(instructions);
  if (!ContentOf(*turn).empty()) AddText(kBetween, &parts);
  parts.MergeFrom(PartsOf(*turn));
  SetParts(std::move(parts), turn);
}

}  // namespace

std::optional<v1::Conversation> PlaceInstructions(const v1::Conversation& conversation,
                                                  const output::HistoryStyle& style) {
  const auto& messages = conversation.messages();
  auto first_turn = std::ranges::find(messages, "user", &v1::Message::role);
  if (first_turn == messages.end()) first_turn = std::ranges::find_if_not(messages, IsSystem);
  std::vector<v1::Message> first;
  bool stays = true;
  for (auto message = messages.begin(); message != messages.end(); ++message) {
    if (!IsSystem(*message)) continue;
    const bool early = message < first_turn;
    if (early) first.push_back(*message);
    stays = stays && message->role() == "system" &&
            (early ? style.system && message == messages.begin() : style.late_system);
  }
  if (stays) return std::nullopt;

  v1::Conversation placed = conversation;
  placed.clear_messages();
  std::vector<v1::Message> waiting;  // for a turn that takes them
  if (!style.system) {
    waiting = std::move(first);
  } else if (!first.empty()) {
    v1::Message* const system = placed.add_messages();
    *system = first.front();
    system->set_role("system");
    if (first.size() > 1) SetParts(Joined(first), system);
  }
  const auto own_turn = [&] {
    v1::Message* const turn = placed.add_messages();
    turn->set_role("user");
    SetParts(InMarks(std::exchange(waiting, {})), turn);
  };
  for (auto message = messages.begin(); message != messages.end(); ++message) {
    if (!IsSystem(*message)) {
      const bool takes = TakesMore(*message);
      if (!waiting.empty() && !takes) own_turn();
      *placed.add_messages() = *message;
      if (!waiting.empty()) {
        Prepend(std::exchange(waiting, {}), placed.mutable_messages(placed.messages_size() - 1));
      }
      continue;
    }
    if (message < first_turn) continue;
    const int last = placed.messages_size() - 1;
    if (style.late_system) {
      *placed.add_messages() = *message;
      placed.mutable_messages(last + 1)->set_role("system");
    } else if (waiting.empty() && last >= 0 && TakesMore(placed.messages(last))) {
      Append(*message, placed.mutable_messages(last));
    } else {
      waiting.push_back(*message);
    }
  }
  if (!waiting.empty()) own_turn();
  return placed;
}

}  // namespace baton::router
