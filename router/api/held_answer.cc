#include "router/api/held_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/secret.h"
#include "common/rpc/status.h"
#include "router/api/held_answers.h"

namespace baton::router {
namespace {

// The fixed part of an answer, its names and its places in the registry.
constexpr size_t kAnswerBytes = 1024;

size_t BytesOf(const Begun& begun) {
  size_t bytes = begun.prepared.request.SpaceUsedLong() + begun.prepared.chain.size() * sizeof(kv::BlockHash);
  for (const Begun::Choice& choice : begun.choices) bytes += choice.sent.size() * sizeof(int32_t);
  return bytes;
}

}  // namespace

absl::Status HeldAnswer::NotHeld() {
  return rpc::WithReason(
      absl::NotFoundError("request_id: this router holds no such answer; resume with the request"),
      v1::REASON_ANSWER_NOT_HELD);
}

std::string HeldAnswer::ChargedAs(const Name& name, uint64_t seed) {
  const std::string digest =
      Sha256Of(fmt::format("{} {} {} {}", name.digest, seed, name.key.empty() ? "id" : "key",
                           name.key.empty() ? name.id : name.key));
  return ToHex(std::as_bytes(std::span(digest)));
}

bool HeldAnswer::IsNew() const {
  absl::MutexLock lock(&mutex_);
  return state_ == State::kNew;
}

HeldAnswer::HeldAnswer(Name name, HeldAnswers& all) : name_(std::move(name)), all_(all) {}

HeldAnswer::Joined HeldAnswer::Join(std::shared_ptr<ClientStream> client, std::shared_ptr<AnswerCall> call,
                                    std::vector<uint32_t> after, bool can_begin) {
  auto reader = std::make_shared<Reader>();
  reader->client = std::move(client);
  reader->call = std::move(call);
  reader->after = std::move(after);
  reader->begun = std::ranges::any_of(reader->after, [](uint32_t tokens) { return tokens > 0; });
  bool launch = false, may_begin = false;
  {
    absl::MutexLock lock(&mutex_);
    const bool begins = state_ == State::kNew || (state_ == State::kBroken && !remains_.begun.has_value());
    if (dropped_ || state_ == State::kGone || (begins && !can_begin)) return {};
    if (state_ == State::kNew) {
      max_answer_bytes_ = reader->client->max_answer_bytes();
    } else {
      all_.Resumed(state_ != State::kBroken     ? HeldAnswers::How::kAttached
                   : remains_.begun.has_value() ? HeldAnswers::How::kContinued
                                                : HeldAnswers::How::kRecomputed);
    }
    readers_.push_back(reader);
    may_begin = can_begin && (begins || state_ == State::kStopping);
    reader->can_begin = may_begin;
    launch = begins || state_ == State::kBroken;
    if (launch) Appoint(reader);
  }
  all_.Update(*this);
  if (launch) Launch();
  Pump(reader);
  return {.reader = std::move(reader), .may_begin = may_begin};
}

std::shared_ptr<HeldAnswer::Reader> HeldAnswer::Heir() const {
  for (const auto& reader : readers_) {
    if (!reader->left.has_value() && !reader->computes && (remains_.begun.has_value() || reader->can_begin)) {
      return reader;
    }
  }
  return nullptr;
}

void HeldAnswer::Appoint(const std::shared_ptr<Reader>& reader) {
  state_ = State::kRunning;
  reader->computes = true;
  producer_ = reader->call;
  launching_ = true;
  if (!remains_.begun.has_value()) {
    ClearLog();
    tokens_ = {};
  }
  // From now on they may have had messages, and calls let go of requests that nobody will ask them for.
  for (const auto& one : readers_) one->can_begin = false;
}

void HeldAnswer::Launch() {
  std::shared_ptr<AnswerCall> call;
  std::optional<Begun> begun;
  std::optional<Drawn> drawn;
  billing::TokenCounts charged;
  {
    absl::MutexLock lock(&mutex_);
    call = producer_;
    begun = std::exchange(remains_.begun, std::nullopt);
    charged = remains_.charged;
    if (!begun.has_value()) drawn = drawn_;
  }
  call->Produce(std::move(begun), std::move(drawn), charged);
  bool unread = false;
  {
    absl::MutexLock lock(&mutex_);
    launching_ = false;
    unread = state_ == State::kStopping;
  }
  if (unread) call->OnUnread();
  all_.Update(*this);
}

uint32_t HeldAnswer::max_answer_bytes() const {
  absl::MutexLock lock(&mutex_);
  return max_answer_bytes_;
}

std::optional<Drawn> HeldAnswer::drawn() const {
  absl::MutexLock lock(&mutex_);
  return drawn_;
}

bool HeldAnswer::Computes(const std::shared_ptr<Reader>& reader) const {
  absl::MutexLock lock(&mutex_);
  return reader->computes;
}

void HeldAnswer::Admitted(const std::string&, bool waits) {
  {
    absl::MutexLock lock(&mutex_);
    admitted_ = true;
    waits_ = waits;
  }
  if (waits) PumpAll();
}

bool HeldAnswer::Append(const v1::GenerateResponse& response) {
  if (response.has_progress()) return false;
  Entry entry{.begin = log_.size(), .size = response.ByteSizeLong(), .choice = -1, .tokens = 0, .own = 0};
  if (response.has_started()) {
    drawn_ = Drawn{.seed = response.started().seed(), .build = response.started().build()};
    // A client of an answer that is computed anew has but one beginning.
    if (!entries_.empty()) return false;
  }
  if (response.has_delta()) {
    entry.choice = static_cast<int>(response.delta().choice());
    if (tokens_.size() <= static_cast<size_t>(entry.choice)) tokens_.resize(entry.choice + 1);
    entry.own = response.delta().tokens();
    entry.tokens = tokens_[entry.choice] += entry.own;
  }
  const size_t log = log_.capacity(), entries = entries_.capacity();
  log_.resize(entry.begin + entry.size);
  response.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(log_.data() + entry.begin));
  entries_.push_back(entry);
  return log_.capacity() != log || entries_.capacity() != entries;
}

