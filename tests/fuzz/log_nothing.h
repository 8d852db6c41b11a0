// LogNothing: what is refused on purpose is not worth a line. Servers of a fuzzer live as long as its
// process, and their threads may still log while it exits: its logger then outlives spdlog's own registry.
#pragma once

#include <memory>

#include "spdlog/spdlog.h"

namespace baton::fuzz {

inline void LogNothing() {
  [[maybe_unused]] static const auto* const kept =
      new std::shared_ptr<spdlog::logger>(spdlog::default_logger());
  spdlog::set_level(spdlog::level::off);
}

}  // namespace baton::fuzz
