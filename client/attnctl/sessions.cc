// attnctl sessions: the sessions that a server holds, and closing one.
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cstdio>

#include "client/attnctl/command.h"
#include "client/attnctl/connect.h"
#include "client/attnctl/shown.h"
#include "client/attnctl/table.h"
#include "client/attnctl/units.h"

namespace attnd::attnctl {
namespace {

using google::protobuf::util::TimeUtil;

// "1,024", or "1,000-1,024" when the layers are at different positions.
std::string Lengths(const v1::Session& session) {
  if (session.layer_lengths().empty()) {
    return "-";
  }
  const auto [low, high] =
      std::minmax_element(session.layer_lengths().begin(), session.layer_lengths().end());
  return *low == *high ? Count(*low) : Count(*low) + "-" + Count(*high);
}

std::string ExpiresIn(const v1::Session& session) {
  if (!session.has_expire_time()) {
    return "-";
  }
  const int64_t seconds =
      TimeUtil::DurationToSeconds(session.expire_time() - TimeUtil::GetCurrentTime());
  return Count(std::max<int64_t>(0, seconds)) + " s";
}

std::string Render(const std::vector<v1::Session>& sessions) {
  Table table(
      {"session", "length", "prefix", "cap", "cache", "reserved", "expires in", "affinity key"});
  for (const v1::Session& session : sessions) {
    table.Row({session.session_id(), Lengths(session), Count(session.prefix_length()),
               session.max_tokens() > 0 ? Count(session.max_tokens()) : "-",
               Bytes(static_cast<double>(session.cache_bytes())),
               Bytes(static_cast<double>(session.reserved_bytes())), ExpiresIn(session),
               session.affinity_key().empty() ? "-" : session.affinity_key()});
  }
  return table.ToString() + Count(static_cast<int64_t>(sessions.size())) +
         (sessions.size() == 1 ? " session\n" : " sessions\n");
}

absl::Status ListAll(client::Client& client, bool json) {
  const auto sessions = client.ListSessions();
  if (!sessions.ok()) {
    return sessions.status();
  }
  if (json) {
    v1::ListSessionsResponse all;
    all.mutable_sessions()->Assign(sessions->begin(), sessions->end());
    PrintJson(all);
  } else {
    std::fputs(Render(*sessions).c_str(), stdout);
  }
  return absl::OkStatus();
}

absl::Status CloseOne(client::Client& client, const std::string& id, bool json) {
  const absl::StatusOr<int64_t> freed = client.CloseSession(id);
  if (!freed.ok()) {
    return freed.status();
  }
  if (json) {
    v1::CloseSessionResponse response;
    response.set_freed_bytes(*freed);
    PrintJson(response);
  } else {
    const std::string bytes =
        *freed < 0 ? "an unknown part of the cache is" : Bytes(static_cast<double>(*freed));
    std::printf("closed %s, %s free again\n", Shown(id).c_str(), bytes.c_str());
  }
  return absl::OkStatus();
}

absl::Status Run(const Args& args) {
  const std::vector<std::string>& words = args.words();
  const bool close = !words.empty() && words[0] == "close";
  if (close != (words.size() == 2) || (!words.empty() && !close && words[0] != "list")) {
    return UsageError("expected 'list' or 'close ID'");
  }
  auto connected = ConnectFrom(args);
  if (!connected.ok()) {
    return connected.status();
  }
  return close ? CloseOne(**connected, words[1], args.Switch("json"))
               : ListAll(**connected, args.Switch("json"));
}

}  // namespace

Command SessionsCommand() {
  return {
      "sessions",
      "Lists the sessions that a server holds, or closes one.",
      "[list | close ID]",
      "A row is a session: its layers' lengths in tokens (lowest-highest when they differ), the\n"
      "bidirectional prefix, the cap on its tokens, the cache that it holds and has reserved,\n"
      "when it ends if it stays idle (each use begins that time anew), and the\n"
      "affinity key by which a balancer chose this server.\n",
      ServerFlags(),
      2,
      Run};
}

}  // namespace attnd::attnctl
