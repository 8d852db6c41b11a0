// ThreadSanitizer's view of Abseil's locks. Debian's libabsl is built without it, so a tsan build would take
// all that an absl::Mutex guards for a race. The linker sends our calls (--wrap, see BatonTsan.cmake) through
// here, where the sanitizer is told what the lock orders. Conditions are also evaluated inside Unlock() and
// Await(), by whoever holds the lock at that moment; their reads are ordered by the lock and left out.
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

// What happens inside the library while it may evaluate conditions.
class InsideTheLibrary {
 public:
  InsideTheLibrary() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~InsideTheLibrary() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

}  // namespace

#define BATON_REAL(name) __real__##name
#define BATON_WRAP(name) __wrap__##name

extern "C" {

void BATON_REAL(ZN4absl7debian35Mutex4LockEv)(absl::Mutex* mutex);
void BATON_WRAP(ZN4absl7debian35Mutex4LockEv)(absl::Mutex* mutex) {
  BATON_REAL(ZN4absl7debian35Mutex4LockEv)(mutex);
  __tsan_acquire(mutex);
}

void BATON_REAL(ZN4absl7debian35Mutex6UnlockEv)(absl::Mutex* mutex);
void BATON_WRAP(ZN4absl7debian35Mutex6UnlockEv)(absl::Mutex* mutex) {
  __tsan_release(mutex);
  const InsideTheLibrary inside;
  BATON_REAL(ZN4absl7debian35Mutex6UnlockEv)(mutex);
}

bool BATON_REAL(ZN4absl7debian35Mutex7TryLockEv)(absl::Mutex* mutex);
bool BATON_WRAP(ZN4absl7debian35Mutex7TryLockEv)(absl::Mutex* mutex) {
  const bool locked = BATON_REAL(ZN4absl7debian35Mutex7TryLockEv)(mutex);
  if (locked) __tsan_acquire(mutex);
  return locked;
}

void BATON_REAL(ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE)(absl::Mutex* mutex,
                                                               const absl::Condition& condition);
void BATON_WRAP(ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE)(absl::Mutex* mutex,
                                                               const absl::Condition& condition) {
  __tsan_release(mutex);
  {
    const InsideTheLibrary inside;
    BATON_REAL(ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE)(mutex, condition);
  }
  __tsan_acquire(mutex);
}

bool BATON_REAL(ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE)(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Duration timeout);
bool BATON_WRAP(ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE)(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Duration timeout) {
  __tsan_release(mutex);
  bool met;
  {
    const InsideTheLibrary inside;
    met = BATON_REAL(ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE)(
        mutex, condition, timeout);
  }
  __tsan_acquire(mutex);
  return met;
}

void BATON_REAL(ZN4absl7debian312Notification6NotifyEv)(absl::Notification* notification);
void BATON_WRAP(ZN4absl7debian312Notification6NotifyEv)(absl::Notification* notification) {
  __tsan_release(notification);
  BATON_REAL(ZN4absl7debian312Notification6NotifyEv)(notification);
}

void BATON_REAL(ZNK4absl7debian312Notification19WaitForNotificationEv)(
    const absl::Notification* notification);
void BATON_WRAP(ZNK4absl7debian312Notification19WaitForNotificationEv)(
    const absl::Notification* notification) {
  BATON_REAL(ZNK4absl7debian312Notification19WaitForNotificationEv)(notification);
  __tsan_acquire(const_cast<absl::Notification*>(notification));
}

bool BATON_REAL(ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(
    const absl::Notification* notification, absl::Duration timeout);
bool BATON_WRAP(ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(
    const absl::Notification* notification, absl::Duration timeout) {
  const bool notified = BATON_REAL(
      ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(notification, timeout);
  if (notified) __tsan_acquire(const_cast<absl::Notification*>(notification));
  return notified;
}

}  // extern "C"
