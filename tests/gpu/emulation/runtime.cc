#include "tests/gpu/emulation/runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "tests/gpu/emulation/fibers.h"
#include "tests/patience.h"

struct CUstream_st {
  int gpu = 0;
  std::deque<emulation::Operation> waiting;
  CUgraph_st* capture = nullptr;
};
struct CUevent_st {
  int gpu = 0;
  std::shared_ptr<bool> last;  // whether the last record has been reached; null: never recorded
};
struct CUgraph_st {
  std::vector<emulation::Operation> operations;
};
struct CUgraphExec_st {
  std::vector<emulation::Operation> operations;
};

namespace emulation {
namespace {

// Nobody makes progress for so long: a standstill, even on a machine with little time for us.
constexpr auto kStandstill = baton::Scaled(std::chrono::seconds(20));
constexpr size_t kSlot = size_t{64} << 20;

struct Machine {
  MachineOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  std::mt19937 random;
  std::set<CUstream_st*> streams;
  CUstream_st* starved = nullptr;                  // stands still while others can run
  uint64_t progress = 0;                           // operations that were issued or run
  bool closed = false;                             // an allocation keeps others from issuing
  std::map<void*, size_t> memory;                  // address, size of its slot
  std::vector<std::pair<void*, size_t>> released;  // of options.reusing_gpu, to be given out again
  std::map<int, std::vector<void*>> given_up;      // kept mapped, so that nobody else gets the address
  std::set<int> contexts;                          // GPUs that a thread has used, knowingly or not
};
Machine machine;
thread_local int current_gpu = 0;  // until the thread chooses one, as the real runtime has it
thread_local int captures = 0;     // of this thread

using Lock = std::unique_lock<std::mutex>;

std::string Picture() {
  std::string picture;
  for (const CUstream_st* stream : machine.streams) {
    if (stream->waiting.empty()) continue;
    picture += "\n  GPU " + std::to_string(stream->gpu) + ": " + stream->waiting.front().what + " (" +
               std::to_string(stream->waiting.size()) + " waiting)";
  }
  return picture.empty() ? " no stream has work" : picture;
}

// A call of the runtime makes a context on the thread's GPU, which is GPU 0 for a thread that has chosen
// none.
void Touch() { machine.contexts.insert(current_gpu); }

// One operation of one stream, if any can run.
bool RunOne() {
  std::vector<CUstream_st*> able;
  for (CUstream_st* stream : machine.streams) {
    if (stream->waiting.empty()) continue;
    const Operation& front = stream->waiting.front();
    if (!front.ready || front.ready()) able.push_back(stream);
  }
  if (able.empty()) return false;
  if (machine.random() % 16 == 0) machine.starved = able[machine.random() % able.size()];
  if (able.size() > 1) std::erase(able, machine.starved);
  CUstream_st* const stream = able[machine.random() % able.size()];
  const Operation operation = std::move(stream->waiting.front());
  stream->waiting.pop_front();
  if (operation.run) operation.run();
  ++machine.progress;
  machine.changed.notify_all();
  return true;
}

// Runs operations until `done`.
void WaitFor(Lock& lock, const char* what, const std::function<bool()>& done) {
  while (!done()) {
    if (RunOne()) continue;
    const uint64_t before = machine.progress;
    if (machine.changed.wait_for(lock, kStandstill) == std::cv_status::timeout &&
        before == machine.progress) {
      Refuse(std::string("a standstill: a thread waits in ") + what + ", and nothing can run:" + Picture());
    }
  }
}

bool AllIdle() {
  return std::ranges::all_of(machine.streams, [](const auto* stream) { return stream->waiting.empty(); });
}

// Waits as an allocation or a release does at worst.
void WaitForAll(Lock& lock, const char* what) {
  Touch();
  if (captures > 0) Refuse(std::string(what) + " while a stream is captured");
  if (!machine.options.allocations_wait) return;
  WaitFor(lock, what, [] { return !machine.closed; });
  machine.closed = true;
  WaitFor(lock, what, AllIdle);
  machine.closed = false;
  machine.changed.notify_all();
}

void* Take(size_t bytes) {
  const size_t size = (std::max<size_t>(bytes, 1) + kSlot - 1) / kSlot * kSlot;
  const bool reuses = current_gpu == machine.options.reusing_gpu;
  for (auto slot = machine.released.begin(); reuses && slot != machine.released.end(); ++slot) {
    if (slot->second < size) continue;
    void* const data = slot->first;
    machine.memory[data] = slot->second;
    machine.released.erase(slot);
    return data;
  }
  void* const data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  machine.memory[data] = size;
  std::memset(data, 0xFF, std::min<size_t>(bytes, 4096));  // fresh memory need not be clear
  return data;
}

cudaError_t Give(void* data) {
  const auto found = machine.memory.find(data);
  if (found == machine.memory.end()) return data == nullptr ? cudaSuccess : cudaErrorInvalidValue;
  (void)madvise(data, found->second, MADV_DONTNEED);
  if (current_gpu == machine.options.reusing_gpu) {
    machine.released.emplace(machine.released.begin(), data, found->second);
  } else {
    machine.given_up[current_gpu].push_back(data);
  }
  machine.memory.erase(found);
  return cudaSuccess;
}

}  // namespace

void StartMachine(const MachineOptions& options) {
  const Lock lock(machine.mutex);
  if (!machine.streams.empty()) Refuse("a stream of the last machine is left");
  machine.options = options;
  machine.random.seed(options.seed);
  machine.starved = nullptr;
  machine.contexts.clear();
  HasCode() = options.has_code;
  SetLauncher([](cudaStream_t stream, std::function<void()> grid) {
    if (stream->gpu != current_gpu) Refuse("a kernel is launched into a stream of another GPU");
    Issue(stream, {.what = "a kernel", .run = std::move(grid)});
  });
}

void Issue(cudaStream_t stream, Operation operation) {
  Lock lock(machine.mutex);
  Touch();
  WaitFor(lock, "an operation's start", [] { return !machine.closed; });
  ++machine.progress;
  if (stream->capture != nullptr) {
    stream->capture->operations.push_back(std::move(operation));
    return;
  }
  stream->waiting.push_back(std::move(operation));
  // Sometimes GPUs are quick.
  for (uint32_t n = machine.random() % 4; n > 1; --n) RunOne();
  machine.changed.notify_all();
}

std::set<int> Contexts() {
  const Lock lock(machine.mutex);
  return machine.contexts;
}

bool Idle() {
  const Lock lock(machine.mutex);
  return std::ranges::all_of(machine.streams, [](const auto* stream) {
    return std::ranges::none_of(stream->waiting, [](const Operation& one) { return one.run != nullptr; });
  });
}

bool Capturing(cudaStream_t stream) {
  const Lock lock(machine.mutex);
  Touch();
  return stream->capture != nullptr;
}

void Exclusively(const std::function<void()>& function) {
  const Lock lock(machine.mutex);
  function();
}

void Refuse(const std::string& why) {
  std::fprintf(stderr, "emulated CUDA: %s\n", why.c_str());
  std::abort();
}

namespace {

cudaError_t Copy(cudaStream_t stream, void* to, const void* from, size_t bytes, const char* what) {
  Issue(stream, {.what = what, .run = [=] { std::memcpy(to, from, bytes); }});
  return cudaSuccess;
}

cudaError_t WaitForStream(cudaStream_t stream) {
  Lock lock(machine.mutex);
  Touch();
  if (stream->capture != nullptr) Refuse("waiting for a stream that is captured");
  WaitFor(lock, "cudaStreamSynchronize", [stream] { return stream->waiting.empty(); });
  return cudaSuccess;
}

}  // namespace
}  // namespace emulation

