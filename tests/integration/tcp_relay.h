// A relay in front of the server, whose connections a test can break as a dead client's are.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace attnd {

class TcpRelay {
 public:
  // Forwards 127.0.0.1:PORT, a free one, to `target`, "127.0.0.1:port".
  explicit TcpRelay(const std::string& target);
  ~TcpRelay();
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  const std::string& address() const { return address_; }
  // Breaks every connection: both ends see a reset.
  void Break();
  int64_t connections() const { return connections_; }
  int64_t bytes_to_server() const { return to_server_; }

 private:
  void Accept();
  // Copies until either end closes.
  void Pump(int from, int to, std::atomic<int64_t>* count);

  std::string target_;
  std::string address_;
  int listener_ = -1;
  std::atomic<int64_t> connections_{0};
  std::atomic<int64_t> to_server_{0};
  std::atomic<int64_t> to_client_{0};
  std::mutex mutex_;
  std::vector<int> sockets_;
  std::vector<std::thread> pumps_;
  std::thread acceptor_;
};

}  // namespace attnd
