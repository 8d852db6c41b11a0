#include "router/admission/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace baton::router::admission {
namespace {

// The first of three bounds that `more` would break, in words.
std::optional<std::string> Broken(const QueueLimits& limits, const QueueLimits& have,
                                  const QueueLimits& more) {
  const auto over = [](int64_t limit, int64_t now, int64_t by) { return limit > 0 && now + by > limit; };
  if (over(limits.entries, have.entries, more.entries)) {
    return fmt::format("{} of {} requests wait", have.entries, limits.entries);
  }
  if (over(limits.tokens, have.tokens, more.tokens)) {
    return fmt::format("{} of {} tokens wait, and this request brings {}", have.tokens, limits.tokens,
                       more.tokens);
  }
  if (over(limits.bytes, have.bytes, more.bytes)) {
    return fmt::format("{} of {} bytes of prompts wait, and this request brings {}", have.bytes, limits.bytes,
                       more.bytes);
  }
  return std::nullopt;
}

}  // namespace

void Queue::SetTenant(TenantId tenant, double weight, const QueueLimits& limits) {
  BATON_CHECK(weight > 0) << "weight " << weight;
  Line& line = lines_[tenant];
  if (line.depth.entries > 0) waiting_weight_ += weight - line.weight;
  line.weight = weight;
  line.limits = limits;
  Reschedule(tenant, &line);
}

void Queue::Pause(TenantId tenant, bool paused) {
  Line& line = lines_[tenant];
  if (line.paused == paused) return;
  line.paused = paused;
  if (!paused) line.round = round_;  // rounds that it sat out give no credit
  Reschedule(tenant, &line);
}

std::optional<Refusal> Queue::CheckRoom(TenantId tenant, int64_t count, int64_t tokens, int64_t bytes) const {
  const QueueLimits more = {.entries = count, .tokens = count * tokens, .bytes = count * bytes};
  if (const auto found = lines_.find(tenant); found != lines_.end()) {
    const Depth& depth = found->second.depth;
    if (auto broken = Broken(found->second.limits, {depth.entries, depth.tokens, depth.bytes}, more)) {
      return Refusal{Reason::kTenantQueue, fmt::format("this tenant's queue is full: {}", *broken)};
    }
  }
  const QueueLimits all = {limits_.entries, limits_.tokens, limits_.bytes};
  if (auto broken = Broken(all, {size(), tokens_, bytes_}, more)) {
    return Refusal{Reason::kTotalQueue, fmt::format("the admission queue is full: {}", *broken)};
  }
  return std::nullopt;
}

std::optional<EntryId> Queue::Displaceable(TenantId tenant, int64_t tokens) const {
  if (by_backlog_.empty()) return std::nullopt;
  const auto& [most, whose] = *by_backlog_.rbegin();
  if (whose == tenant) return std::nullopt;
  const auto mine = lines_.find(tenant);
  const double weight = mine == lines_.end() ? 1 : mine->second.weight;
  const int64_t waiting = mine == lines_.end() ? 0 : mine->second.depth.tokens;
  if (most <= static_cast<double>(waiting + tokens) / weight) return std::nullopt;
  return lines_.at(whose).order.rbegin()->second;
}

EntryId Queue::Add(const Entry& entry) {
  const EntryId id(++arrivals_);
  Line& line = lines_[entry.tenant];
  Insert(id, entry, &line);
  Reschedule(entry.tenant, &line);
  return id;
}

void Queue::PutBack(EntryId id, const Entry& entry, int64_t refund) {
  BATON_CHECK(id.value() <= arrivals_) << "entry " << id.value() << " was never added";
  Line& line = lines_[entry.tenant];
  Insert(id, entry, &line);
  line.deficit += static_cast<double>(refund);
  Reschedule(entry.tenant, &line);
}

std::optional<Entry> Queue::Remove(EntryId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return std::nullopt;
  const Entry entry = found->second;
  Line& line = lines_.at(entry.tenant);
  Erase(id, entry, &line);
  Reschedule(entry.tenant, &line);
  return entry;
}

std::optional<EntryId> Queue::First() const {
  if (turns_.empty()) return std::nullopt;
  return lines_.at(std::get<TenantId>(*turns_.begin())).order.begin()->second;
}

Entry Queue::Serve(EntryId id) {
  BATON_CHECK(First() == id) << "entry " << id.value() << " is not the first";
  const Entry entry = entries_.at(id);
  Line& line = lines_.at(entry.tenant);
  round_ = std::max(round_, std::get<0>(*line.turn));
  line.deficit +=
      static_cast<double>(round_ - line.round) * static_cast<double>(kQuantumTokens) * line.weight;
  line.round = round_;
  line.deficit -= static_cast<double>(entry.tokens);
  Erase(id, entry, &line);
  Reschedule(entry.tenant, &line);
  return entry;
}

