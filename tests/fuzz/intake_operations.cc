#include "tests/fuzz/intake_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/digest.h"
#include "engine/kv/store/kv_store.h"
#include "transfer/host_link.h"
#include "transfer/intake.h"

namespace baton::transfer {
namespace {

constexpr int kLayers = 3;
const kv::KvLayout kLayout = {.layers = kLayers, .kv_heads = 1, .head_dim = 4};
constexpr int kPool = 6;
constexpr int kFirst = 1;
constexpr int kCovered = 3;

// Ends writes when it is told to.
class HeldReceiver final : public LinkReceiver {
 public:
  std::string_view name() const override { return "held"; }
  void Receive(const fleet::v1::KvChunk& chunk, std::string_view, Pieces pieces, Done done) override {
    if (!hold) {
      host_.Receive(chunk, "", pieces, std::move(done));
      return;
    }
    waiting_.push_back([this, &chunk, pieces, done = std::move(done)]() mutable {
      host_.Receive(chunk, "", pieces, std::move(done));
    });
  }
  bool EndOne() {
    if (waiting_.empty()) return false;
    auto write = std::move(waiting_.front());
    waiting_.pop_front();
    write();
    return true;
  }
  bool hold = false;

 private:
  HostLinkReceiver host_;
  std::deque<absl::AnyInvocable<void()>> waiting_;
};

class Interpreter {
 public:
  explicit Interpreter(std::span<const uint8_t> bytes)
      : bytes_(bytes),
        store_(kv::KvStore::Create(kLayout, kPool).value()),
        intake_(
            protocol::Ticket{
                Incarnation(7), TicketId(5), kFirst, {Generation(3), Generation(4), Generation(9)}},
            kTable, store_, link_) {
    for (int block = 0; block < kPool; ++block) {
      for (int layer = 0; layer < kLayers; ++layer) Fill(block, layer, 0);
    }
  }
  ~Interpreter() {
    while (link_.EndOne()) {
    }
  }

  absl::StatusOr<int64_t> Run() {
    int64_t done = 0;
    for (; !bytes_.empty(); ++done) {
      const std::string wrong = Do(Next() % 16);
      if (!wrong.empty()) return absl::InternalError(fmt::format("operation {}: {}", done, wrong));
    }
    return done;
  }

 private:
  uint8_t Next() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  // Rarely true.
  bool Rarely() { return Next() % 16 == 1; }

  void Fill(int block, int layer, int value) {
    std::ranges::fill(store_.layers(BlockId(block), layer, 1), static_cast<std::byte>(value));
  }

  std::string Do(int operation) {
    if (operation == 0) {
      if (intake_.state() == Intake::State::kReserved) intake_.Request();
      requested_ |= intake_.state() == Intake::State::kRequested;
    } else if (operation == 1) {
      link_.hold = !link_.hold;
    } else if (operation == 2) {
      link_.EndOne();
    } else if (operation == 3 && Rarely()) {
      intake_.Release();
      released_ = true;
    } else if (operation == 4) {
      return SendBytes();
    } else {
      return SendChunk();
    }
    return Compare();
  }

  // Any bytes that parse: whatever they say, nothing changes but by an accepted chunk.
  std::string SendBytes() {
    const size_t wanted = Next();
    const size_t size = std::min(wanted, bytes_.size());
    auto sent = std::make_shared<fleet::v1::KvChunk>();
    const bool parses = sent->ParseFromArray(bytes_.data(), static_cast<int>(size));
    bytes_ = bytes_.subspan(size);
    return parses ? Deliver(std::move(sent)) : "";
  }

  std::string SendChunk() {
    auto sent = std::make_shared<fleet::v1::KvChunk>();
    fleet::v1::KvChunk& chunk = *sent;
    chunk.set_incarnation(Rarely() ? 8 : 7);
    chunk.set_ticket_id(Rarely() ? 6 : 5);
    const int first = Rarely() ? Next() % 8 : kFirst + Next() % kCovered;
    const int count = 1 + (Rarely() ? Next() % 5 : Next() % std::max(1, kFirst + kCovered - first));
    chunk.set_first_block(first);
    for (int i = 0; i < count; ++i) {
      const int at = first - kFirst + i;
      const uint32_t right = at >= 0 && at < kCovered ? kGenerations[at] : 1;
      chunk.add_generations(right + (Rarely() ? 1 : 0));
    }
    chunk.set_first_layer(Next() % kLayers);
    chunk.set_layers(Rarely() ? Next() : 1 + Next() % (kLayers - chunk.first_layer()));
    const size_t size = count * std::min<size_t>(chunk.layers(), 8) * kLayout.layer(0).bytes();
    chunk.set_data(std::string(size, static_cast<char>(1 + Next() % 250)));
    chunk.set_crc32c(Crc32c(chunk.data()));
    if (Rarely() && !chunk.data().empty()) (*chunk.mutable_data())[Next() % chunk.data().size()] ^= 1;
    if (Rarely()) chunk.mutable_data()->resize(chunk.data().size() / 2);
    return Deliver(std::move(sent));
  }

