// The attnd binary as a child process of a test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace attnd {

using Seconds = std::chrono::duration<double>;

class ServerProcess {
 public:
  // Starts `attnd ARGS`, or another program. It dies with the thread that started it, by SIGKILL at
  // the latest.
  explicit ServerProcess(const std::vector<std::string>& args, const std::string& program = "");
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Waits for the line "attnd ready ..."; false when the process ended or the time passed.
  bool WaitReady(Seconds timeout = Seconds(60));
  // A value of the ready line: "grpc", "http", "model", "device".
  std::string Ready(const std::string& key) const;
  std::string ready_line() const;

  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  // The exit code, 128 + n when signal n ended it; nullopt when the time passed.
  std::optional<int> WaitExit(Seconds timeout = Seconds(60));
  bool alive();

  std::string Stdout() const;
  std::string Stderr() const;
  int64_t RssBytes() const;   // resident memory
  double CpuSeconds() const;  // user and system, all threads; ticks of 10 ms

 private:
  TempDir dir_;
  pid_t pid_ = -1;
  std::optional<int> exit_;
};

// A server on the CPU (or on $ATTND_TEST_DEVICE of the program $ATTND_TEST_SERVER, where those are
// set) and free ports of the loopback address, ready; `args` come last and so may
// override. Aborts the test's process when it does not become ready.
class ReadyServer : public ServerProcess {
 public:
  explicit ReadyServer(const std::vector<std::string>& args, const std::string& program = "");

  std::string grpc() const { return Ready("grpc"); }
  std::string http() const { return Ready("http"); }
};

// Waits until `condition` holds, looking every millisecond; false when the time passed.
template <typename Condition>
bool WaitUntil(Condition condition, Seconds timeout = Seconds(30));

// Sleeps.
void Pause(Seconds duration);

// A port of 127.0.0.1 that nobody listens on at this moment.
int FreePort();

template <typename Condition>
bool WaitUntil(Condition condition, Seconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    Pause(Seconds(1e-3));
  }
  return true;
}

}  // namespace attnd
