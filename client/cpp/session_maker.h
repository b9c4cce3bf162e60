// Makes sessions so that there is never more than one of an id: a Create that was not answered may
// have made its session where calls do not go any more, and repeated under its id it makes another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/session.h"

namespace attnd::client {

class SessionMaker {
 public:
  // The sessions go on over `connection`.
  SessionMaker(std::shared_ptr<Connection> connection, CreateOptions create);

  // One try, once what is left behind is closed where calls go. The first one is under the caller's
  // id, if there is one, and so are those after it while all are known to have made nothing.
  absl::StatusOr<std::unique_ptr<Session>> Make();
  // A session of this maker is of no use any more, and may live on.
  void Leave(const std::string& id);
  // Frees what is left behind on the server to which calls go now; what fails is left.
  void CloseLeftBehind();

 private:
  std::shared_ptr<Connection> connection_;
  Client once_;
  CreateOptions create_;
  std::string next_id_;
  std::vector<std::string> left_behind_;
};

}  // namespace attnd::client
