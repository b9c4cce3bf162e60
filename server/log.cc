// The log on stderr.
#include "server/log.h"

#include "core/text.h"
#include "nlohmann/json.hpp"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace attnd::server {
namespace {

std::string JsonText(const std::string& value) {
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

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
  logger_ =
      std::make_shared<spdlog::logger>("attnd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const char* pattern =
      json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})" : "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
  logger_->set_formatter(
      std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc));
  logger_->flush_on(spdlog::level::info);
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

void Log::Write(spdlog::level::level_enum level, const std::string& event,
                const Fields& fields) const {
  if (!json_) {
    logger_->log(level, "{}", TextLine(event, fields));
    return;
  }
  std::string line = "\"event\":" + JsonText(event);
  for (const auto& [key, value] : fields) {
    line += ',' + JsonText(key) + ':' + JsonText(value);
  }
  logger_->log(level, "{}", line);
}

}  // namespace attnd::server
