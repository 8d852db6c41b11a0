// CHECK: a fault of the program, so the process ends with the place and the reason. Faults of the world
// (input, peers, the system) are a Status.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>

namespace baton::internal {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& message);

class CheckMessage {
 public:
  CheckMessage(const char* file, int line, const char* condition)
      : file_(file), line_(line), condition_(condition) {}
  [[noreturn]] ~CheckMessage() { CheckFailed(file_, line_, condition_, stream_.str()); }
  std::ostream& stream() { return stream_; }

 private:
  const char* file_;
  int line_;
  const char* condition_;
  std::ostringstream stream_;
};

}  // namespace baton::internal

#define BATON_CHECK(condition) \
  while (!(condition)) ::baton::internal::CheckMessage(__FILE__, __LINE__, #condition).stream()
#define BATON_CHECK_EQ(a, b) BATON_CHECK((a) == (b)) << " (" << (a) << " vs " << (b) << ") "

#ifdef NDEBUG
#define BATON_DCHECK(condition) \
  while (false && (condition)) ::baton::internal::CheckMessage(__FILE__, __LINE__, #condition).stream()
#else
#define BATON_DCHECK(condition) BATON_CHECK(condition)
#endif
