// LogLines: what the process logs while the object lives, at level info and above, instead of writing it. One
// at a time; any thread logs and asks.
#pragma once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace baton {

class LogLines {
 public:
  LogLines() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("lines", sink_));
  }
  ~LogLines() { spdlog::set_default_logger(before_); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  // The lines of this level that have the words, in order.
  std::vector<std::string> With(const std::string& words,
                                spdlog::level::level_enum level = spdlog::level::warn) const {
    return sink_->With(words, level);
  }

 private:
  class Sink final : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::vector<std::string> With(const std::string& words, spdlog::level::level_enum level) {
      const std::lock_guard lock(mutex_);
      std::vector<std::string> found;
      for (const auto& [of, line] : lines_) {
        if (of == level && line.find(words) != std::string::npos) found.push_back(line);
      }
      return found;
    }

   private:
    void sink_it_(const spdlog::details::log_msg& message) override {
      lines_.emplace_back(message.level, std::string(message.payload.data(), message.payload.size()));
    }
    void flush_() override {}

    std::vector<std::pair<spdlog::level::level_enum, std::string>> lines_;
  };

  const std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  const std::shared_ptr<spdlog::logger> before_;
};

}  // namespace baton
