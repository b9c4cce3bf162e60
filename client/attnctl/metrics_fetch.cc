// GET /metrics of a server.
#include "client/attnctl/metrics_fetch.h"

#include <charconv>
#include <chrono>
#include <exception>
#include <utility>

#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http.hpp"
#include "core/text.h"

namespace attnd::attnctl {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using beast::error_code;

constexpr std::chrono::seconds kConnect{1};
constexpr std::chrono::seconds kExchange{2};  // the request and the whole answer
// A server's metrics take 30 kB.
constexpr uint64_t kMaxBytes = 16 << 20;
constexpr uint32_t kMaxHeaderBytes = 16 << 10;

std::string ConnectError(error_code error) {
  return error == beast::error::timeout
             ? "no connection within " + std::to_string(kConnect.count()) + " s"
             : "no connection";
}

std::string ExchangeError(error_code error) {
  if (error == beast::error::timeout) {
    return "no answer, or no whole one within " + std::to_string(kExchange.count()) + " s";
  }
  if (error == http::error::body_limit) {
    return "an answer of more than 16 MiB";
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return "an answer whose headers have more than 16 KiB";
  }
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error.category() == asio::error::get_system_category()) {
    return "no answer, or a part of one";
  }
  return "no HTTP answer";
}

// Runs what was begun on `io`, up to its deadline.
void RunAll(asio::io_context& io) {
  io.restart();
  io.run();
}

absl::StatusOr<std::string> Fetch(const HttpTarget& target) {
  asio::io_context io;
  error_code error;
  tcp::resolver resolver(io);
  const tcp::resolver::results_type addresses = resolver.resolve(
      target.host, std::to_string(target.port), tcp::resolver::numeric_service, error);
  if (error) {
    return absl::UnavailableError("no connection");
  }
  beast::tcp_stream stream(io);
  stream.expires_after(kConnect);
  stream.async_connect(addresses, [&](error_code result, const tcp::endpoint&) { error = result; });
  RunAll(io);
  if (error) {
    return absl::UnavailableError(ConnectError(error));
  }
  http::request<http::empty_body> request(http::verb::get, "/metrics", 11);
  request.set(http::field::host, target.Text());
  request.keep_alive(false);
  beast::flat_buffer buffer(size_t{2} * kMaxHeaderBytes);
  http::response_parser<http::string_body> parser;
  parser.header_limit(kMaxHeaderBytes);
  parser.body_limit(kMaxBytes);
  const auto done = [&](error_code result, size_t /*bytes*/) { error = result; };
  stream.expires_after(kExchange);  // once for both
  http::async_write(stream, request, done);
  RunAll(io);
  if (!error) {
    http::async_read(stream, buffer, parser, done);
    RunAll(io);
  }
  if (error) {
    return absl::UnavailableError(ExchangeError(error));
  }
  if (parser.get().result_int() != 200) {
    return absl::UnavailableError("HTTP status " + std::to_string(parser.get().result_int()));
  }
  return std::move(parser.get().body());
}

bool TakePrefix(const std::string& prefix, std::string* text) {
  const bool there = text->rfind(prefix, 0) == 0;
  text->erase(0, there ? prefix.size() : 0);
  return there;
}

}  // namespace

std::string HttpTarget::Text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

absl::StatusOr<HttpTarget> ParseHttpTarget(const std::string& text) {
  std::string rest = text;
  TakePrefix("http://", &rest);
  if (!rest.empty() && rest.back() == '/') {
    rest.pop_back();
  }
  const size_t colon = rest.rfind(':');
  const absl::Status bad = absl::InvalidArgumentError(
      Quoted(text) + "; expected the HTTP address of a server (attnd --http), HOST:PORT");
  if (colon == std::string::npos || colon == 0) {
    return bad;
  }
  HttpTarget target;
  target.host = rest.substr(0, colon);
  if (target.host.front() == '[' && target.host.back() == ']') {
    target.host = target.host.substr(1, target.host.size() - 2);
  }
  const char* last = rest.data() + rest.size();
  const auto [end, error] = std::from_chars(rest.data() + colon + 1, last, target.port);
  if (error != std::errc() || end != last || target.port < 1 || target.port > 65535 ||
      target.host.find('/') != std::string::npos) {
    return bad;
  }
  return target;
}

absl::StatusOr<std::string> FetchMetrics(const HttpTarget& target) {
  try {
    return Fetch(target);
  } catch (const std::exception& e) {
    return absl::UnavailableError(e.what());
  }
}

}  // namespace attnd::attnctl
