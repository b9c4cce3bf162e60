// What the calls of one client share. Of this library alone: it includes the generated stubs,
// which cost seconds to compile.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "attnd/v1/attnd.grpc.pb.h"
#include "client/cpp/options.h"
#include "client/cpp/replica_watch.h"

namespace attnd::client {

struct Connection {
  Connection(const std::string& server, std::shared_ptr<grpc::Channel> open_channel,
             const ClientOptions& client_options)
      : target(server),
        options(client_options),
        channel(std::move(open_channel)),
        attention(v1::AttentionService::NewStub(channel)),
        sessions(v1::SessionService::NewStub(channel)),
        models(v1::ModelService::NewStub(channel)),
        admin(v1::AdminService::NewStub(channel)) {}

  const std::string target;
  const ClientOptions options;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::AttentionService::Stub> attention;
  const std::unique_ptr<v1::SessionService::Stub> sessions;
  const std::unique_ptr<v1::ModelService::Stub> models;
  const std::unique_ptr<v1::AdminService::Stub> admin;

  // Shared by connections that differ in how often they repeat calls.
  std::shared_ptr<ReplicaWatch> replica = std::make_shared<ReplicaWatch>();

  std::mutex mutex;
  std::optional<v1::ModelInfo> model;  // guarded by mutex; asked for once
};

}  // namespace attnd::client
