#include "transfer/ucx/reads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/status.h"

namespace baton::transfer {
namespace {

std::string NoticeOf(uint64_t name) {
  std::string bytes(sizeof name, '\0');
  std::memcpy(bytes.data(), &name, sizeof name);
  return bytes;
}

}  // namespace

Reads::Reads(Fabric& fabric, Memory memory, const ReadsOptions& options)
    : fabric_(fabric), memory_(std::move(memory)), options_(options) {
  for (size_t i = memory_.slots.size(); i > 0; --i) free_slots_.push_back(i - 1);
}

Reads::Source* Reads::SourceOf(const Request& request, absl::Time now) {
  const fleet::v1::PayloadToRead& payload = request.payload;
  std::string key = request.from;
  for (const std::string* part : {&payload.worker(), &payload.payload_key(), &payload.slot_key()}) {
    key += fmt::format(" {} ", part->size());
    key += *part;
  }
  if (sources_.size() >= options_.max_peers && !sources_.contains(key)) return nullptr;
  const auto [found, made] = sources_.try_emplace(std::move(key));
  Source& source = found->second;
  if (made) {
    source.from = request.from;
    source.address = payload.worker();
    source.payload_key = payload.payload_key();
    source.slot_key = payload.slot_key();
    source.moved = source.used = now;
  }
  return &source;
}

void Reads::Begin(Request request, absl::Time now) {
  Source* const peer = SourceOf(request, now);
  if (peer == nullptr) {
    ended_.push_back({std::move(request), {}, absl::ResourceExhaustedError("ucx link: too many peers")});
    return;
  }
  Source& source = *peer;
  source.suspected.reset();
  source.used = now;
  if (now < source.rests_until) {
    ended_.push_back({std::move(request),
                      {},
                      absl::UnavailableError(
                          fmt::format("the ucx link to this peer failed ({}) and rests for another {} ms",
                                      source.why, absl::ToInt64Milliseconds(source.rests_until - now)))});
    return;
  }
  const uint64_t number = next_++;
  Read& read = reads_[number];
  read.request = std::move(request);
  read.source = &source;
  source.waiting.push_back(number);
}

void Reads::Suspect(std::string_view from, absl::Time now) {
  for (auto& [key, source] : sources_) {
    if (source.from == from && !source.suspected.has_value()) source.suspected = now;
  }
}

bool Reads::Advance(absl::Time now) {
  events_.clear();
  fabric_.Progress(events_);
  bool moved = !events_.empty();
  for (Fabric::Event& event : events_) Handle(std::move(event), now);
  for (auto& [number, read] : reads_) {
    if (read.state == State::kPending && read.look <= now) Look(number, read, State::kLooking);
  }
  resting_ = 0;
  for (auto it = sources_.begin(); it != sources_.end();) {
    Source& source = it->second;
    moved |= Start(source, now);
    if (source.active > 0 && now - source.moved > options_.timeout) {
      Fail(source, fmt::format("nothing has come for {} s", absl::ToDoubleSeconds(options_.timeout)), now);
    } else if (source.suspected.has_value() && now - *source.suspected > options_.suspect_timeout) {
      // Nothing waits for it, and it may be dead: the next read connects again.
      if (source.active > 0 || !source.waiting.empty()) {
        Fail(source, "its stream broke, and it does not answer", now);
      } else {
        Disconnect(source, absl::OkStatus());
      }
      source.suspected.reset();
    }
    resting_ += now < source.rests_until ? 1 : 0;
    const bool unused = source.active == 0 && source.waiting.empty() && now - source.used > options_.idle;
    if (unused) Disconnect(source, absl::OkStatus());
    it = unused && source.rests_until + options_.idle < now ? sources_.erase(it) : std::next(it);
  }
  return moved || !ended_.empty();
}

bool Reads::Connect(Source& source, absl::Time now) {
  if (source.endpoint != 0) return true;
  if (connections() >= options_.max_connections) {
    Source* least = nullptr;
    for (auto& [key, other] : sources_) {
      if (other.endpoint == 0 || other.active > 0 || !other.waiting.empty()) continue;
      if (least == nullptr || other.used < least->used) least = &other;
    }
    if (least == nullptr) return false;  // all are at work
    Disconnect(*least, absl::OkStatus());
  }
  const absl::StatusOr<Fabric::Endpoint> endpoint =
      fabric_.Connect(source.from, source.address, source.payload_key, source.slot_key);
  if (!endpoint.ok()) {
    Fail(source, std::string(endpoint.status().message()), now);
    return false;
  }
  source.endpoint = *endpoint;
  ++connected_;
  return true;
}

bool Reads::Start(Source& source, absl::Time now) {
  bool moved = false;
  while (!source.waiting.empty() && Connect(source, now)) {
    const uint64_t number = source.waiting.front();
    Read& read = reads_.at(number);
    // A peer that announces much and is slow leaves memory for the others: one share more is kept than there
    // are peers that are read from.
    const int64_t size = Staging::Size(read.request.bytes);
    const auto busy = std::ranges::count_if(
        sources_, [](const auto& entry) { return entry.second.active > 0 || !entry.second.waiting.empty(); });
    if (source.active > 0 && source.active_bytes + size > memory_.bytes / (busy + 1)) break;
    if (free_slots_.empty()) break;
    const std::optional<Staging::Run> run = memory_.take(read.request.bytes);
    if (!run.has_value()) break;
    source.waiting.pop_front();
    if (source.active == 0) source.moved = now;
    ++source.active;
    source.active_bytes += run->bytes;
    read.run = *run;
    read.slot = free_slots_.back();
    free_slots_.pop_back();
    moved = true;
    if (read.request.payload.complete()) {
      read.state = State::kReading;
      fabric_.Read(source.endpoint, Fabric::Region::kPayloads, read.request.payload.address(), read.run.data,
                   read.request.bytes, number);
    } else {
      Look(number, read, State::kLooking);
    }
  }
  return moved;
}

void Reads::Look(uint64_t number, Read& read, State state) {
  read.state = state;
  fabric_.Read(read.source->endpoint, Fabric::Region::kSlots, read.request.payload.slot(),
               reinterpret_cast<std::byte*>(&memory_.slots[read.slot]), sizeof(uint64_t), number);
}

void Reads::Handle(Fabric::Event event, absl::Time now) {
  switch (event.kind) {
    case Fabric::Event::Kind::kNotice:
      notices_.push_back(std::move(event.notice));
      return;
    case Fabric::Event::Kind::kFailed:
      for (auto& [key, source] : sources_) {
        if (source.endpoint != event.number) continue;
        if (source.active > 0 || !source.waiting.empty()) {
          Fail(source, std::string(event.status.message()), now);
        } else {
          Disconnect(source, absl::OkStatus());  // a peer that nobody needs has died
        }
        break;
      }
      return;
    case Fabric::Event::Kind::kRead:
      if (const auto drained = draining_.find(event.number); drained != draining_.end()) {
        memory_.give_back(drained->second.run);
        free_slots_.push_back(drained->second.slot);
        draining_.erase(drained);
      } else if (const auto read = reads_.find(event.number); read != reads_.end()) {
        Stepped(read, event.status, now);
      }
      return;
  }
}

void Reads::Stepped(Map::iterator it, const absl::Status& status, absl::Time now) {
  auto& [number, read] = *it;
  Source& source = *read.source;
  if (!status.ok()) {
    // This read's memory is free, the others' reads end as well.
    End(it, absl::UnavailableError("ucx link: " + std::string(status.message())));
    Fail(source, std::string(status.message()), now);
    return;
  }
  source.moved = now;
  const uint64_t name = read.request.payload.name();
  const uint64_t slot = memory_.slots[read.slot];
  if (read.state == State::kReading) {
    Look(number, read, State::kChecking);
  } else if (read.state == State::kLooking && slot == name - 1) {
    read.state = State::kPending;
    read.look = now + options_.look;
  } else if (slot != name) {
    ++gone_;
    End(it, absl::UnavailableError("ucx link: the sender has given the payload up, or was restarted"));
  } else if (read.state == State::kLooking) {
    read.state = State::kReading;
    fabric_.Read(source.endpoint, Fabric::Region::kPayloads, read.request.payload.address(), read.run.data,
                 read.request.bytes, number);
  } else {
    Land(it, now);
  }
}

void Reads::Land(Map::iterator it, absl::Time now) {
  Read& read = it->second;
  Source& source = *read.source;
  source.used = now;
  source.rest = absl::ZeroDuration();  // it has proven itself
  fabric_.Notify(source.endpoint, NoticeOf(read.request.payload.name()));
  --source.active;
  source.active_bytes -= read.run.bytes;
  free_slots_.push_back(read.slot);
  ended_.push_back({std::move(read.request), read.run, absl::OkStatus()});
  reads_.erase(it);
}

void Reads::End(Map::iterator it, absl::Status status) {
  Read& read = it->second;
  if (read.run.data != nullptr) {
    --read.source->active;
    read.source->active_bytes -= read.run.bytes;
    memory_.give_back(read.run);
    free_slots_.push_back(read.slot);
  }
  ended_.push_back({std::move(read.request), {}, std::move(status)});
  reads_.erase(it);
}

void Reads::Fail(Source& source, const std::string& why, absl::Time now) {
  source.why = why;
  source.rest = source.rest == absl::ZeroDuration() ? options_.first_rest
                                                    : std::min(2 * source.rest, options_.longest_rest);
  source.rests_until = now + source.rest;
  ++failed_;
  Disconnect(source, absl::UnavailableError("ucx link: " + why));
}

void Reads::Disconnect(Source& source, const absl::Status& status) {
  if (source.endpoint != 0) fabric_.Close(std::exchange(source.endpoint, 0));
  for (auto it = reads_.begin(); it != reads_.end();) {
    const auto own = it++;
    Read& read = own->second;
    if (read.source != &source) continue;
    BATON_CHECK(!status.ok()) << " a connection in use was closed";
    if (read.state != State::kWaiting && read.state != State::kPending) {
      // The fabric tells when it does not touch this memory any more.
      draining_[own->first] = {read.run, read.slot};
      --source.active;
      source.active_bytes -= read.run.bytes;
      read.run = {};
    }
    End(own, status);
  }
  source.waiting.clear();
}

void Reads::Close(absl::Time now) {
  for (auto& [key, source] : sources_) Fail(source, "the link is closed", now);
}

absl::Duration Reads::Pause() const {
  // Deadlines are seconds.
  absl::Duration pause = absl::Milliseconds(200);
  for (const auto& [key, source] : sources_) {
    if (source.suspected.has_value()) pause = std::min(pause, options_.suspect_timeout / 4);
  }
  for (const auto& [number, read] : reads_) {
    if (read.state == State::kPending) return options_.look;
    pause = std::min(pause, absl::Milliseconds(20));
  }
  return pause;
}

size_t Reads::connections() const {
  return static_cast<size_t>(
      std::ranges::count_if(sources_, [](const auto& entry) { return entry.second.endpoint != 0; }));
}

}  // namespace baton::transfer