v1::GenerateResponse HeldAnswer::Message(size_t index) const {
  v1::GenerateResponse message;
  const Entry& entry = entries_[index];
  BATON_CHECK(message.ParseFromArray(log_.data() + entry.begin, static_cast<int>(entry.size)));
  return message;
}

void HeldAnswer::ClearLog() {
  log_ = std::string();
  entries_ = {};
}

void HeldAnswer::Tell(const v1::GenerateResponse& response) {
  std::shared_ptr<AnswerCall> producer;
  {
    absl::MutexLock lock(&mutex_);
    progress_ = response;
    ++told_;
    producer = producer_;
  }
  PumpAll();
  producer->OnTaken();
}

void HeldAnswer::Write(const v1::GenerateResponse& response, bool) {
  if (response.has_progress()) return Tell(response);
  bool grew = false;
  {
    absl::MutexLock lock(&mutex_);
    grew = Append(response);
    untaken_ = true;
  }
  if (grew) all_.Update(*this);
  PumpAll();
  std::shared_ptr<AnswerCall> taken;
  {
    absl::MutexLock lock(&mutex_);
    if (untaken_ && state_ == State::kStopping) taken = producer_, untaken_ = false;
  }
  if (taken != nullptr) taken->OnTaken();
}

void HeldAnswer::LeaveBehind(Remains remains) {
  absl::MutexLock lock(&mutex_);
  remains_ = std::move(remains);
}

