#include "lab/simulate/decode_worker.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "common/base/ids.h"
#include "engine/chunk_planner.h"

namespace baton::lab::simulate {

DecodeWorker::DecodeWorker(const FleetModel& model, Setup setup, Events& events)
    : model_(model),
      setup_(std::move(setup)),
      events_(events),
      pool_(model.decode_blocks),
      disk_(model, model.disk_blocks(), events, pool_),
      variation_(model, setup_.seed) {}

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
  const Request& request = *record.request;
  const auto reused = [&](int64_t blocks) {
    return std::min(blocks * model_.block_tokens, request.prompt_tokens - 1);
  };
  record.cached_tokens = reused(record.decode_matched);
  const auto begin = [this, &record] {
    local_.push_back({&record, record.cached_tokens});
    if (!busy_) Begin();
  };
  // Reads the blocks that only its disk has, if the router counted on them.
  const int64_t there = disk_.Match(request.chain);
  if (there <= record.decode_matched || record.selection.cached_tokens <= record.cached_tokens)
    return begin();
  const auto blocks = std::span(request.chain).first(there).subspan(record.decode_matched);
  record.loaded_tokens = reused(there) - record.cached_tokens;
  record.cached_tokens = reused(there);
  events_.At(disk_.Read(blocks), begin);
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
  Enter(record);
}

void DecodeWorker::Enter(RequestRecord& record) {
  if (record.request->output_tokens <= 1) {
    End(record);
    return;
  }
  record.totals = totals_;
  joining_.push_back(&record);
  if (!busy_) Begin();
}

int64_t DecodeWorker::AnswersInTime() const {
  return forecast::AnswersInTime(setup_.slo_tpot, model_.decode_concurrency, [this](int64_t answers) {
    return model_.StepSeconds(answers, static_cast<int64_t>(mean_context_ * static_cast<double>(answers)));
  });
}

double DecodeWorker::PlanLocal(int64_t batch, double seconds) {
  // As the real worker's step planner sets them.
  engine::ChunkLimits limits = {
      .chunk_tokens = model_.local_chunk_tokens,
      .token_budget = std::max<int64_t>(model_.local_token_budget - batch, kBlockTokens)};
  if (batch > 0) limits.seconds = setup_.slo_tpot - seconds;
  engine::ChunkPlanner chunks(limits, {.token = model_.prefill_token, .pair = model_.prefill_pair});
  double added = 0;
  for (Local& local : local_) {
    local.rows = chunks.Take(local.done, local.record->request->prompt_tokens - local.done);
    if (local.rows == 0) break;
    if (local.record->began < 0) {
      local.record->began = events_.now();
      added += model_.prefill_base;
    }
    added += model_.PrefillSeconds(local.rows, local.done) - model_.prefill_base;
  }
  return added;
}

void DecodeWorker::Begin() {
  for (RequestRecord* record : joining_) {
    running_.push({steps_ + record->request->output_tokens - 1, ++joined_, record});
    context_ += record->request->prompt_tokens + 1;
  }
  joining_.clear();
  if (running_.empty() && local_.empty()) return;
  const int64_t batch = static_cast<int64_t>(running_.size());
  const double seconds = batch > 0 ? model_.StepSeconds(batch, context_) : 0;
  busy_ = true;
  if (batch > 0) mean_context_ = static_cast<double>(context_) / static_cast<double>(batch);
  const double local = PlanLocal(batch, seconds);
  const double taken = variation_.Taken(seconds + local);
  if (batch > 0 && local == 0) totals_.Add(taken, batch, context_);
  events_.In(taken, [this] { EndStep(); });
}

// A listener that is told of an end may come back with more work: until the last line the worker counts as
// busy.
void DecodeWorker::EndStep() {
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
  std::vector<RequestRecord*> prefilled;
  for (Local& local : local_) {
    local.done += std::exchange(local.rows, 0);
    if (local.done >= local.record->request->prompt_tokens) prefilled.push_back(local.record);
  }
  std::erase_if(local_,
                [](const Local& local) { return local.done >= local.record->request->prompt_tokens; });
  for (RequestRecord* record : prefilled) {
    Publish(*record);
    setup_.prefilled(*record);
    Enter(*record);
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

}  // namespace baton::lab::simulate
