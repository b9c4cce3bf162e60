// The log on stderr.
#include "server/log.h"

#include <mutex>

#include "core/text.h"
#include "nlohmann/json.hpp"
#include "server/line_writer.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/base_sink.h"

namespace attnd::server {
namespace {

std::string JsonText(const std::string& value) {
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The line's part after its time and its level.
std::string Payload(bool json, const std::string& event, const Log::Fields& fields) {
  if (!json) {
    return TextLine(event, fields);
  }
  std::string line = "\"event\":" + JsonText(event);
  for (const auto& [key, value] : fields) {
    line += ',' + JsonText(key) + ':' + JsonText(value);
  }
  return line;
}

class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit StderrSink(bool json) : json_(json) {}

 private:
  std::string Formatted(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    return {line.data(), line.size()};
  }
  void sink_it_(const spdlog::details::log_msg& message) override {
    StderrLines().Write(Formatted(message), [&](int64_t count) {
      const std::string payload =
          Payload(json_, "lines_dropped",
                  {{"count", std::to_string(count)}, {"note", "nobody read stderr"}});
      return Formatted({message.time, {}, message.logger_name, spdlog::level::warn, payload});
    });
  }
  void flush_() override {}

  const bool json_;
};

}  // namespace

std::string TextLine(const std::string& event, const Log::Fields& fields) {
  std::string line = event;
  for (const auto& [key, value] : fields) {
    const bool plain = !value.empty() && value.find_first_of(" \"=\n\t") == std::string::npos;
    line += ' ' + key + '=' + (plain ? Printable(value) : JsonText(value));
  }
  return line;
}

Log::Log(bool json) : json_(json) {
  logger_ = std::make_shared<spdlog::logger>("attnd", std::make_shared<StderrSink>(json));
  const char* pattern =
      json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})" : "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
  logger_->set_formatter(
      std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc));
}

void Log::Info(const std::string& event, const Fields& fields) const {
  Write(spdlog::level::info, event, fields);
}
void Log::Warn(const std::string& event, const Fields& fields) const {
  Write(spdlog::level::warn, event, fields);
}
void Log::Error(const std::string& event, const Fields& fields) const {
  Write(spdlog::level::err, event, fields);
}

bool Log::Blocked() { return StderrLines().blocked(); }

void Log::Write(spdlog::level::level_enum level, const std::string& event,
                const Fields& fields) const {
  logger_->log(level, "{}", Payload(json_, event, fields));
}

}  // namespace attnd::server
