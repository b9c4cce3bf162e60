// The HTTP side: one thread, any number of connections up to a limit, a request each.
#include "server/http.h"

#include <array>
#include <exception>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http.hpp"
#include "server/listen_address.h"

namespace attnd::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using beast::error_code;

constexpr uint32_t kMaxHeaderBytes = 8192;
// What a client may still send once it has its answer. Closed before, it might lose the answer.
constexpr size_t kMaxRestBytes = size_t{64} << 10;
// After an accept that failed, for want of descriptors as a rule.
constexpr std::chrono::milliseconds kAcceptPause{20};

// A request that Beast did not take; nullptr when there is nobody to answer.
const HttpPage* Refusal(error_code error) {
  static const HttpPage too_large = {431, "a request's head has at most 8 KiB\n"};
  static const HttpPage bad = {400, "no HTTP request\n"};
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return &too_large;
  }
  const bool parsed = error.category() == make_error_code(http::error::bad_method).category();
  const bool gone = error == http::error::end_of_stream || error == http::error::partial_message;
  return parsed && !gone ? &bad : nullptr;
}

http::response<http::string_body> MakeResponse(HttpPage page, bool head) {
  http::response<http::string_body> response;
  response.version(11);
  response.result(static_cast<unsigned>(page.status));
  for (const auto& [name, value] : CommonHeaders()) {
    response.set(name, value);
  }
  for (const auto& [name, value] : page.headers) {
    response.set(name, value);
  }
  response.set(http::field::content_type, page.type);
  response.keep_alive(false);
  response.content_length(page.body.size());
  if (!head) {
    response.body() = std::move(page.body);
  }
  return response;
}

// A request and its answer. It lives as long as something of it is under way.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const HttpHandlers& handlers)
      : socket_(std::move(socket)), deadline_(socket_.get_executor()), handlers_(handlers) {
    parser_.header_limit(kMaxHeaderBytes);
  }

  void Start(std::chrono::milliseconds deadline) {
    deadline_.expires_after(deadline);
    deadline_.async_wait([weak = weak_from_this()](error_code error) {
      if (const std::shared_ptr<Connection> self = weak.lock(); !error && self != nullptr) {
        self->Close();
      }
    });
    http::async_read_header(
        socket_, buffer_, parser_,
        [self = shared_from_this()](error_code error, size_t /*bytes*/) { self->Answer(error); });
  }

  // Ends what is under way, and with it the connection.
  void Close() {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  void Answer(error_code error) {
    if (!error) {
      const auto& request = parser_.get();
      const std::string method(request.method_string());
      HttpPage page = MakeHttpPage(handlers_, method, std::string(request.target()));
      if (page.status != 405 && (parser_.chunked() || parser_.content_length().value_or(0) > 0)) {
        page = {413, "a request here has no body\n"};
      }
      Write(MakeResponse(std::move(page), method == "HEAD"));
    } else if (const HttpPage* refusal = Refusal(error); refusal != nullptr) {
      Write(MakeResponse(*refusal, false));
    }
  }

  void Write(http::response<http::string_body> response) {
    response_ = std::move(response);
    http::async_write(socket_, response_,
                      [self = shared_from_this()](error_code error, size_t /*bytes*/) {
                        if (!error) {
                          self->socket_.shutdown(tcp::socket::shutdown_send, error);
                          self->AwaitEnd();
                        }
                      });
  }

  // Until the client closes.
  void AwaitEnd() {
    socket_.async_read_some(asio::buffer(rest_),
                            [self = shared_from_this()](error_code error, size_t bytes) {
                              self->rest_bytes_ += bytes;
                              if (!error && self->rest_bytes_ < kMaxRestBytes) {
                                self->AwaitEnd();
                              }
                            });
  }

  tcp::socket socket_;
  asio::steady_timer deadline_;
  const HttpHandlers& handlers_;
  beast::flat_buffer buffer_{kMaxHeaderBytes};
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
  std::array<char, 4096> rest_{};
  size_t rest_bytes_ = 0;
};

}  // namespace

// What the thread does. Only Stop() is called from elsewhere.
class HttpServer::Loop {
 public:
  Loop(HttpHandlers handlers, HttpLimits limits)
      : handlers_(std::move(handlers)), limits_(limits) {}

  // Takes the socket, which listens.
  int Take(BoundSocket* socket) {
    acceptor_.assign(socket->v6 ? tcp::v6() : tcp::v4(), socket->fd);
    socket->fd = -1;
    return acceptor_.local_endpoint().port();
  }

  void Run() {
    while (!io_.stopped()) {
      try {
        if (!accepting_) {
          Accept();
        }
        io_.run();
      } catch (const std::exception&) {  // no memory: one connection less
        std::this_thread::sleep_for(kAcceptPause);
      }
    }
  }

  void Stop() { io_.stop(); }

 private:
  void Accept() {
    accepting_ = true;
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      accepting_ = false;
      if (error) {
        CloseOldest();
        PauseAccepting();
        return;
      }
      Accept();
      Admit(std::move(socket));
    });
  }

  void PauseAccepting() {
    accepting_ = true;
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](error_code) {
      accepting_ = false;
      Accept();
    });
  }

  void Admit(tcp::socket socket) {
    connections_.remove_if([](const std::weak_ptr<Connection>& c) { return c.expired(); });
    while (connections_.size() >= limits_.connections) {
      CloseOldest();
    }
    const auto connection = std::make_shared<Connection>(std::move(socket), handlers_);
    connections_.push_back(connection);
    connection->Start(limits_.deadline);
  }

  void CloseOldest() {
    if (connections_.empty()) {
      return;
    }
    if (const std::shared_ptr<Connection> oldest = connections_.front().lock(); oldest != nullptr) {
      oldest->Close();
    }
    connections_.pop_front();
  }

  const HttpHandlers handlers_;
  const HttpLimits limits_;
  std::list<std::weak_ptr<Connection>> connections_;  // oldest first
  asio::io_context io_{1};                            // holds the connections
  tcp::acceptor acceptor_{io_};
  asio::steady_timer pause_{io_};
  bool accepting_ = false;  // or pausing
};

HttpServer::HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              HttpHandlers handlers,
                                                              HttpLimits limits) {
  absl::StatusOr<BoundSocket> socket = BindTcp("http", address);
  if (!socket.ok()) {
    return socket.status();
  }
  std::unique_ptr<HttpServer> server(new HttpServer());
  try {
    server->loop_ = std::make_unique<Loop>(std::move(handlers), limits);
    const int port = server->loop_->Take(&*socket);
    server->address_ = WithPort(address, port);
    server->thread_ = std::thread([loop = server->loop_.get()] { loop->Run(); });
  } catch (const std::exception& e) {
    return absl::UnavailableError(
        absl::StrCat("--http=", address, ": cannot be served: ", e.what()));
  }
  return server;
}

HttpServer::~HttpServer() {
  if (thread_.joinable()) {
    loop_->Stop();
    thread_.join();
  }
}

}  // namespace attnd::server
