#include "tests/fuzz/scripted_prefill.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/digest.h"

namespace baton::fuzz {

class ScriptedPrefill::Handle final : public decode_service::PrefillCall {
 public:
  Handle(ScriptedPrefill* client, std::shared_ptr<LiveCall> call) : client_(client), call_(std::move(call)) {}
  ~Handle() override {
    if (call_->next > 0 && call_->events[call_->next - 1].has_chunk()) {
      client_->late_ = call_->events[call_->next - 1];
    }
    client_->calls_.remove(call_);
  }
  void Next() override { call_->wanted = true; }

 private:
  ScriptedPrefill* const client_;
  const std::shared_ptr<LiveCall> call_;
};

std::unique_ptr<decode_service::PrefillCall> ScriptedPrefill::Call(const std::string&,
                                                                   fleet::v1::PrefillRequest request,
                                                                   absl::Time, const telemetry::TraceContext&,
                                                                   Callbacks callbacks) {
  auto call = std::make_shared<LiveCall>();
  call->callbacks = std::move(callbacks);
  std::vector<TokenId> tokens;
  for (int32_t token : request.token_ids()) tokens.emplace_back(token);
  const SoloAnswers::Prefilled& prefilled = TheSoloAnswers().Prefill(tokens);
  const fleet::v1::Ticket& ticket = request.ticket();
  call->events.emplace_back().mutable_progress()->set_state(fleet::v1::PrefillProgress::STATE_COMPUTING);
  const int run = 1 + draw_() % 3;
  const auto layers = static_cast<int>(prefilled.layers.front().size());
  for (int first = 0; first < ticket.generations_size(); first += run) {
    for (int layer = 0; layer < layers; ++layer) {
      fleet::v1::KvChunk& chunk = *call->events.emplace_back().mutable_chunk();
      chunk.set_incarnation(ticket.incarnation());
      chunk.set_ticket_id(ticket.id());
      chunk.set_first_block(ticket.first_block() + first);
      chunk.set_first_layer(layer);
      chunk.set_layers(1);
      for (int i = first; i < std::min(first + run, ticket.generations_size()); ++i) {
        chunk.add_generations(ticket.generations(i));
        chunk.mutable_data()->append(prefilled.layers[ticket.first_block() + i][layer]);
      }
      chunk.set_crc32c(Crc32c(chunk.data()));
    }
  }
  // Logits may come before the last chunks.
  const size_t at = call->events.size() - draw_() % call->events.size();
  fleet::v1::PrefillDone& done = *call->events.emplace(call->events.begin() + at)->mutable_done();
  done.set_logits(prefilled.logits.data(), prefilled.logits.size() * sizeof(float));
  done.set_logits_crc32c(Crc32c(done.logits()));
  calls_.push_back(call);
  return std::make_unique<Handle>(this, call);
}

std::shared_ptr<ScriptedPrefill::LiveCall> ScriptedPrefill::At(size_t which) {
  return calls_.empty() ? nullptr : *std::next(calls_.begin(), which % calls_.size());
}

void ScriptedPrefill::Deliver(size_t which) {
  const auto call = At(which);
  if (call == nullptr) return;
  if (call->next == call->events.size()) return End(which, absl::OkStatus());
  if (!call->wanted) return;
  call->wanted = false;
  const fleet::v1::PrefillEvent event = call->events[call->next++];
  call->callbacks.event(event);
}

void ScriptedPrefill::DeliverDamaged(size_t which, uint8_t how) {
  const auto call = At(which);
  if (call == nullptr || !call->wanted || call->next == call->events.size()) return;
  fleet::v1::PrefillEvent event = call->events[call->next];
  fleet::v1::KvChunk* chunk = event.has_chunk() ? event.mutable_chunk() : nullptr;
  const size_t at = how / 8;
  switch (how % 8) {
    case 0:
      if (chunk == nullptr) return;
      (*chunk->mutable_data())[at % chunk->data().size()] ^= 16;
      break;
    case 1:
      if (chunk == nullptr) return;
      chunk->set_generations(0, chunk->generations(0) + 1);
      break;
    case 2:
      if (chunk == nullptr) return;
      chunk->set_ticket_id(chunk->ticket_id() + 1);
      break;
    case 3:
      if (chunk == nullptr) return;
      chunk->mutable_data()->pop_back();
      break;
    case 4:
      if (chunk == nullptr) return;
      chunk->set_first_layer(chunk->first_layer() + 2);
      break;
    case 5:
      if (call->next == 0) return;
      event = call->events[call->next - 1];  // once more
      break;
    case 6:
      if (!late_.has_value()) return;
      event = *late_;
      break;
    default:
      event.Clear();
      if (at % 2 == 1) event.mutable_done()->set_logits("not as many as the vocabulary");
  }
  call->wanted = false;
  call->callbacks.event(event);
}

void ScriptedPrefill::End(size_t which, absl::Status status) {
  const auto call = At(which);
  if (call == nullptr) return;
  calls_.remove(call);  // nothing comes after its end
  call->callbacks.done(std::move(status));
}

void HeldReceiver::Receive(const fleet::v1::KvChunk& chunk, std::string_view, transfer::Pieces pieces,
                           Done done) {
  if (!hold) return host_.Receive(chunk, "", pieces, std::move(done));
  Write write{&chunk, pieces, std::move(done), {}};
  for (const auto& piece : pieces) {
    const BlockId block((piece.data() - store_.block(BlockId(0))) / store_.layout().block_bytes());
    write.blocks.emplace_back(block, pool_.generation(block));
  }
  writes_.push_back(std::move(write));
}

bool HeldReceiver::EndOne() {
  if (writes_.empty()) return true;
  Write write = std::move(writes_.front());
  writes_.pop_front();
  const bool held = std::ranges::all_of(write.blocks, [this](const auto& block) {
    return pool_.references(block.first) > 0 && pool_.generation(block.first) == block.second;
  });
  host_.Receive(*write.chunk, "", write.pieces, std::move(write.done));
  return held;
}

}  // namespace baton::fuzz