  // True if the ticket covers the chunk, by a second, plain implementation.
  bool Covered(const fleet::v1::KvChunk& chunk) const {
    if (!requested_ || released_) return false;
    if (chunk.incarnation() != 7 || chunk.ticket_id() != 5) return false;
    if (chunk.generations().empty() || chunk.layers() == 0) return false;
    for (int i = 0; i < chunk.generations_size(); ++i) {
      const int64_t block = int64_t{chunk.first_block()} + i - kFirst;
      if (block < 0 || block >= kCovered || chunk.generations(i) != kGenerations[block]) return false;
      for (uint64_t layer = chunk.first_layer(); layer < uint64_t{chunk.first_layer()} + chunk.layers();
           ++layer) {
        if (layer >= uint64_t{kLayers} || begun_[block][layer]) return false;
      }
    }
    return true;
  }

  std::string Deliver(std::shared_ptr<const fleet::v1::KvChunk> sent) {
    const bool covered = Covered(*sent);
    if (covered) {
      ForEach(*sent, [this](int block, int layer, size_t) { begun_[block][layer] = true; });
    }
    intake_.Accept(*sent,
                   [this, sent, covered](const absl::Status& status) { Answered(*sent, covered, status); });
    return Compare();
  }

  void Answered(const fleet::v1::KvChunk& chunk, bool covered, const absl::Status& status) {
    const size_t size = chunk.generations_size() * chunk.layers() * kLayout.layer(0).bytes();
    const bool whole = chunk.data().size() == size && Crc32c(chunk.data()) == chunk.crc32c();
    if (status.ok() && (!covered || !whole || released_)) wrong_ = "a chunk was taken that should not be";
    if (!status.ok() && covered && whole && !released_) wrong_ = "refused: " + status.ToString();
    if (!covered || !whole) return;
    ForEach(chunk, [&](int block, int layer, size_t at) {
      // Bytes of a write that ended after the release change too, and count for nothing.
      expected_[kTable[kFirst + block].value()][layer] = static_cast<uint8_t>(chunk.data()[at]);
      counted_[block][layer] |= status.ok();
    });
  }

  template <typename Use>
  static void ForEach(const fleet::v1::KvChunk& chunk, Use use) {
    size_t at = 0;
    for (int i = 0; i < chunk.generations_size(); ++i) {
      const int block = static_cast<int>(chunk.first_block()) + i - kFirst;
      for (uint32_t layer = chunk.first_layer(); layer < chunk.first_layer() + chunk.layers(); ++layer) {
        use(block, static_cast<int>(layer), at);
        at += kLayout.layer(0).bytes();
      }
    }
  }

  std::string Compare() {
    if (!wrong_.empty()) return wrong_;
    for (int block = 0; block < kPool; ++block) {
      for (int layer = 0; layer < kLayers; ++layer) {
        const auto bytes = store_.layers(BlockId(block), layer, 1);
        // Chunks differ in their first byte, and a whole one is that byte throughout, raw ones excepted.
        if (static_cast<uint8_t>(bytes[0]) != expected_[block][layer]) {
          return fmt::format("layer {} of block {} is {}, expected {}", layer, block,
                             static_cast<int>(bytes[0]), expected_[block][layer]);
        }
      }
    }
    int64_t committed = 0;
    while (committed < kCovered && std::ranges::all_of(counted_[committed], [](bool done) { return done; })) {
      ++committed;
    }
    if (intake_.committed_blocks() != kFirst + committed) {
      return fmt::format("{} blocks are committed, expected {}", intake_.committed_blocks(),
                         kFirst + committed);
    }
    if ((intake_.state() == Intake::State::kCommitted) != (!released_ && committed == kCovered)) {
      return "the state is wrong";
    }
    return "";
  }

  static inline const std::vector<BlockId> kTable = {BlockId(0), BlockId(4), BlockId(2), BlockId(5)};
  static constexpr uint32_t kGenerations[kCovered] = {3, 4, 9};
  std::span<const uint8_t> bytes_;
  HeldReceiver link_;
  kv::KvStore store_;
  Intake intake_;
  bool requested_ = false, released_ = false;
  std::string wrong_;
  bool begun_[kCovered][kLayers] = {};
  bool counted_[kCovered][kLayers] = {};
  uint8_t expected_[kPool][kLayers] = {};
};

}  // namespace

absl::StatusOr<int64_t> RunIntakeOperations(std::span<const uint8_t> bytes) {
  return Interpreter(bytes).Run();
}

}  // namespace baton::transfer
