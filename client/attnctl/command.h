// A subcommand: what it takes, what it teaches, what it does.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/attnctl/args.h"

namespace attnd::attnctl {

struct Command {
  std::string name;
  std::string summary;   // a line for the list of commands
  std::string synopsis;  // what follows the name: "[list | close ID]"
  std::string details;   // what it prints and how to read it; lines ending in '\n'
  std::vector<Flag> flags;
  size_t max_words = 0;
  absl::Status (*run)(const Args& args) = nullptr;
};

Command InfoCommand();
Command DemoCommand();
Command SessionsCommand();
Command SessionCommand();
Command DrainCommand();
Command HealthCommand();
Command StatsCommand();
Command TopCommand();
Command BenchCommand();
Command MaskCommand();
Command PlanCommand();

// All of them, in the order of the help.
std::vector<Command> AllCommands();

// An error in how the command was called: exit code 2 instead of 1.
absl::Status UsageError(const std::string& message);
bool IsUsageError(const absl::Status& status);

// A command that a signal ended: exit code 128 + its number, as of one that the signal killed.
absl::Status Interrupted(int signal, const std::string& message);

// The whole tool's help, and a command's.
std::string Help(const std::vector<Command>& commands);
std::string CommandHelp(const Command& command);

// Runs a command line (without the program's name): the exit code. 0 done, 1 failed, 2 called
// wrongly.
int RunCommandLine(const std::vector<std::string>& words);

}  // namespace attnd::attnctl
