// The attnd binary as a child process of a test.
#include "tests/integration/server_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace attnd {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// In the child, between fork and exec: only what is allowed there.
[[noreturn]] void Become(char* const* argv, int out, int err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

// What the environment says, else `otherwise`: the same tests run on another device.
std::string Given(const char* variable, const char* otherwise) {
  const char* given = std::getenv(variable);
  return given == nullptr ? otherwise : given;
}

}  // namespace

ServerProcess::ServerProcess(const std::vector<std::string>& args, const std::string& program) {
  std::vector<std::string> words = {
      program.empty() ? Given("ATTND_TEST_SERVER", ATTND_SERVER_BINARY) : program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  const int flags = O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC;
  const int out = open((dir_.path() + "/stdout").c_str(), flags, 0600);
  const int err = open((dir_.path() + "/stderr").c_str(), flags, 0600);
  Check(out >= 0 && err >= 0, "the output files of a child can be opened");
  pid_ = fork();
  if (pid_ == 0) {
    Become(argv.data(), out, err);
  }
  Check(pid_ > 0, "fork works");
  close(out);
  close(err);
}

ServerProcess::~ServerProcess() {
  if (alive()) {
    Signal(SIGKILL);
    WaitExit();
  }
}

std::string ServerProcess::Stdout() const { return Contents(dir_.path() + "/stdout"); }
std::string ServerProcess::Stderr() const { return Contents(dir_.path() + "/stderr"); }

std::string ServerProcess::ready_line() const {
  const std::string text = Stdout();
  const size_t end = text.find('\n');
  return text.rfind("attnd ready ", 0) == 0 && end != std::string::npos ? text.substr(0, end) : "";
}

bool ServerProcess::WaitReady(Seconds timeout) {
  WaitUntil([this] { return !ready_line().empty() || !alive(); }, timeout);
  return !ready_line().empty();
}

std::string ServerProcess::Ready(const std::string& key) const {
  std::istringstream words(ready_line());
  for (std::string word; words >> word;) {
    if (word.rfind(key + "=", 0) == 0) {
      return word.substr(key.size() + 1);
    }
  }
  return "";
}

void ServerProcess::Signal(int number) const { kill(pid_, number); }

bool ServerProcess::alive() {
  if (exit_.has_value()) {
    return false;
  }
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) {
    return true;
  }
  exit_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

std::optional<int> ServerProcess::WaitExit(Seconds timeout) {
  WaitUntil([this] { return !alive(); }, timeout);
  return exit_;
}

int64_t ServerProcess::RssBytes() const {
  int64_t size = 0;
  int64_t resident = 0;
  std::ifstream(absl::StrCat("/proc/", pid_, "/statm")) >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

double ServerProcess::CpuSeconds() const {
  const std::string text = Contents(absl::StrCat("/proc/", pid_, "/stat"));
  // Fields from the third on follow the command's name in parentheses; 14 and 15 are the times.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string word;
  int64_t user = 0;
  int64_t system = 0;
  for (int field = 3; field < 14; ++field) {
    fields >> word;
  }
  fields >> user >> system;
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

ReadyServer::ReadyServer(const std::vector<std::string>& args, const std::string& program)
    : ServerProcess(
          [&] {
            std::vector<std::string> all = {"--listen=127.0.0.1:0", "--http=127.0.0.1:0",
                                            "--drain_seconds=0",
                                            "--device=" + Given("ATTND_TEST_DEVICE", "cpu")};
            all.insert(all.end(), args.begin(), args.end());
            return all;
          }(),
          program) {
  if (!WaitReady()) {
    std::cerr << "not ready: " << Stdout() << Stderr();
  }
  Check(!ready_line().empty(), "the server became ready");
}

void Pause(Seconds duration) { std::this_thread::sleep_for(duration); }

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Check(bind(fd, generic, size) == 0 && getsockname(fd, generic, &size) == 0, "a port is free");
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace attnd
