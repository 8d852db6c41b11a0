#include "router/api/instructions.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "router/api/conversation.h"

namespace baton::router {
namespace {

using Parts = google::protobuf::RepeatedPtrField<v1::ContentPart>;

constexpr char kOpen[] = "<system>\n", kClose[] = "\n</system>", kBetween[] = "\n\n";

void AddText(const char* text, Parts* parts) { parts->Add()->set_text(text); }

bool IsLonger(const v1::CacheMark& a, const v1::CacheMark& b) {
  return a.ttl() == v1::CACHE_TTL_1H && b.ttl() != v1::CACHE_TTL_1H;
}

// The content of a message; a mark at its end is one at that of its last part, of which the longer one stays.
Parts PartsOf(const v1::Message& message) {
  Parts parts = message.parts();
  if (parts.empty() && (!message.content().empty() || message.has_cache())) {
    parts.Add()->set_text(message.content());
  }
  if (message.has_cache()) {
    v1::ContentPart& last = parts[parts.size() - 1];
    if (!last.has_cache() || IsLonger(message.cache(), last.cache())) *last.mutable_cache() = message.cache();
  }
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

void AppendInMarks(const Parts& text, Parts* parts) {
  AddText(kOpen, parts);
  parts->MergeFrom(text);
  AddText(kClose, parts);
}

bool TakesMore(const v1::Message& message) { return message.role() == "user" || message.role() == "tool"; }

// Takes time for the turn once, and then for the instruction alone.
void Append(const v1::Message& instruction, v1::Message* turn) {
  if (!turn->content().empty() || turn->has_cache()) SetParts(PartsOf(*turn), turn);
  if (!turn->parts().empty()) AddText(kBetween, turn->mutable_parts());
  AppendInMarks(PartsOf(instruction), turn->mutable_parts());
}

void Prepend(const std::vector<v1::Message>& instructions, v1::Message* turn) {
  Parts parts;
  AppendInMarks(Joined(instructions), &parts);
  const Parts own = PartsOf(*turn);
  if (!own.empty()) AddText(kBetween, &parts);
  parts.MergeFrom(own);
  SetParts(std::move(parts), turn);
}

bool SaysNothing(const v1::Message& message) {
  return message.content().empty() && std::ranges::all_of(message.parts(), [](const v1::ContentPart& part) {
           return part.text().empty();
         });
}

}  // namespace

std::optional<v1::Conversation> PlaceInstructions(const v1::Conversation& conversation,
                                                  const output::HistoryStyle& style) {
  const auto& messages = conversation.messages();
  const auto first_turn = std::ranges::find_if_not(messages, IsSystem);
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
    std::ranges::remove_copy_if(first, std::back_inserter(waiting), SaysNothing);
  } else if (!first.empty()) {
    v1::Message* const system = placed.add_messages();
    *system = first.front();
    system->set_role("system");
    if (first.size() > 1) SetParts(Joined(first), system);
  }
  const auto own_turn = [&] {
    v1::Message* const turn = placed.add_messages();
    turn->set_role("user");
    Prepend(std::exchange(waiting, {}), turn);
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
    if (message < first_turn || SaysNothing(*message)) continue;
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
