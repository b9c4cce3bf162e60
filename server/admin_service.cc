// AdminService: for schedulers and operators.
#include "server/admin_service.h"

#include <numeric>

#include "server/unary_call.h"

namespace attnd::server {
namespace {

int64_t Sum(const PerKind& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::GetStats(grpc::CallbackServerContext* context,
                                                 const v1::GetStatsRequest* /*request*/,
                                                 v1::Stats* response) {
  return AnswerNow(service_, context, Method::kGetStats, [&](const Caller&) -> absl::Status {
    if (absl::Status status = service_.admission.AdmitRead(); !status.ok()) {
      return status;
    }
    const EngineStats stats = service_.engine->stats();
    response->set_server_id(service_.server_id);
    response->set_kv_cache_capacity_bytes(stats.pool.capacity_bytes);
    response->set_kv_cache_used_bytes(Sum(stats.pool.used_bytes));
    response->set_kv_cache_reserved_bytes(Sum(stats.pool.reserved_bytes));
    response->set_sessions(stats.store.sessions);
    response->set_queued_steps(stats.queued_steps);
    response->set_running_rows(stats.running_rows);
    response->set_draining(service_.admission.draining());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const v1::DrainRequest* /*request*/,
                                              v1::DrainResponse* response) {
  return AnswerNow(service_, context, Method::kDrain, [&](const Caller&) -> absl::Status {
    if (absl::Status status = service_.admission.AdmitRead(); !status.ok()) {
      return status;
    }
    service_.on_drain();
    response->set_sessions(service_.engine->stats().store.sessions);
    return absl::OkStatus();
  });
}

}  // namespace attnd::server
