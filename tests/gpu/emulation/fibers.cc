#include "tests/gpu/emulation/fibers.h"

#include <cstring>
#include <memory>
#include <vector>

#include "common/base/check.h"

namespace emulation {
namespace {

// Saves what a function must keep, and goes on where the other fiber left off. swapcontext would do, but asks
// the kernel for the signal mask each time.
extern "C" void EmulationSwitch(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
  .text
  .globl EmulationSwitch
EmulationSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#else
#error "the emulation of device code switches stacks on x86-64 only"
#endif

constexpr size_t kStackBytes = 256 << 10;

struct Meeting {
  int size = 0;
  int arrived = 0;
  uint64_t round = 0;
  std::vector<void*> arguments;
};

struct Fiber {
  Lane lane;
  void* stack_pointer = nullptr;
  std::unique_ptr<char[]> stack;
  bool done = false;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Meeting> warps, warpgroups;
  Meeting all;
  unsigned char* shared = nullptr;
  size_t shared_bytes = 0;
  uint64_t number = 0;
  Fiber* current = nullptr;
  void* scheduler = nullptr;  // its stack pointer
  const std::function<void()>* kernel = nullptr;
};

Block block;  // the one that runs
std::function<void(cudaStream_t, std::function<void()>)> launcher;

void Yield() { EmulationSwitch(&block.current->stack_pointer, block.scheduler); }

void Meet(Meeting& meeting, int index, void* argument, const std::function<void(void* const*)>& combine) {
  meeting.arguments[static_cast<size_t>(index)] = argument;
  if (++meeting.arrived == meeting.size) {
    combine(meeting.arguments.data());
    meeting.arrived = 0;
    ++meeting.round;
    return;
  }
  for (const uint64_t round = meeting.round; meeting.round == round;) Yield();
}

void Enter() {
  (*block.kernel)();
  block.current->done = true;
  Yield();
}

void RunBlock(dim3 grid, uint3 index, int threads, const std::function<void()>& kernel) {
  BATON_CHECK(threads % 32 == 0) << " threads " << threads;
  block.kernel = &kernel;
  ++block.number;
  if (block.shared_bytes > 0) std::memset(block.shared, 0xFF, block.shared_bytes);
  block.fibers.resize(static_cast<size_t>(threads));
  block.warps.assign(static_cast<size_t>(threads / 32), Meeting{32, 0, 0, std::vector<void*>(32)});
  block.warpgroups.assign(static_cast<size_t>(threads / 128), Meeting{128, 0, 0, std::vector<void*>(128)});
  block.all = Meeting{threads, 0, 0, std::vector<void*>(static_cast<size_t>(threads))};
  for (int t = 0; t < threads; ++t) {
    Fiber& fiber = block.fibers[static_cast<size_t>(t)];
    fiber.lane = {{static_cast<unsigned>(t), 0, 0}, index, grid};
    fiber.done = false;
    if (fiber.stack == nullptr) fiber.stack.reset(new char[kStackBytes]);
    // As if Enter had been called and had saved six registers: 16-byte aligned but for the return address.
    auto top = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStackBytes) / 16 * 16;
    auto* stack = reinterpret_cast<void**>(top) - 2;
    *stack = reinterpret_cast<void*>(&Enter);
    fiber.stack_pointer = stack - 6;
  }
  size_t left = block.fibers.size();
  for (uint64_t turn = 0; left > 0; ++turn) {
    // A round that makes no progress means that some wait for threads that have left, as on a GPU.
    BATON_CHECK(turn < 100'000'000) << " a block hangs at a barrier";
    for (size_t i = 0; i < block.fibers.size(); ++i) {
      // Another lane first each round; 5 and the number of threads have no common divisor.
      Fiber& fiber = block.fibers[(i * 5 + turn) % block.fibers.size()];
      if (fiber.done) continue;
      block.current = &fiber;
      EmulationSwitch(&block.scheduler, fiber.stack_pointer);
      if (fiber.done) --left;
    }
  }
}

}  // namespace

Lane& Current() { return block.current->lane; }

void SetLauncher(std::function<void(cudaStream_t, std::function<void()>)> own) { launcher = std::move(own); }

void Run(void* memory, dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream,
         const std::function<void()>& kernel) {
  if (stream != nullptr) {
    launcher(stream, [=] { Run(memory, grid, threads, shared_bytes, nullptr, kernel); });
    return;
  }
  block.shared = static_cast<unsigned char*>(memory);
  block.shared_bytes = memory == nullptr ? 0 : shared_bytes;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) RunBlock(grid, {x, y, z}, threads, kernel);
    }
  }
}

void MeetWarp(void* argument, const std::function<void(void* const*)>& combine) {
  const auto thread = static_cast<int>(Current().thread.x);
  Meet(block.warps[static_cast<size_t>(thread / 32)], thread % 32, argument, combine);
}

void MeetWarpgroup(void* argument, const std::function<void(void* const*)>& combine) {
  const auto thread = static_cast<int>(Current().thread.x);
  Meet(block.warpgroups.at(static_cast<size_t>(thread / 128)), thread % 128, argument, combine);
}

bool& HasCode() {
  static bool has_code = true;
  return has_code;
}

uint64_t BlockNumber() { return block.number; }

size_t SharedBytes() { return block.shared_bytes; }

uint32_t SharedAddressOf(const void* where) {
  const auto* byte = static_cast<const unsigned char*>(where);
  if (byte < block.shared || byte >= block.shared + block.shared_bytes) return 0;
  return kSharedWindow + static_cast<uint32_t>(byte - block.shared);
}

const void* SharedAt(uint32_t address, size_t bytes) {
  BATON_CHECK(address >= kSharedWindow && address + bytes <= kSharedWindow + block.shared_bytes)
      << " address " << address << " is outside the block's shared memory";
  return block.shared + (address - kSharedWindow);
}

void MeetBlock() {
  Meet(block.all, static_cast<int>(Current().thread.x), nullptr, [](void* const*) {});
}

}  // namespace emulation
