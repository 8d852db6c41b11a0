#include "tests/e2e/gated_worker.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/e2e/gate_file.h"

namespace baton::e2e {
namespace {

class FileGate final : public worker::StepGate {
 public:
  explicit FileGate(const std::string& path) : file_(path) {}

  bool MayStep() override {
    left_ = file_.steps().load();
    return left_ != 0;
  }
  // A step that began before steps were counted is none of those: it may be the last of an answer that the
  // test has had already. Whoever opens or closes the gate meanwhile has the last word.
  void Stepped(bool busy) override {
    if (!busy || left_ < 0) return;
    const auto steps = file_.steps();
    while (left_ > 0 && !steps.compare_exchange_weak(left_, left_ - 1)) {
    }
  }

 private:
  const GateFile file_;
  int64_t left_ = 0;  // when the step began
};

}  // namespace

std::unique_ptr<worker::StepGate> TakeGate(int& argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) != "--gate") continue;
    auto gate = std::make_unique<FileGate>(argv[i + 1]);
    std::copy(argv + i + 2, argv + argc + 1, argv + i);  // with the null behind the last
    argc -= 2;
    return gate;
  }
  return nullptr;
}

}  // namespace baton::e2e