void HeldAnswer::Finish(const absl::Status& status, const v1::GenerateResponse* last,
                        const v1::RequestUsage* usage) {
  bool launch = false, gone = false;
  {
    absl::MutexLock lock(&mutex_);
    const bool unread = state_ == State::kStopping;
    producer_ = nullptr;
    untaken_ = false;
    for (const v1::GenerateResponse& one : remains_.unsent) Append(one);
    const bool whole =
        remains_.begun.has_value() && std::ranges::all_of(remains_.begun->choices, &Begun::Choice::done);
    for (const auto& reader : readers_) {
      if (std::exchange(reader->awaits_usage, false) && usage != nullptr) reader->usage = *usage;
    }
    if (status.ok() || whole) {
      state_ = State::kEnded;
      if (last != nullptr) Append(*last);
      if (usage != nullptr) usage_ = *usage;
      remains_ = {};
    } else {
      remains_.unsent.clear();
      // Clients whose own time is not over go on without the one whose call ended.
      const bool its_own =
          unread || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) || absl::IsAborted(status);
      const bool begun = remains_.begun.has_value() || remains_.charged != billing::TokenCounts{};
      const std::shared_ptr<Reader> heir = its_own && !dropped_ ? Heir() : nullptr;
      for (const auto& reader : readers_) {
        if (reader == heir || (heir != nullptr && !reader->left.has_value())) continue;
        if (!reader->left.has_value()) {
          reader->left =
              unread ? rpc::WithRequestId(NotHeld(), name_.id)
              : its_own && !reader->computes
                  ? rpc::WithRequestId(
                        absl::UnavailableError("the call that computed the answer has ended; retry"),
                        name_.id)
                  : status;
        }
        if (usage != nullptr) reader->usage = *usage;
      }
      if (heir != nullptr) {
        Appoint(heir);
        launch = true;
      } else if (begun && !dropped_) {
        state_ = State::kBroken;
      } else {
        state_ = State::kGone;
        gone = true;
      }
    }
  }
  if (gone) all_.Forget(*this);
  PumpAll();
  all_.Update(*this);
  if (launch) Launch();
}

void HeldAnswer::PumpAll() {
  Readers readers;
  {
    absl::MutexLock lock(&mutex_);
    readers = readers_;
  }
  for (const auto& reader : readers) Pump(reader);
}

void HeldAnswer::Remove(const std::shared_ptr<Reader>& reader) {
  std::erase(readers_, reader);
  reader->client = nullptr;
  reader->call = nullptr;
}

void HeldAnswer::Pump(const std::shared_ptr<Reader>& reader) {
  struct Step {
    std::shared_ptr<ClientStream> client;
    std::shared_ptr<AnswerCall> call, taken;  // taken: hears that its message was
    std::optional<bool> announce;             // waits
    std::optional<v1::GenerateResponse> message;
    std::optional<absl::Status> end;
    std::optional<v1::RequestUsage> usage;
    bool served = false;
  };
  {
    absl::MutexLock lock(&mutex_);
    if (reader->pumping) return;  // who pumps looks again before it stops
    reader->pumping = true;
  }
  while (true) {
    Step step;
    {
      absl::MutexLock lock(&mutex_);
      if (reader->client == nullptr || reader->writing) {
        reader->pumping = false;
        return;
      }
      step.client = reader->client;
      step.call = reader->call;
      if (reader->left.has_value()) {
        if (reader->awaits_usage) {
          reader->pumping = false;
          return;
        }
        step.end = reader->left;
        step.usage = reader->usage;
      } else if (state_ == State::kStopping) {
        // The rest, if there is one, and who computes it are known when the computation has ended.
        reader->pumping = false;
        return;
      } else {
        while (reader->next < entries_.size()) {
          const Entry& entry = entries_[reader->next];
          const size_t choice = static_cast<size_t>(std::max(entry.choice, 0));
          const uint32_t has = entry.choice < 0 || choice >= reader->after.size() ? 0 : reader->after[choice];
          if (entry.choice < 0 || has <= entry.tokens - entry.own) break;
          if (has < entry.tokens) {
            reader->left = rpc::WithRequestId(
                absl::InvalidArgumentError(
                    fmt::format("after_tokens[{}]: {} lies inside a delta, which ends behind {} tokens",
                                choice, has, entry.tokens)),
                name_.id);
            break;
          }
          ++reader->next;
        }
        if (reader->left.has_value()) continue;
        const bool ended = state_ == State::kEnded;
        const bool comes = reader->next < entries_.size();
        const bool tells = !reader->begun && !ended && reader->told != told_;
        if (!reader->announced && (comes || ended || tells || (admitted_ && waits_))) {
          reader->announced = true;
          step.announce = !(comes || ended) || tells;
        } else if (tells) {
          step.message = progress_;
          reader->told = told_;
          reader->telling = reader->writing = true;
        } else if (comes && !(ended && reader->next + 1 == entries_.size())) {
          step.message = Message(reader->next);
          reader->begun |= entries_[reader->next].choice >= 0;
          reader->writing = true;
        } else if (ended) {
          if (comes) step.message = Message(reader->next);
          step.end = absl::OkStatus();
          step.usage = usage_;
        } else {
          if (untaken_) {
            step.taken = producer_;
            untaken_ = false;
            if (dropped_ && readers_.size() == 1) {
              ClearLog();
              reader->next = 0;
            }
          }
          if (step.taken == nullptr) {
            reader->pumping = false;
            return;
          }
        }
      }
      if (step.end.has_value()) {
        step.served = !reader->computes;
        Remove(reader);
      }
    }
    if (step.announce.has_value()) step.client->Admitted(name_.id, *step.announce);
    if (step.taken != nullptr) step.taken->OnTaken();
    if (step.end.has_value()) {
      step.client->Finish(*step.end, step.message.has_value() ? &*step.message : nullptr,
                          step.usage.has_value() ? &*step.usage : nullptr);
      if (step.served) step.call->OnServed(*step.end);
      all_.Update(*this);
      return;
    }
    if (step.message.has_value()) {
      step.call->OnWriting();
      step.client->Write(*step.message, false);
    }
  }
}

