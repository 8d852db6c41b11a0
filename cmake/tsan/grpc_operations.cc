// ThreadSanitizer's view of gRPC's operations. What a program wrote before it started one (a read, a write, a
// call) is seen by the thread that learns of its end; the library orders that by means that the sanitizer
// can't see, for Debian's is built without it. The definitions here come before the library's, for the
// program and for libgrpc++, which calls back what has ended; they call the library's and tell the sanitizer
// that the start of an operation comes before its end: a tag names it.
//
// Linked into every program of a tsan build (see BatonRoom.cmake).
#include <dlfcn.h>
#include <grpc/grpc.h>

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}

namespace {

// The library's own function of this name, which the definition here overrides.
template <typename Function>
Function* Next(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

grpc_event Ended(const grpc_event& event) {
  if (event.type == GRPC_OP_COMPLETE && event.tag != nullptr) __tsan_acquire(event.tag);
  return event;
}

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static auto* const next = Next("grpc_call_start_batch", &grpc_call_start_batch);
  if (tag != nullptr) __tsan_release(tag);
  return next(call, ops, count, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline, void* reserved) {
  static auto* const next = Next("grpc_completion_queue_next", &grpc_completion_queue_next);
  return Ended(next(queue, deadline, reserved));
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag, gpr_timespec deadline,
                                       void* reserved) {
  static auto* const next = Next("grpc_completion_queue_pluck", &grpc_completion_queue_pluck);
  return Ended(next(queue, tag, deadline, reserved));
}

}  // extern "C"