std::optional<Entry> Queue::Overtake(EntryId id) {
  const Entry entry = entries_.at(id);
  Line& line = lines_.at(entry.tenant);
  if (line.paused) return std::nullopt;
  line.deficit -= static_cast<double>(entry.tokens);
  Erase(id, entry, &line);
  Reschedule(entry.tenant, &line);
  return entry;
}

std::vector<std::pair<EntryId, Entry>> Queue::TakeExpired(absl::Time now) {
  std::vector<std::pair<EntryId, Entry>> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const EntryId id = deadlines_.begin()->second;
    expired.emplace_back(id, entries_.at(id));
    Remove(id);
  }
  return expired;
}

Queue::Depth Queue::depth(TenantId tenant) const {
  const auto found = lines_.find(tenant);
  return found == lines_.end() ? Depth{} : found->second.depth;
}

std::vector<Queue::Ahead> Queue::WhatIsAhead() const {
  std::vector<Ahead> all;
  all.reserve(entries_.size());
  for (const auto& [tenant, line] : lines_) {
    Ahead own;
    const double share = waiting_weight_ / line.weight;
    for (const auto& [place, id] : line.order) {
      const double tokens = static_cast<double>(entries_.at(id).tokens);
      // The others go by their weights meanwhile, and are no more than there are.
      all.push_back({.id = id,
                     .entries = std::min(own.entries * share, static_cast<double>(size() - 1)),
                     .tokens = std::min(own.tokens * share, static_cast<double>(tokens_) - tokens)});
      ++own.entries;
      own.tokens += tokens;
    }
  }
  return all;
}

double Queue::TokensBefore(TenantId tenant, int priority) const {
  const auto found = lines_.find(tenant);
  const double weight = found == lines_.end() ? 1 : found->second.weight;
  double ahead = 0;
  bool waits = false;
  if (found != lines_.end()) {
    const Line& line = found->second;
    waits = line.depth.entries > 0;
    const int last = std::clamp(priority, kBestPriority, kWorstPriority) - kBestPriority;
    for (int i = 0; i <= last; ++i) ahead += static_cast<double>(line.tokens_by_priority[i]);
  }
  // While it drains what is ahead of its own, the others drain theirs, each by its weight, and no more than
  // they have.
  const double weights = waiting_weight_ + (waits ? 0 : weight);
  return std::min(ahead * weights / weight, static_cast<double>(tokens_));
}

Queue::Place Queue::PlaceOf(EntryId id, const Entry& entry) {
  return {entry.arrival + entry.priority * kAgeing, id};
}

int64_t& Queue::ByPriority(Line* line, int priority) {
  return line->tokens_by_priority[std::clamp(priority, kBestPriority, kWorstPriority) - kBestPriority];
}

void Queue::Insert(EntryId id, const Entry& entry, Line* line) {
  BATON_CHECK(entry.tokens > 0 && entry.bytes >= 0) << entry.tokens << " tokens, " << entry.bytes << " bytes";
  BATON_CHECK(entries_.emplace(id, entry).second) << "entry " << id.value() << " waits already";
  if (line->depth.entries == 0) {
    line->joined = ++joins_;
    line->round = round_;
    line->deficit = 0;
    waiting_weight_ += line->weight;
  }
  line->order.insert(PlaceOf(id, entry));
  ++line->depth.entries;
  line->depth.tokens += entry.tokens;
  line->depth.bytes += entry.bytes;
  ByPriority(line, entry.priority) += entry.tokens;
  deadlines_.emplace(entry.deadline, id);
  tokens_ += entry.tokens;
  bytes_ += entry.bytes;
}

void Queue::Erase(EntryId id, const Entry& entry, Line* line) {
  line->order.erase(PlaceOf(id, entry));
  --line->depth.entries;
  line->depth.tokens -= entry.tokens;
  line->depth.bytes -= entry.bytes;
  ByPriority(line, entry.priority) -= entry.tokens;
  if (line->depth.entries == 0) waiting_weight_ -= line->weight;
  deadlines_.erase({entry.deadline, id});
  tokens_ -= entry.tokens;
  bytes_ -= entry.bytes;
  entries_.erase(id);
  if (entries_.empty()) waiting_weight_ = 0;  // no rounding error outlives the queue
}

void Queue::Reschedule(TenantId tenant, Line* line) {
  if (line->turn.has_value()) turns_.erase(*line->turn);
  line->turn.reset();
  if (line->backlog > 0) by_backlog_.erase({line->backlog, tenant});
  line->backlog = static_cast<double>(line->depth.tokens) / line->weight;
  if (line->order.empty()) return;
  by_backlog_.emplace(line->backlog, tenant);
  if (line->paused) return;
  const Entry& first = entries_.at(line->order.begin()->second);
  const double missing = static_cast<double>(first.tokens) - line->deficit;
  const double credit = static_cast<double>(kQuantumTokens) * line->weight;
  const auto rounds = missing <= 0 ? 0 : static_cast<uint64_t>(std::ceil(missing / credit));
  line->turn = Turn{std::max(round_, line->round + rounds), line->joined, tenant};
  turns_.insert(*line->turn);
}

}  // namespace baton::router::admission