void HeldAnswer::OnWritten(const std::shared_ptr<Reader>& reader, bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    reader->writing = false;
    if (!std::exchange(reader->telling, false) && ok) ++reader->next;
  }
  if (!ok) return Leave(reader, absl::CancelledError("the client went away"));
  Pump(reader);
}

void HeldAnswer::Leave(const std::shared_ptr<Reader>& reader, const absl::Status& status) {
  bool stop = false;
  {
    absl::MutexLock lock(&mutex_);
    if (reader->client != nullptr && !reader->left.has_value()) {
      reader->left = rpc::WithRequestId(status, name_.id);
      const bool last = std::ranges::all_of(readers_, [](const auto& one) { return one->left.has_value(); });
      if (last && state_ == State::kRunning) {
        state_ = State::kStopping;
        reader->awaits_usage = true;
        stop = true;
      }
    }
  }
  if (stop) {
    Stop();
  } else {
    Pump(reader);
  }
}

void HeldAnswer::BreakOff(const std::shared_ptr<Reader>& reader, const absl::Status& status) {
  std::shared_ptr<ClientStream> client;
  {
    absl::MutexLock lock(&mutex_);
    client = reader->client;
  }
  Leave(reader, status);
  if (client != nullptr) client->Abort(status);
}

void HeldAnswer::Stop() {
  std::shared_ptr<AnswerCall> producer, taken;
  {
    absl::MutexLock lock(&mutex_);
    if (untaken_) taken = producer_, untaken_ = false;
    if (!launching_) producer = producer_;
  }
  // First, so that the end of the computation does not wait for a client.
  if (producer != nullptr) producer->OnUnread();
  if (taken != nullptr) taken->OnTaken();
}

void HeldAnswer::Drop() {
  bool gone = false;
  {
    absl::MutexLock lock(&mutex_);
    dropped_ = true;
    remains_ = {};
    if (state_ != State::kRunning && state_ != State::kStopping && readers_.empty()) {
      state_ = State::kGone;
      ClearLog();
    }
    // The others would need what is no longer kept.
    const auto first =
        std::ranges::max_element(readers_, {}, [](const auto& reader) { return reader->next; });
    for (const auto& reader : readers_) {
      if (reader == *first || reader->left.has_value()) continue;
      reader->left = rpc::WithRequestId(NotHeld(), name_.id);
      gone = true;
    }
  }
  if (gone) PumpAll();
}

std::optional<HeldAnswer::Use> HeldAnswer::use() const {
  absl::MutexLock lock(&mutex_);
  if (dropped_ || state_ == State::kGone) return std::nullopt;
  return Use{.bytes = kAnswerBytes + name_.key.size() + log_.capacity() +
                      entries_.capacity() * sizeof(Entry) +
                      (remains_.begun.has_value() ? BytesOf(*remains_.begun) : 0),
             .idle = readers_.empty() && (state_ == State::kBroken || state_ == State::kEnded)};
}

}  // namespace baton::router
