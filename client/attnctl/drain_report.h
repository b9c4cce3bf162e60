// What a drain has done, as text and as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "client/cpp/drain.h"

namespace attnd::attnctl {

// What became of the sessions, by id: a later try takes the place of an earlier one.
struct DrainReport {
  std::string server_id;
  std::map<std::string, client::DrainedSession> sessions;
  int64_t left = 0;  // of all tenants
  double seconds = 0;

  int64_t Number(client::DrainedSession::Outcome outcome) const;
};

std::string Text(const DrainReport& report);
std::string Json(const DrainReport& report);

}  // namespace attnd::attnctl
