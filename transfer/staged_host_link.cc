#include "transfer/staged_host_link.h"

#include <string>
#include <utility>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "transfer/host_link.h"

namespace baton::transfer {

absl::StatusOr<std::unique_ptr<StagedHostLinkSender>> StagedHostLinkSender::Create(
    device::Memory& memory, int64_t staging_bytes, std::function<void()> wake) {
  auto sender =
      std::unique_ptr<StagedHostLinkSender>(new StagedHostLinkSender(memory, staging_bytes, std::move(wake)));
  BATON_ASSIGN_OR_RETURN(sender->outbound_, memory.MakeOutbound(staging_bytes));
  sender->thread_ = std::thread([sender = sender.get()] { sender->Run(); });
  return sender;
}

StagedHostLinkSender::~StagedHostLinkSender() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

absl::Status StagedHostLinkSender::Ship(ConstPieces pieces, fleet::v1::KvChunk& chunk) {
  std::vector<device::Outbound::Piece> gathered;
  gathered.reserve(pieces.size());
  int64_t at = 0;
  for (const auto piece : pieces) {
    gathered.push_back({piece.data(), at, static_cast<int64_t>(piece.size())});
    at += static_cast<int64_t>(piece.size());
  }
  const uint64_t number = outbound_->Gather(memory_.announced(), gathered);
  absl::MutexLock lock(&mutex_);
  bytes_ += at;
  tasks_.push_back({.number = number, .bytes = static_cast<size_t>(at), .chunk = &chunk});
  return absl::OkStatus();
}

void StagedHostLinkSender::WhenReady(absl::AnyInvocable<void()> then) {
  absl::MutexLock lock(&mutex_);
  tasks_.push_back({.then = std::move(then)});
}

bool StagedHostLinkSender::congested() const {
  absl::MutexLock lock(&mutex_);
  return bytes_ > most_;
}

void StagedHostLinkSender::Flush(absl::Duration max) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(this, &StagedHostLinkSender::idle), max);
}

void StagedHostLinkSender::Run() {
  while (true) {
    Task* task = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &StagedHostLinkSender::has_news));
      if (tasks_.empty()) return;
      task = &tasks_.front();  // a deque's elements stay where they are when others are added
    }
    if (task->chunk != nullptr) {
      std::string data(task->bytes, '\0');
      outbound_->Take(task->number, reinterpret_cast<std::byte*>(data.data()));
      task->chunk->set_crc32c(Crc32c(data));
      task->chunk->set_data(std::move(data));
    } else {
      task->then();
    }
    bool relieved = false;
    {
      absl::MutexLock lock(&mutex_);
      const bool was_congested = bytes_ > most_;
      bytes_ -= static_cast<int64_t>(task->bytes);
      relieved = was_congested && bytes_ <= most_;
      tasks_.pop_front();
    }
    if (relieved) wake_();
  }
}

StagedHostLinkReceiver::StagedHostLinkReceiver(device::Memory& memory, Post post)
    : memory_(memory), post_(std::move(post)), thread_([this] { Run(); }) {}

void StagedHostLinkReceiver::Receive(const fleet::v1::KvChunk& chunk, std::string_view /*from*/,
                                     Pieces pieces, Done done) {
  Arrival arrival{.chunk = &chunk, .done = std::move(done)};
  arrival.pieces.reserve(pieces.size());
  int64_t at = 0;
  for (const auto piece : pieces) {
    arrival.pieces.push_back({piece.data(), at, static_cast<int64_t>(piece.size())});
    at += static_cast<int64_t>(piece.size());
  }
  if (absl::Status size = CheckPayloadSize(chunk, static_cast<size_t>(at)); !size.ok()) {
    arrival.done(size);
    return;
  }
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &StagedHostLinkReceiver::has_room));
  bytes_ += static_cast<size_t>(at);
  arrivals_.push_back(std::move(arrival));
}

void StagedHostLinkReceiver::Run() {
  while (true) {
    Arrival* arrival = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &StagedHostLinkReceiver::has_news));
      if (arrivals_.empty()) return;
      arrival = &arrivals_.front();
    }
    const std::string& data = arrival->chunk->data();
    arrival->status = CheckPayloadSum(*arrival->chunk);
    if (arrival->status.ok()) {
      arrival->status =
          memory_.UploadPieces(reinterpret_cast<const std::byte*>(data.data()), arrival->pieces);
    }
    {
      absl::MutexLock lock(&mutex_);
      bytes_ -= data.size();
      written_.push_back(std::move(*arrival));
      arrivals_.pop_front();
    }
    (void)post_([this] { Tell(); });  // false: Close tells
  }
}

void StagedHostLinkReceiver::Tell() {
  std::deque<Arrival> written;
  {
    absl::MutexLock lock(&mutex_);
    written.swap(written_);
  }
  for (Arrival& arrival : written) arrival.done(std::move(arrival.status));
}

void StagedHostLinkReceiver::Close() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  Tell();
}

}  // namespace baton::transfer
