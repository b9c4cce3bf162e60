// The sessions of the fake server: made, looked at, listed, cut and closed.
#include <algorithm>
#include <iterator>
#include <string>

#include "tests/client/fake_server.h"

namespace attnd::client {

void FakeServer::Fill(const std::string& id, v1::Session* session) {
  session->set_session_id(id);
  for (int64_t length : sessions_.at(id)) {
    session->add_layer_lengths(length);
  }
  session->set_affinity_key(export_.affinity_key);
}

grpc::Status FakeServer::CreateSession(grpc::ServerContext* context,
                                       const v1::CreateSessionRequest* request,
                                       v1::Session* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++creates_;
  const Failure failure = TakeFailure(context);
  if (failure.code != grpc::StatusCode::OK && !failure.after) {
    return Fail(context, failure);
  }
  if (sessions_.count(request->session_id()) > 0) {
    return Fail(context, {grpc::StatusCode::ALREADY_EXISTS, "SESSION_EXISTS"});
  }
  sessions_[request->session_id()].assign(kLayers, 0);
  Fill(request->session_id(), response);
  return failure.code == grpc::StatusCode::OK ? grpc::Status::OK : Fail(context, failure);
}

grpc::Status FakeServer::GetSession(grpc::ServerContext* context,
                                    const v1::GetSessionRequest* request, v1::Session* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  Tell(context);
  if (sessions_.count(request->session_id()) == 0) {
    return Fail(context, {grpc::StatusCode::NOT_FOUND, "SESSION_UNKNOWN"});
  }
  Fill(request->session_id(), response);
  return grpc::Status::OK;
}

// A session a page: the client must follow the tokens.
grpc::Status FakeServer::ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest* request,
                                      v1::ListSessionsResponse* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pages_ != Pages::kEnd) {
    if (pages_ == Pages::kRepeat) {
      Fill(sessions_.begin()->first, response->add_sessions());
    }
    response->set_next_page_token("again");
    return grpc::Status::OK;
  }
  auto it = sessions_.upper_bound(request->page_token());
  if (it != sessions_.end()) {
    Fill(it->first, response->add_sessions());
    if (std::next(it) != sessions_.end()) {
      response->set_next_page_token(it->first);
    }
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::RewindSession(grpc::ServerContext* context,
                                       const v1::RewindSessionRequest* request,
                                       v1::Session* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (moving_.count(request->session_id()) > 0) {
    return Fail(context, {grpc::StatusCode::UNAVAILABLE, "SESSION_MOVING"});
  }
  const auto it = sessions_.find(request->session_id());
  if (it == sessions_.end()) {
    return Fail(context, {grpc::StatusCode::NOT_FOUND, "SESSION_UNKNOWN"});
  }
  for (int64_t& length : it->second) {
    length = std::min(length, request->position());
  }
  Fill(request->session_id(), response);
  return grpc::Status::OK;
}

grpc::Status FakeServer::CloseSession(grpc::ServerContext* context,
                                      const v1::CloseSessionRequest* request,
                                      v1::CloseSessionResponse* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Failure failure = TakeFailure(context);
  moving_.erase(request->session_id());
  if (sessions_.erase(request->session_id()) == 0) {
    return Fail(context, {grpc::StatusCode::NOT_FOUND, "SESSION_CLOSED"});
  }
  response->set_freed_bytes(4096);
  return failure.after ? Fail(context, failure) : grpc::Status::OK;
}

}  // namespace attnd::client
