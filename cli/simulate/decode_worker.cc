#include "cli/simulate/decode_worker.h"

#include <algorithm>
#include <span>

#include "common/base/check.h"
#include "common/base/ids.h"

namespace baton::cli::simulate {

DecodeWorker::DecodeWorker(const FleetModel& model, Setup setup, Events& events)
    : model_(model), setup_(std::move(setup)), events_(events), pool_(model.decode_blocks) {}

int64_t DecodeWorker::BlocksFor(const Request& request) const {
  return (request.prompt_tokens + request.output_tokens + model_.block_tokens - 1) / model_.block_tokens;
}

void DecodeWorker::Reserve(RequestRecord& record) {
  const Request& request = *record.request;
  record.decode_blocks = pool_.AcquirePrefix(request.chain);
  record.decode_matched = std::ssize(record.decode_blocks);
  auto rest = pool_.Allocate(BlocksFor(request) - record.decode_matched);
  BATON_CHECK(rest.ok()) << std::string(rest.status().message());
  record.decode_blocks.insert(record.decode_blocks.end(), rest->begin(), rest->end());
}

int64_t DecodeWorker::waiting_local_tokens() const {
  int64_t tokens = 0;
  for (const Local& local : local_) tokens += local.record->request->prompt_tokens - local.done;
  return tokens;
}

void DecodeWorker::PrefillLocally(RequestRecord& record) {
  const int64_t cached =
      std::min(record.decode_matched * model_.block_tokens, record.request->prompt_tokens - 1);
  record.cached_tokens = cached;
  local_.push_back({&record, cached});
  if (!busy_) Begin();
}

// The prompt's KV is here: from now on others can use it.
void DecodeWorker::Publish(RequestRecord& record) {
  if (!model_.decode_cache) return;
  const auto& chain = record.request->chain;
  for (size_t i = record.decode_matched; i < chain.size(); ++i) {
    const BlockId published = pool_.Publish(record.decode_blocks[i], chain[i]);
    if (published == record.decode_blocks[i]) continue;
    // Another prompt brought the same block meanwhile: one copy is enough.
    pool_.Retain(published);
    pool_.Release(std::span(&record.decode_blocks[i], 1));
    record.decode_blocks[i] = published;
  }
}

void DecodeWorker::Join(RequestRecord& record) {
  Publish(record);
  if (record.request->output_tokens <= 1) {
    End(record);
    return;
  }
  joining_.push_back(&record);
  if (!busy_) Begin();
}

void DecodeWorker::Begin() {
  for (RequestRecord* record : joining_) {
    running_.push({steps_ + record->request->output_tokens - 1, ++joined_, record});
    context_ += record->request->prompt_tokens + 1;
  }
  joining_.clear();
  if (running_.empty() && local_.empty()) return;
  const int64_t batch = static_cast<int64_t>(running_.size());
  double seconds = batch > 0 ? model_.StepSeconds(batch, context_) : 0;
  if (batch > 0 && local_.empty()) setup_.stepped(seconds, batch, context_);
  int64_t rows = 0;
  if (!local_.empty()) {
    Local& local = local_.front();
    const int64_t left = local.record->request->prompt_tokens - local.done;
    rows = std::min(left, model_.local_chunk_tokens);
    if (batch > 0) {  // as the real one's scheduler cuts it
      const int64_t within = forecast::RowsWithin(setup_.slo_tpot - seconds, model_.prefill_token,
                                                  model_.prefill_pair, local.done);
      rows = std::min(rows, std::max<int64_t>(within, kBlockTokens));
    }
    if (local.record->began < 0) {
      local.record->began = events_.now();
      seconds += model_.prefill_base;
    }
    seconds += model_.PrefillSeconds(rows, local.done) - model_.prefill_base;
  }
  busy_ = true;
  events_.In(seconds, [this, rows] { EndStep(rows); });
}

// A listener that is told of an end may come back with more work: until the last line the worker counts as
// busy.
void DecodeWorker::EndStep(int64_t local_rows) {
  if (!running_.empty()) {
    ++steps_;
    context_ += static_cast<int64_t>(running_.size());
    while (!running_.empty() && running_.top().ends_at_step <= steps_) {
      RequestRecord& record = *running_.top().record;
      running_.pop();
      context_ -= record.request->prompt_tokens + record.request->output_tokens;
      End(record);
    }
  }
  if (local_rows > 0) {
    Local& local = local_.front();
    local.done += local_rows;
    if (local.done >= local.record->request->prompt_tokens) {
      RequestRecord& record = *local.record;
      local_.pop_front();
      setup_.prefilled(record);
      Join(record);
    }
  }
  busy_ = false;
  Begin();
}

void DecodeWorker::End(RequestRecord& record) {
  record.end = events_.now();
  pool_.Release(record.decode_blocks);
  record.decode_blocks.clear();
  setup_.finished(record);
}

}  // namespace baton::cli::simulate
