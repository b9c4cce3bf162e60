// The commands: found by name, explained, run, and their errors told.
#include "client/attnctl/command.h"

#include <cstdio>
#include <cstdlib>

#include "client/attnctl/shown.h"
#include "client/attnctl/table.h"
#include "client/cpp/error.h"
#include "core/text.h"

namespace attnd::attnctl {
namespace {

constexpr size_t kMaxMessage = 1000;
constexpr char kUsageUrl[] = "attnctl/usage";
constexpr char kSignalUrl[] = "attnctl/signal";

std::string FlagName(const Flag& flag) {
  switch (flag.kind) {
    case Flag::Kind::kSwitch:
      return "  --" + flag.name;
    case Flag::Kind::kInt:
    case Flag::Kind::kNumber:
      return "  --" + flag.name + " N";
    case Flag::Kind::kText:
      return "  --" + flag.name + " TEXT";
  }
  return "";
}

const Command* Find(const std::vector<Command>& commands, const std::string& name) {
  for (const Command& command : commands) {
    if (command.name == name) {
      return &command;
    }
  }
  return nullptr;
}

int Fail(int code, const std::string& message) {
  std::fprintf(stderr, "attnctl: %s\n", message.c_str());
  return code;
}

int UnknownCommand(const std::vector<Command>& commands, const std::string& name) {
  std::vector<std::string> known;
  for (const Command& command : commands) {
    known.push_back(command.name);
  }
  return Fail(2, "unknown command " + Quoted(name) + "; the nearest is '" + Nearest(name, known) +
                     "' (attnctl --help lists all)");
}

std::string Cut(const std::string& text) {
  const std::string shown = Shown(text);
  return shown.size() <= kMaxMessage ? shown : shown.substr(0, kMaxMessage) + "...";
}

// What an operator can do about it, where the message alone does not tell.
std::string Advice(const client::Error& error) {
  const auto says = [&](const char* words) {
    return error.message.find(words) != std::string::npos;
  };
  if (error.code == absl::StatusCode::kUnauthenticated) {
    return "; --auth_token_file names the file with the token";
  }
  if (says("http2 header with status: 503")) {
    return "; the balancer has no server for this key (HTTP 503)";
  }
  if (says("no server answers at") && !says("TLS")) {
    return "; does the name resolve, and does the server want TLS (--tls, --tls_ca)?";
  }
  return "";
}

int Report(const Command& command, const absl::Status& status) {
  if (status.ok()) {
    return 0;
  }
  const client::Error error = client::ErrorOf(status);
  const std::string reason = error.reason.empty() ? "" : " (" + Cut(error.reason) + ")";
  if (const auto signal = status.GetPayload(kSignalUrl); signal.has_value()) {
    return Fail(128 + std::atoi(std::string(*signal).c_str()),
                command.name + ": " + Cut(error.message));
  }
  const std::string message = command.name + ": " + Cut(error.message) + reason + Advice(error);
  return IsUsageError(status)
             ? Fail(2, message + " (attnctl " + command.name + " --help tells more)")
             : Fail(1, message);
}

bool AsksForHelp(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h") {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Command> AllCommands() {
  return {DemoCommand(),   InfoCommand(),  SessionsCommand(), SessionCommand(),
          DrainCommand(),  StatsCommand(), TopCommand(),      BenchCommand(),
          HealthCommand(), MaskCommand(),  PlanCommand()};
}

absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsageUrl, absl::Cord("1"));
  return status;
}

absl::Status Interrupted(int signal, const std::string& message) {
  absl::Status status = absl::CancelledError(message);
  status.SetPayload(kSignalUrl, absl::Cord(std::to_string(signal)));
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsageUrl).has_value(); }

std::string Help(const std::vector<Command>& commands) {
  List list;
  for (const Command& command : commands) {
    list.Item("  " + command.name, command.summary);
  }
  return "attnctl talks to an attention server (attnd) and answers questions about its models.\n\n"
         "Usage: attnctl COMMAND [FLAGS]\n\nCommands\n" +
         list.ToString() +
         "\n'attnctl COMMAND --help' says what a command takes and how to read what it prints.\n"
         "Exit code: 0 done, 1 failed, 2 called wrongly; errors are one line on stderr.\n";
}

std::string CommandHelp(const Command& command) {
  List flags;
  for (const Flag& flag : command.flags) {
    const std::string note =
        flag.default_value.empty() ? "" : " (default " + flag.default_value + ")";
    flags.Item(FlagName(flag), flag.help + note);
  }
  return command.summary + "\n\nUsage: attnctl " + command.name +
         (command.synopsis.empty() ? "" : " " + command.synopsis) + " [FLAGS]\n\n" +
         command.details + "\nFlags\n" + flags.ToString();
}

int RunCommandLine(const std::vector<std::string>& words) {
  const std::vector<Command> commands = AllCommands();
  if (words.empty()) {
    std::fputs(Help(commands).c_str(), stderr);
    return 2;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    std::fputs(Help(commands).c_str(), stdout);
    return 0;
  }
  if (words[0] == "--version") {
    std::puts("attnctl " ATTND_VERSION);
    return 0;
  }
  const Command* command = Find(commands, words[0]);
  if (command == nullptr) {
    return UnknownCommand(commands, words[0]);
  }
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (AsksForHelp(rest)) {
    std::fputs(CommandHelp(*command).c_str(), stdout);
    return 0;
  }
  const absl::StatusOr<Args> args = Args::Parse(command->flags, command->max_words, rest);
  if (!args.ok()) {
    return Report(*command, UsageError(std::string(args.status().message())));
  }
  return Report(*command, command->run(*args));
}

}  // namespace attnd::attnctl
