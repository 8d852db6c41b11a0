# In a tsan build, the calls of Abseil's locks pass through cmake/tsan/absl_synchronization.cc (see there). The names are
# those of Debian's build of Abseil, whose inline namespace is debian3.
add_library(baton_tsan_locks OBJECT ${PROJECT_SOURCE_DIR}/cmake/tsan/absl_synchronization.cc)
target_link_libraries(baton_tsan_locks PUBLIC absl::synchronization)
foreach(name
    ZN4absl7debian35Mutex4LockEv
    ZN4absl7debian35Mutex6UnlockEv
    ZN4absl7debian35Mutex7TryLockEv
    ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE
    ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE
    ZN4absl7debian312Notification6NotifyEv
    ZNK4absl7debian312Notification19WaitForNotificationEv
    ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE)
  target_link_options(baton_tsan_locks INTERFACE LINKER:--wrap=_${name})
endforeach()
