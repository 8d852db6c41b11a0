// Whether a sanitizer watches this test. A test that looks at numbers again and again may then look fewer
// times: the sanitizer finds in one round what it finds in all, and each takes a multiple of the time.
#pragma once

namespace baton {

#if defined(BATON_PATIENCE) && BATON_PATIENCE > 1  // of builds with sanitizers (cmake/BatonRoom.cmake)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace baton
