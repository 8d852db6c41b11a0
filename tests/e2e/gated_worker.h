// The worker's end of a gate (gate.h). For the main() of a worker that tests may hold.
#pragma once

#include <memory>

#include "worker/step_gate.h"

namespace baton::e2e {

// The gate of `--gate FILE`, which it takes out of the arguments. Null: there is none among them.
std::unique_ptr<worker::StepGate> TakeGate(int& argc, char** argv);

}  // namespace baton::e2e
