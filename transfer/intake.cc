#include "transfer/intake.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"

namespace baton::transfer {

Intake::Intake(protocol::Ticket ticket, std::span<const BlockId> blocks, kv::KvStore& store,
               LinkReceiver& link)
    : ticket_(std::move(ticket)), store_(&store), link_(&link) {
  BATON_CHECK(static_cast<int64_t>(blocks.size()) >= ticket_.first_block + ticket_.blocks());
  const auto covered = blocks.subspan(ticket_.first_block, ticket_.blocks());
  blocks_.assign(covered.begin(), covered.end());
  begun_.resize(blocks_.size() * store_->layout().layers);
  layers_received_.resize(blocks_.size());
}

Intake::~Intake() { BATON_CHECK(writes_ == 0) << "a link still writes for ticket " << ticket_.id.value(); }

void Intake::Request(std::string from) {
  BATON_CHECK(state_ == State::kReserved);
  state_ = State::kRequested;
  from_ = std::move(from);
}

absl::Status Intake::Check(const fleet::v1::KvChunk& chunk) const {
  if (state_ != State::kRequested && state_ != State::kReceiving) {
    return absl::FailedPreconditionError(
        fmt::format("ticket {} expects no more blocks: late write refused", ticket_.id.value()));
  }
  if (chunk.incarnation() != ticket_.incarnation.value() || chunk.ticket_id() != ticket_.id.value()) {
    return absl::FailedPreconditionError(fmt::format(
        "chunk for ticket {} of incarnation {:x} on ticket {} of incarnation {:x}: late write refused",
        chunk.ticket_id(), chunk.incarnation(), ticket_.id.value(), ticket_.incarnation.value()));
  }
  const int64_t first = int64_t{chunk.first_block()} - ticket_.first_block;
  const int64_t count = chunk.generations_size();
  if (first < 0 || count < 1 || first + count > ticket_.blocks()) {
    return absl::InvalidArgumentError(fmt::format("chunk covers blocks [{}, {}), ticket {} covers [{}, {})",
                                                  chunk.first_block(), chunk.first_block() + count,
                                                  ticket_.id.value(), ticket_.first_block,
                                                  ticket_.first_block + ticket_.blocks()));
  }
  const int64_t layers = store_->layout().layers;
  if (chunk.layers() < 1 || int64_t{chunk.first_layer()} + chunk.layers() > layers) {
    return absl::InvalidArgumentError(fmt::format("chunk covers layers [{}, {}) of a model with {}",
                                                  chunk.first_layer(),
                                                  int64_t{chunk.first_layer()} + chunk.layers(), layers));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (chunk.generations(i) != ticket_.generations[first + i].value()) {
      return absl::FailedPreconditionError(
          fmt::format("block {} is of generation {}, the chunk names {}: late write refused",
                      chunk.first_block() + i, ticket_.generations[first + i].value(), chunk.generations(i)));
    }
    for (uint32_t layer = chunk.first_layer(); layer < chunk.first_layer() + chunk.layers(); ++layer) {
      if (begun_[(first + i) * layers + layer] != 0) {
        return absl::InvalidArgumentError(
            fmt::format("layer {} of block {} was sent twice", layer, chunk.first_block() + i));
      }
    }
  }
  return absl::OkStatus();
}

void Intake::Accept(const fleet::v1::KvChunk& chunk, absl::AnyInvocable<void(absl::Status)> done) {
  if (absl::Status status = Check(chunk); !status.ok()) {
    done(std::move(status));
    return;
  }
  state_ = State::kReceiving;
  const int64_t first = int64_t{chunk.first_block()} - ticket_.first_block;
  for (int64_t block = first; block < first + chunk.generations_size(); ++block) {
    for (uint32_t layer = chunk.first_layer(); layer < chunk.first_layer() + chunk.layers(); ++layer) {
      begun_[block * store_->layout().layers + layer] = 1;
    }
  }
  // Lives until the write is over.
  auto pieces = std::make_shared<std::vector<std::span<std::byte>>>();
  for (int i = 0; i < chunk.generations_size(); ++i) {
    const BlockId block = blocks_[chunk.first_block() - ticket_.first_block + i];
    store_->AppendPieces(block, static_cast<int>(chunk.first_layer()), static_cast<int>(chunk.layers()),
                         *pieces);
  }
  ++writes_;
  link_->Receive(chunk, from_, *pieces,
                 [this, &chunk, pieces, done = std::move(done)](absl::Status status) mutable {
                   --writes_;
                   if (state_ == State::kReleased) {
                     done(absl::CancelledError("the hand-off was given up while the chunk was written"));
                     return;
                   }
                   if (status.ok()) Commit(chunk);
                   done(std::move(status));
                 });
}

void Intake::Commit(const fleet::v1::KvChunk& chunk) {
  const int layers = store_->layout().layers;
  const int64_t first = int64_t{chunk.first_block()} - ticket_.first_block;
  for (int64_t block = first; block < first + chunk.generations_size(); ++block) {
    layers_received_[block] += static_cast<int>(chunk.layers());
  }
  received_bytes_ +=
      int64_t{chunk.generations_size()} *
      store_->layout().layers_bytes(static_cast<int>(chunk.first_layer()), static_cast<int>(chunk.layers()));
  while (committed_ < ticket_.blocks() && layers_received_[committed_] == layers) ++committed_;
  if (committed_ == ticket_.blocks()) state_ = State::kCommitted;
}

void Intake::Release() { state_ = State::kReleased; }

}  // namespace baton::transfer
