// attnctl session: one session copied, saved, brought back, or moved to another server.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/attnctl/command.h"
#include "client/attnctl/connect.h"
#include "client/attnctl/progress_bar.h"
#include "client/attnctl/shown.h"
#include "client/attnctl/units.h"
#include "client/cpp/move.h"
#include "client/cpp/session_file.h"

namespace attnd::attnctl {
namespace {

using SessionOr = absl::StatusOr<std::unique_ptr<client::Session>>;

client::Progress Drawn(ProgressBar* bar) {
  return [bar](int64_t done, int64_t total) { bar->Show(done, total); };
}

std::string TextOr(const Args& args, const std::string& flag) {
  return args.Has(flag) ? args.Text(flag) : "";
}

// Says what became of it: a sentence, or the session as the server has it.
absl::Status Tell(const Args& args, const SessionOr& session, const std::string& sentence) {
  if (!session.ok()) {
    return session.status();
  }
  const absl::StatusOr<v1::Session> held = (*session)->Refresh();
  if (!held.ok()) {
    return held.status();
  }
  if (args.Switch("json")) {
    PrintJson(*held);
  } else {
    std::printf("%s %s, %s of cache\n", sentence.c_str(), Shown(held->session_id()).c_str(),
                Bytes(static_cast<double>(held->cache_bytes())).c_str());
  }
  return absl::OkStatus();
}

absl::Status Export(const Args& args, client::Client& client) {
  const std::string& id = args.words()[1];
  const std::string& path = args.words()[2];
  absl::StatusOr<int64_t> bytes = 0;
  {
    ProgressBar bar("export");
    bytes = client::ExportToFile(client, id, path, {false, Drawn(&bar)});
  }
  if (!bytes.ok()) {
    return bytes.status();
  }
  if (args.Switch("json")) {
    const nlohmann::ordered_json json = {
        {"session_id", id}, {"file", path}, {"data_bytes", std::to_string(*bytes)}};
    std::printf("%s\n",
                json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  } else {
    std::printf("exported %s to %s, %s\n", Shown(id).c_str(), Shown(path).c_str(),
                Bytes(static_cast<double>(*bytes)).c_str());
  }
  return absl::OkStatus();
}

absl::Status Import(const Args& args, client::Client& client) {
  SessionOr session = nullptr;
  {
    ProgressBar bar("import");
    session = client::ImportFromFile(client, args.words()[1], {TextOr(args, "id"), Drawn(&bar)});
  }
  return Tell(args, session, "imported");
}

absl::Status Fork(const Args& args, client::Client& client) {
  client::ForkOptions fork;
  fork.new_session_id = TextOr(args, "id");
  fork.position = args.Has("position") ? args.Int("position") : 0;
  return Tell(args, client.ForkSession(args.words()[1], fork), "forked");
}

absl::Status Move(const Args& args, client::Client& client) {
  const auto target = ConnectTo(args, args.Text("to"));
  if (!target.ok()) {
    return target.status();
  }
  SessionOr session = nullptr;
  {
    ProgressBar bar("move");
    session = client::MoveSession(client, args.words()[1], **target, Drawn(&bar));
  }
  return Tell(args, session, "moved");
}

struct Action {
  const char* name;
  size_t words;                    // the name included
  std::vector<std::string> flags;  // its own
  absl::Status (*run)(const Args& args, client::Client& client);
};

absl::StatusOr<Action> Chosen(const Args& args) {
  static const Action kActions[] = {{"export", 3, {}, Export},
                                    {"import", 2, {"id"}, Import},
                                    {"fork", 2, {"id", "position"}, Fork},
                                    {"move", 2, {"to"}, Move}};
  const std::vector<std::string>& words = args.words();
  for (const Action& action : kActions) {
    if (words.empty() || words[0] != action.name || words.size() != action.words) {
      continue;
    }
    for (const std::string flag : {"id", "position", "to"}) {
      const bool own =
          std::find(action.flags.begin(), action.flags.end(), flag) != action.flags.end();
      if (args.Has(flag) && !own) {
        return UsageError("'" + words[0] + "' takes no --" + flag);
      }
    }
    if (words[0] == "move" && !args.Has("to")) {
      return UsageError("'move' needs --to, the server that it goes to");
    }
    if (words[0] != "fork" && words[0] != "move" && words.back() == "-") {
      return UsageError(
          "FILE is '-'; expected a file's name: a session goes neither to nor from a "
          "pipe, for it is complete only at its end");
    }
    return action;
  }
  return UsageError("expected 'export ID FILE', 'import FILE', 'fork ID' or 'move ID --to TARGET'");
}

absl::Status Run(const Args& args) {
  const absl::StatusOr<Action> action = Chosen(args);
  if (!action.ok()) {
    return action.status();
  }
  const auto connected = ConnectFrom(args);
  if (!connected.ok()) {
    return connected.status();
  }
  return action->run(args, **connected);
}

}  // namespace

Command SessionCommand() {
  return {
      "session",
      "Copies a session, saves it to a file and brings it back, or moves it.",
      "export ID FILE | import FILE | fork ID | move ID --to TARGET",
      "export  writes the session, as it is at one moment, to FILE. It goes on being served.\n"
      "import  makes a session from FILE, which continues bit for bit like the one exported. The\n"
      "        server must hold the same model in the same cache dtype.\n"
      "fork    makes a copy that continues on its own; what both have is held once.\n"
      "move    takes the session to the server TARGET and closes it here. Its steps meanwhile "
      "wait\n"
      "        (SESSION_MOVING; the clients repeat them). When it fails the session stays.\n\n"
      "FILE holds what was said to the model: it is readable by its owner alone. It ends with a\n"
      "digest; a damaged or cut one is refused.\n\n"
      "Examples\n"
      "  attnctl session export chat-7 chat-7.session\n"
      "  attnctl session import chat-7.session --id chat-7-again --target other:8470\n"
      "  attnctl session fork chat-7 --id what-if --position 1000\n"
      "  attnctl session move chat-7 --to other:8470\n",
      ServerFlags({
          {"id", Flag::Kind::kText, "",
           "import, fork: the new session's id (default: as exported; random)"},
          {"position", Flag::Kind::kInt, "", "fork: the copy holds the tokens before it; 0: all"},
          {"to", Flag::Kind::kText, "", "move: the server that the session goes to"},
          {"session_key", Flag::Kind::kText, "",
           "affinity key of the session, where the target is a balancer"},
      }),
      3,
      Run};
}

}  // namespace attnd::attnctl
