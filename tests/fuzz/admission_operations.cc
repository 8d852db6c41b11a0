#include "tests/fuzz/admission_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "common/base/status.h"
#include "router/admission/queue.h"

namespace baton::router::admission {
namespace {

constexpr int kTenants = 4;
// Powers of two: sums of credit are exact, so the model may compare with ==.
constexpr std::array<double, 4> kWeights = {0.25, 1, 2, 8};
constexpr std::array<int64_t, 8> kCosts = {1, 7, 100, 512, 513, 3000, 20000, 100000};

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool done() const { return at_ == bytes_.size(); }
  int Below(int limit) { return done() ? 0 : bytes_[at_++] % limit; }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

struct ModelLine {
  double weight = 1;
  bool paused = false;
  double deficit = 0;
  uint64_t round = 0;
  uint64_t joined = 0;
};

class Model {
 public:
  void Insert(EntryId id, const Entry& entry, int64_t refund) {
    ModelLine& line = lines_[entry.tenant.value()];
    if (Count(entry.tenant) == 0) line = {line.weight, line.paused, 0, round_, ++joins_};
    line.deficit += static_cast<double>(refund);
    waiting_.emplace(id, entry);
  }
  void Erase(EntryId id) { waiting_.erase(id); }
  ModelLine& line(TenantId tenant) { return lines_[tenant.value()]; }
  void Unpause(TenantId tenant) {
    line(tenant).paused = false;
    line(tenant).round = round_;
  }

  std::optional<EntryId> First(uint64_t* round) const {
    std::array<std::optional<EntryId>, kTenants> heads;
    bool any = false;
    for (int t = 0; t < kTenants; ++t) {
      if (lines_[t].paused) continue;
      heads[t] = Head(TenantId(t));
      any |= heads[t].has_value();
    }
    if (!any) return std::nullopt;
    for (*round = round_;; ++*round) {
      std::optional<int> next;
      for (int t = 0; t < kTenants; ++t) {
        if (!heads[t].has_value() || Credit(t, *round) < static_cast<double>(waiting_.at(*heads[t]).tokens)) {
          continue;
        }
        if (!next.has_value() || lines_[t].joined < lines_[*next].joined) next = t;
      }
      if (next.has_value()) return heads[*next];
    }
  }
  Entry Serve() {
    const EntryId id = *First(&round_);
    const Entry entry = waiting_.at(id);
    const int t = static_cast<int>(entry.tenant.value());
    lines_[t].deficit = Credit(t, round_) - static_cast<double>(entry.tokens);
    lines_[t].round = round_;
    Erase(id);
    return entry;
  }

  int64_t Count(TenantId tenant) const {
    return std::count_if(waiting_.begin(), waiting_.end(),
                         [&](const auto& item) { return item.second.tenant == tenant; });
  }
  const std::map<EntryId, Entry>& waiting() const { return waiting_; }

 private:
  double Credit(int t, uint64_t round) const {
    return lines_[t].deficit +
           static_cast<double>((round - lines_[t].round) * Queue::kQuantumTokens) * lines_[t].weight;
  }
  std::optional<EntryId> Head(TenantId tenant) const {
    std::optional<EntryId> head;
    const auto place = [&](EntryId id) {
      const Entry& entry = waiting_.at(id);
      return std::make_pair(entry.arrival + entry.priority * Queue::kAgeing, id);
    };
    for (const auto& [id, entry] : waiting_) {
      if (entry.tenant == tenant && (!head.has_value() || place(id) < place(*head))) head = id;
    }
    return head;
  }

