#include "router/discovery/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

namespace baton::router::discovery {
namespace {

using EntryLists = std::initializer_list<const std::vector<Entry>*>;

}  // namespace

Roster::Roster(Lists given, absl::Duration every) : given_(std::move(given)), every_(every) { KeepNames(); }

void Roster::SetFile(Lists file) {
  file_ = std::move(file);
  KeepNames();
}

void Roster::KeepNames() {
  std::map<std::string, Name> names;
  for (const auto* list : EntryLists{&given_.decode, &file_.decode, &given_.prefill, &file_.prefill}) {
    for (const Entry& entry : *list) {
      if (!entry.is_name || names.contains(entry.host)) continue;
      const auto known = names_.find(entry.host);
      names[entry.host] = known == names_.end() ? Name() : std::move(known->second);
    }
  }
  names_ = std::move(names);
}

void Roster::Hurry() {
  for (auto& [host, name] : names_) {
    if (name.asked) {
      name.hurried = true;
    } else {
      name.due = std::min(name.due, name.asked_at + kMinGap);
    }
  }
}

std::vector<std::string> Roster::TakeDue(absl::Time now) {
  std::vector<std::string> hosts;
  for (auto& [host, name] : names_) {
    if (name.asked || name.due > now) continue;
    name.asked = true;
    name.asked_at = now;
    hosts.push_back(host);
  }
  return hosts;
}

absl::Time Roster::next_due() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [host, name] : names_) {
    if (!name.asked) next = std::min(next, name.due);
  }
  return next;
}

std::optional<Roster::News> Roster::OnAnswer(const std::string& host, const Resolver::Answer& answer,
                                             absl::Time now) {
  const auto found = names_.find(host);
  if (found == names_.end()) return std::nullopt;  // no longer listed
  Name& name = found->second;
  name.asked = false;
  name.answered = true;
  // An answer to a question from before a worker was lost may be stale.
  name.due = std::exchange(name.hurried, false) ? std::max(now, name.asked_at + kMinGap) : now + every_;
  std::string trouble;
  if (answer.ok() && !answer->empty()) {
    const std::set<std::string> sorted(answer->begin(), answer->end());
    name.addresses.assign(sorted.begin(), sorted.end());
  } else if (answer.ok() || absl::IsNotFound(answer.status())) {
    name.addresses.clear();
    trouble = fmt::format("has no address{}{}", answer.ok() ? "" : ": ",
                          answer.ok() ? "" : std::string(answer.status().message()));
  } else {
    trouble = fmt::format("can't be resolved: {}", std::string(answer.status().message()));
  }
  if (trouble == name.trouble) return std::nullopt;
  name.trouble = std::move(trouble);
  if (name.trouble.empty()) {
    return News{false, fmt::format("{} resolves now, to {} addresses", host, name.addresses.size())};
  }
  return News{
      true,
      fmt::format("{} {}; {}asked again every {}", host, name.trouble,
                  name.addresses.empty() ? "" : fmt::format("its {} workers stay; ", name.addresses.size()),
                  absl::FormatDuration(every_))};
}

Found Roster::found() const {
  Found all;
  std::set<std::string> troubles;
  const auto add = [&](EntryLists lists, bool decode) {
    std::vector<std::string>& addresses = decode ? all.decode : all.prefill;
    std::set<std::string> seen;
    const auto add_one = [&](const std::string& host, uint16_t port) {
      std::string address = JoinHostPort(host, port);
      if (seen.insert(address).second) addresses.push_back(std::move(address));
    };
    for (const auto* list : lists) {
      for (const Entry& entry : *list) {
        if (!entry.is_name) {
          add_one(entry.host, entry.port);
          continue;
        }
        const Name& name = names_.at(entry.host);
        for (const std::string& host : name.addresses) add_one(host, entry.port);
        all.complete = all.complete && name.answered;
        if (!decode || !name.addresses.empty()) continue;
        const std::string trouble =
            fmt::format("{} ({})", entry.text(), name.answered ? name.trouble : "not resolved yet");
        if (!troubles.insert(trouble).second) continue;
        all.trouble += (all.trouble.empty() ? "" : "; ") + trouble;
      }
    }
  };
  add({&given_.decode, &file_.decode}, true);
  add({&given_.prefill, &file_.prefill}, false);
  return all;
}

}  // namespace baton::router::discovery