// The runtime's functions for the backend, under their names: the linker finds these before CUDA's library.
using namespace emulation;  // NOLINT

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine.options.gpus;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_gpu;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device >= machine.options.gpus) return cudaErrorInvalidDevice;
  current_gpu = device;
  Exclusively(Touch);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Emulated");
  properties->major = machine.options.major;
  properties->minor = machine.options.minor;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaDeviceSynchronize() {
  Lock lock(machine.mutex);
  WaitFor(lock, "cudaDeviceSynchronize", AllIdle);
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() { return cudaSuccess; }

cudaError_t cudaMalloc(void** data, size_t bytes) {
  Lock lock(machine.mutex);
  WaitForAll(lock, "cudaMalloc");
  *data = Take(bytes);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  Lock lock(machine.mutex);
  WaitForAll(lock, "cudaFree");
  return Give(data);
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  Lock lock(machine.mutex);
  WaitForAll(lock, "cudaMallocHost");
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  Lock lock(machine.mutex);
  WaitForAll(lock, "cudaFreeHost");
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 30;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  const Lock lock(machine.mutex);
  Touch();
  *stream = new CUstream_st{.gpu = current_gpu, .waiting = {}};
  machine.streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  (void)WaitForStream(stream);
  const Lock lock(machine.mutex);
  machine.streams.erase(stream);
  if (machine.starved == stream) machine.starved = nullptr;
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return WaitForStream(stream); }
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock(machine.mutex);
  Touch();
  return stream->waiting.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (Capturing(stream)) Refuse("a captured stream waits for an event of another");
  std::shared_ptr<bool> reached;
  Exclusively([&] { reached = event->last; });
  if (reached != nullptr) Issue(stream, {.what = "an event's wait", .ready = [reached] { return *reached; }});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  Exclusively(Touch);
  *event = new CUevent_st{.gpu = current_gpu, .last = {}};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (Capturing(stream)) Refuse("an event is recorded in a captured stream");
  if (event->gpu != stream->gpu) Refuse("an event is recorded in a stream of another GPU");
  const auto reached = std::make_shared<bool>(false);
  Exclusively([&] { event->last = reached; });
  Issue(stream, {.what = "an event", .run = [reached] { *reached = true; }});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock(machine.mutex);
  Touch();
  const std::shared_ptr<bool> reached = event->last;
  if (reached != nullptr) WaitFor(lock, "cudaEventSynchronize", [&] { return *reached; });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(machine.mutex);
  Touch();
  // Whoever asks again and again sees it come.
  if (event->last != nullptr && !*event->last && machine.random() % 2 == 0) (void)RunOne();
  return event->last == nullptr || *event->last ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return Copy(stream, to, from, bytes, "a copy");
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  Issue(stream, {.what = "clearing", .run = [=] { std::memset(data, value, bytes); }});
  return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void* data, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  Issue(stream, {.what = "clearing", .run = [=] {
                   for (size_t row = 0; row < height; ++row)
                     std::memset(static_cast<std::byte*>(data) + row * pitch, value, width);
                 }});
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(machine.mutex);
  stream->capture = new CUgraph_st;
  ++captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(machine.mutex);
  *graph = std::exchange(stream->capture, nullptr);
  --captures;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  // It allocates.
  Lock lock(machine.mutex);
  WaitForAll(lock, "cudaGraphInstantiate");
  *executable = new CUgraphExec_st{graph->operations};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Operation& operation : executable->operations) Issue(stream, operation);
  return cudaSuccess;
}

}  // extern "C"
