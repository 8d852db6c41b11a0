// ThreadSanitizer's view of Abseil's locks and notifications. Debian's libabsl is built without it, so a tsan
// build would take all that an absl::Mutex guards for a race, in Baton and in gRPC, whose own locks they are
// too. The definitions here come before the library's, for the program and for every shared library; they
// call the library's and tell the sanitizer what the lock orders. Conditions are also evaluated inside
// Unlock() and Await(), by the thread that holds the lock at that moment: their reads are ordered by the lock
// and left out.
//
// Linked into every program of a tsan build (see BatonRoom.cmake). The names are those of Debian's build of
// Abseil, whose inline namespace is debian3.
#include <dlfcn.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

// Ignores reads inside the library while it may evaluate conditions.
class InsideTheLibrary {
 public:
  InsideTheLibrary() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~InsideTheLibrary() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

// An address for readers: their releases come before the next writer, and are not ordered among themselves.
void* ReadersOf(absl::Mutex* mutex) { return reinterpret_cast<char*>(mutex) + 1; }

// Waits with the lock held for writing, which is released in between.
template <typename Wait>
auto GivingUp(absl::Mutex* mutex, Wait wait) {
  __tsan_release(mutex);
  const auto result = [&] {
    const InsideTheLibrary inside;
    return wait();
  }();
  __tsan_acquire(mutex);
  __tsan_acquire(ReadersOf(mutex));
  return result;
}

}  // namespace

// The library's own function of this name, which the definition here overrides.
#define BATON_NEXT(name)                               \
  (reinterpret_cast<decltype(&name)>([] {              \
    static void* const next = dlsym(RTLD_NEXT, #name); \
    return next;                                       \
  }()))

extern "C" {

void _ZN4absl7debian35Mutex4LockEv(absl::Mutex* mutex) {
  BATON_NEXT(_ZN4absl7debian35Mutex4LockEv)(mutex);
  __tsan_acquire(mutex);
  __tsan_acquire(ReadersOf(mutex));
}

void _ZN4absl7debian35Mutex6UnlockEv(absl::Mutex* mutex) {
  __tsan_release(mutex);
  const InsideTheLibrary inside;
  BATON_NEXT(_ZN4absl7debian35Mutex6UnlockEv)(mutex);
}

bool _ZN4absl7debian35Mutex7TryLockEv(absl::Mutex* mutex) {
  const bool locked = BATON_NEXT(_ZN4absl7debian35Mutex7TryLockEv)(mutex);
  if (locked) {
    __tsan_acquire(mutex);
    __tsan_acquire(ReadersOf(mutex));
  }
  return locked;
}

void _ZN4absl7debian35Mutex10ReaderLockEv(absl::Mutex* mutex) {
  BATON_NEXT(_ZN4absl7debian35Mutex10ReaderLockEv)(mutex);
  __tsan_acquire(mutex);
}

bool _ZN4absl7debian35Mutex13ReaderTryLockEv(absl::Mutex* mutex) {
  const bool locked = BATON_NEXT(_ZN4absl7debian35Mutex13ReaderTryLockEv)(mutex);
  if (locked) __tsan_acquire(mutex);
  return locked;
}

void _ZN4absl7debian35Mutex12ReaderUnlockEv(absl::Mutex* mutex) {
  __tsan_release(ReadersOf(mutex));
  const InsideTheLibrary inside;
  BATON_NEXT(_ZN4absl7debian35Mutex12ReaderUnlockEv)(mutex);
}

void _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE(absl::Mutex* mutex, const absl::Condition& condition) {
  GivingUp(mutex, [&] {
    BATON_NEXT(_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE)(mutex, condition);
    return true;
  });
}

bool _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Duration timeout) {
  return GivingUp(mutex, [&] {
    return BATON_NEXT(_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE)(
        mutex, condition, timeout);
  });
}

bool _ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE(absl::Mutex* mutex,
                                                                           const absl::Condition& condition,
                                                                           absl::Time deadline) {
  return GivingUp(mutex, [&] {
    return BATON_NEXT(_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE)(mutex, condition,
                                                                                             deadline);
  });
}

void _ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(absl::CondVar* variable, absl::Mutex* mutex) {
  GivingUp(mutex, [&] {
    BATON_NEXT(_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE)(variable, mutex);
    return true;
  });
}

bool _ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(absl::CondVar* variable,
                                                                          absl::Mutex* mutex,
                                                                          absl::Duration timeout) {
  return GivingUp(mutex, [&] {
    return BATON_NEXT(_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)(variable, mutex,
                                                                                            timeout);
  });
}

bool _ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE(absl::CondVar* variable,
                                                                       absl::Mutex* mutex,
                                                                       absl::Time deadline) {
  return GivingUp(mutex, [&] {
    return BATON_NEXT(_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE)(variable, mutex,
                                                                                         deadline);
  });
}

// A thread that finds it notified takes no lock.
void _ZN4absl7debian312Notification6NotifyEv(absl::Notification* notification) {
  __tsan_release(notification);
  BATON_NEXT(_ZN4absl7debian312Notification6NotifyEv)(notification);
}

void _ZNK4absl7debian312Notification19WaitForNotificationEv(absl::Notification* notification) {
  BATON_NEXT(_ZNK4absl7debian312Notification19WaitForNotificationEv)(notification);
  __tsan_acquire(notification);
}

bool _ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE(
    absl::Notification* notification, absl::Duration timeout) {
  const bool notified = BATON_NEXT(
      _ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(notification, timeout);
  if (notified) __tsan_acquire(notification);
  return notified;
}

bool _ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE(
    absl::Notification* notification, absl::Time deadline) {
  const bool notified = BATON_NEXT(
      _ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE)(notification, deadline);
  if (notified) __tsan_acquire(notification);
  return notified;
}

}  // extern "C"