  std::map<EntryId, Entry> waiting_;
  std::array<ModelLine, kTenants> lines_;
  uint64_t round_ = 0;
  uint64_t joins_ = 0;
};

absl::Status Compare(const Queue& queue, const Model& model) {
  int64_t tokens = 0, bytes = 0;
  for (const auto& [id, entry] : model.waiting()) {
    tokens += entry.tokens;
    bytes += entry.bytes;
  }
  const auto entries = static_cast<int64_t>(model.waiting().size());
  if (queue.size() != entries || queue.tokens() != tokens || queue.bytes() != bytes) {
    return absl::InternalError(fmt::format("{} entries, {} tokens, {} bytes wait; should be {}, {}, {}",
                                           queue.size(), queue.tokens(), queue.bytes(), entries, tokens,
                                           bytes));
  }
  int64_t by_tenant = 0;
  for (int t = 0; t < kTenants; ++t) by_tenant += queue.depth(TenantId(t)).tokens;
  if (by_tenant != tokens) return absl::InternalError("the tenants' tokens are not the sum");
  uint64_t round = 0;
  const auto first = queue.First();
  const auto should = model.First(&round);
  if (first != should) {
    return absl::InternalError(fmt::format("first is {}, should be {}", first.value_or(EntryId(0)).value(),
                                           should.value_or(EntryId(0)).value()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> RunAdmissionOperations(std::span<const uint8_t> bytes) {
  Input input(bytes);
  Queue queue({});
  Model model;
  std::vector<std::pair<EntryId, Entry>> out;  // served, may come back
  absl::Time now = absl::UnixEpoch();
  int64_t done = 0;
  while (!input.done()) {
    ++done;
    switch (input.Below(8)) {
      default: {
        const Entry entry = {.tenant = TenantId(input.Below(kTenants)),
                             .priority = input.Below(kWorstPriority - kBestPriority + 1) + kBestPriority,
                             .tokens = kCosts[input.Below(kCosts.size())],
                             .bytes = input.Below(100),
                             .arrival = now,
                             .deadline = now + absl::Seconds(input.Below(60) + 1)};
        model.Insert(queue.Add(entry), entry, 0);
        break;
      }
      case 3:
      case 4:
        if (const auto first = queue.First(); first.has_value()) {
          const Entry entry = queue.Serve(*first);
          model.Serve();
          out.emplace_back(*first, entry);
        }
        break;
      case 5:
        if (!out.empty()) {
          const auto [id, entry] = out[input.Below(static_cast<int>(std::min<size_t>(out.size(), 255)))];
          std::erase_if(out, [id = id](const auto& item) { return item.first == id; });
          queue.PutBack(id, entry, entry.tokens);
          model.Insert(id, entry, entry.tokens);
        }
        break;
      case 6: {
        const TenantId tenant(input.Below(kTenants));
        if (input.Below(2) == 0) {
          const double weight = kWeights[input.Below(kWeights.size())];
          queue.SetTenant(tenant, weight, {});
          model.line(tenant).weight = weight;
        } else if (model.line(tenant).paused) {
          queue.Pause(tenant, false);
          model.Unpause(tenant);
        } else {
          queue.Pause(tenant, true);
          model.line(tenant).paused = true;
        }
        break;
      }
      case 7:
        if (!model.waiting().empty() && input.Below(2) == 0) {
          auto victim = model.waiting().begin();
          std::advance(victim, input.Below(static_cast<int>(std::min<size_t>(model.waiting().size(), 255))));
          const EntryId id = victim->first;
          model.Erase(id);
          if (!queue.Remove(id).has_value()) return absl::InternalError("what waits could not be removed");
          if (queue.Remove(id).has_value()) return absl::InternalError("removed twice");
        } else {
          now += absl::Seconds(input.Below(20));
          absl::Time last = absl::InfinitePast();
          for (const auto& [id, entry] : queue.TakeExpired(now)) {
            if (entry.deadline > now || entry.deadline < last)
              return absl::InternalError("expired out of turn");
            last = entry.deadline;
            model.Erase(id);
          }
          for (const auto& [id, entry] : model.waiting()) {
            if (entry.deadline <= now) return absl::InternalError("an expired choice still waits");
          }
        }
    }
    if (absl::Status same = Compare(queue, model); !same.ok()) {
      return absl::InternalError(fmt::format("operation {}: {}", done, std::string(same.message())));
    }
  }
  return done;
}

}  // namespace baton::router::admission
