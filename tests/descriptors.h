// Says if a sanitizer forbids a test to take every descriptor of its own process.
#pragma once

namespace baton {

// UndefinedBehaviorSanitizer, which the preset asan combines with AddressSanitizer, opens a pipe to look
// whether an object can be read; without a descriptor it takes a sound object for a bad one.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitizerNeedsDescriptors = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kSanitizerNeedsDescriptors = true;
#else
inline constexpr bool kSanitizerNeedsDescriptors = false;
#endif
#else
inline constexpr bool kSanitizerNeedsDescriptors = false;
#endif

}  // namespace baton
