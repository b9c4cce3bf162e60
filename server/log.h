// The log on stderr: one line an event, text or JSON. Never a session's data. Where stderr is full
// and nobody reads it, lines are dropped, and lines_dropped says how many once it is read again.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "spdlog/logger.h"

namespace attnd::server {

class Log {
 public:
  using Fields = std::vector<std::pair<std::string, std::string>>;

  // `json`: each line is an object with time, level, event and the fields; else
  // "time level event key=value ...".
  explicit Log(bool json);

  void Info(const std::string& event, const Fields& fields = {}) const;
  void Warn(const std::string& event, const Fields& fields = {}) const;
  void Error(const std::string& event, const Fields& fields = {}) const;
  // Nobody reads stderr: the last line was dropped.
  static bool Blocked();

 private:
  void Write(spdlog::level::level_enum level, const std::string& event, const Fields& fields) const;

  const bool json_;
  std::shared_ptr<spdlog::logger> logger_;
};

// One line of the log without its time: "event key=value", values quoted where they need it.
std::string TextLine(const std::string& event, const Log::Fields& fields);

}  // namespace attnd::server
