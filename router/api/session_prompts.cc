#include "router/api/session_prompts.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "router/api/conversation.h"

namespace baton::router {
namespace {

uint64_t FirstBits(const kv::BlockHash& hash) {
  uint64_t bits;
  std::memcpy(&bits, hash.bytes().data(), sizeof(bits));
  return bits;
}

// A keyed hash of a text.
uint64_t Salted(const std::string& text, const kv::TenantSalt& salt) {
  return FirstBits(kv::RootHash(text, salt));
}

template <typename Message>
void AppendTo(std::string* text, const Message& message) {
  google::protobuf::io::StringOutputStream stream(text);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  coded.WriteVarint64(message.ByteSizeLong());
  message.SerializeToCodedStream(&coded);
}

}  // namespace

PromptSections SectionsOf(const std::string& model, const v1::Conversation* conversation,
                          const kv::TenantSalt& salt) {
  PromptSections sections{.model = Salted(model, salt)};
  if (conversation == nullptr) return sections;
  std::string tools, system;
  for (const v1::Tool& tool : conversation->tools()) {
    if (!tool.deferred()) AppendTo(&tools, tool);
  }
  AppendTo(&tools, conversation->template_arguments());
  sections.tools = Salted(tools, salt);
  for (const v1::Message& message : conversation->messages()) {
    if (!IsSystem(message)) break;
    // Marks and the borders of parts are no text.
    v1::Message plain;
    plain.set_role(message.role());
    plain.set_content(ContentOf(message));
    AppendTo(&system, plain);
  }
  sections.system = Salted(system, salt);
  return sections;
}

kv::BlockHash SessionKey(const std::string& session_id, const kv::TenantSalt& salt) {
  return kv::RootHash(session_id, salt);
}

std::vector<uint64_t> ShortHashes(std::span<const kv::BlockHash> chain) {
  std::vector<uint64_t> hashes;
  hashes.reserve(std::min(chain.size(), SessionPrompts::kMaxBlocks));
  for (const kv::BlockHash& hash : chain.first(std::min(chain.size(), SessionPrompts::kMaxBlocks))) {
    hashes.push_back(FirstBits(hash));
  }
  return hashes;
}

std::optional<v1::CacheMiss> MissOf(const SessionPrompt* last, const SessionPrompt& prompt,
                                    int64_t prompt_tokens, int64_t cached_tokens,
                                    const LastWorker& last_worker) {
  // The block of the last token is computed in any case.
  const int64_t reusable = std::max<int64_t>(0, prompt_tokens - 1) / kBlockTokens;
  const int64_t cached = cached_tokens / kBlockTokens;
  v1::CacheMiss::Reason reason = v1::CacheMiss::REASON_FIRST;
  int64_t blocks = reusable - cached;
  if (last != nullptr) {
    const int64_t expected = std::min<int64_t>(reusable, std::ssize(last->blocks));
    const int64_t common = std::min<int64_t>(
        expected, std::ranges::mismatch(last->blocks, prompt.blocks).in1 - last->blocks.begin());
    const int64_t lost = common - cached, changed = expected - std::max(common, cached);
    if (lost > 0 && lost >= changed) {
      blocks = lost;
      if (!last_worker.here) {
        reason = v1::CacheMiss::REASON_WORKER_LOST;
      } else if (prompt.worker != last->worker && last_worker.blocks > cached) {
        reason = v1::CacheMiss::REASON_PLACEMENT;
      } else {
        reason = v1::CacheMiss::REASON_EVICTED;
      }
    } else {
      blocks = changed;
      if (prompt.sections.model != last->sections.model) {
        reason = v1::CacheMiss::REASON_MODEL;
      } else if (prompt.sections.tools != last->sections.tools) {
        reason = v1::CacheMiss::REASON_TOOLS;
      } else if (prompt.sections.system != last->sections.system) {
        reason = v1::CacheMiss::REASON_SYSTEM;
      } else {
        reason = v1::CacheMiss::REASON_MESSAGES;
      }
    }
  }
  if (blocks < 1) return std::nullopt;
  v1::CacheMiss miss;
  miss.set_reason(reason);
  miss.set_tokens(static_cast<uint32_t>(blocks * kBlockTokens));
  return miss;
}

std::string MissReasonName(v1::CacheMiss::Reason reason) {
  const std::string name = v1::CacheMiss::Reason_Name(reason);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "REASON_"));
}

std::shared_ptr<const SessionPrompt> SessionPrompts::Find(const kv::BlockHash& session) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->prompt;
}

void SessionPrompts::Remember(const kv::BlockHash& session, SessionPrompt prompt) {
  auto shared = std::make_shared<const SessionPrompt>(std::move(prompt));
  absl::MutexLock lock(&mutex_);
  if (const auto found = by_session_.find(session); found != by_session_.end()) {
    bytes_ -= BytesOf(*found->second->prompt);
    entries_.erase(found->second);
    by_session_.erase(found);
  }
  bytes_ += BytesOf(*shared);
  entries_.push_front({session, std::move(shared)});
  by_session_[session] = entries_.begin();
  while (entries_.size() > limits_.sessions || bytes_ > limits_.bytes) {
    bytes_ -= BytesOf(*entries_.back().prompt);
    by_session_.erase(entries_.back().session);
    entries_.pop_back();
  }
}

size_t SessionPrompts::BytesOf(const SessionPrompt& prompt) {
  constexpr size_t kOverhead = 192;  // of a list's and a map's entry, and of a shared object
  return kOverhead + sizeof(prompt) + prompt.blocks.capacity() * sizeof(uint64_t);
}

size_t SessionPrompts::size() const {
  absl::MutexLock lock(&mutex_);
  return entries_.size();
}

size_t SessionPrompts::bytes() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace baton::router
