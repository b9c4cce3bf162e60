// /status.json.
#include "server/status_document.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/layer_plan.h"
#include "nlohmann/json.hpp"

namespace attnd::server {
namespace {

using Value = nlohmann::ordered_json;

#ifdef __clang__
constexpr char kCompiler[] = "clang " __clang_version__;
#else
constexpr char kCompiler[] = "gcc " __VERSION__;
#endif

constexpr int64_t kMaxListed = 50;
constexpr int64_t kMaxLengths = 16384;  // of all layers of the sessions listed
constexpr int64_t kLookNs = 500'000'000;
constexpr int64_t kShareOfCpu = 20;

// Of the calling thread.
int64_t CpuNs() {
  timespec used = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return used.tv_sec * 1'000'000'000 + used.tv_nsec;
}

// What is no UTF-8 is replaced: an affinity key is a client's.
std::string Text(const Value& json) {
  return json.dump(-1, ' ', false, Value::error_handler_t::replace);
}

const char* State(const Admission& admission) {
  if (admission.refusing()) {
    return "refusing";
  }
  if (admission.draining()) {
    return "draining";
  }
  return admission.ready() ? "ready" : "starting";
}

Value ModelJson(const ServiceContext& service) {
  const v1::ModelInfo& model = service.model;
  const LayerPlan& plan = service.engine->plan();
  std::string layers;
  for (LayerKind kind : plan.layers) {
    layers += kind == LayerKind::kLocal ? 'L' : 'G';
  }
  return {{"name", model.name()},
          {"fingerprint", model.fingerprint()},
          {"weights", model.weights()},
          {"device", model.device()},
          {"d_model", plan.d_model},
          {"max_seq_len", plan.max_seq_len},
          {"page_tokens", model.page_tokens()},
          {"max_rewind", model.max_rewind()},
          {"cache_dtype", DTypeName(service.engine->options().cache_dtype)},
          {"layers", layers},
          {"local",
           {{"window", plan.local.window},
            {"heads", model.num_heads_q()},
            {"kv_heads", model.num_heads_kv()},
            {"head_width", model.d_head()},
            {"token_bytes", model.local_bytes_per_token()}}},
          {"global",
           {{"heads", model.num_heads_q()},
            {"latent_width", model.d_kv_compressed()},
            {"rope_width", model.d_head_rope()},
            {"token_bytes", model.global_bytes_per_token()}}}};
}

Value SessionJson(const Session& session, bool named, MonotonicNs now, int64_t wall_ns) {
  const SessionInfo info = session.Info(now, wall_ns);
  Value json;
  if (named) {
    json["id"] = info.id;
    json["affinity_key"] = info.affinity_key;
  }
  json["lengths"] = info.layer_lengths;
  json["prefix_length"] = info.prefix_length;
  json["max_tokens"] = info.max_tokens;
  json["cache_bytes"] = info.cache_bytes;
  json["reserved_bytes"] = info.reserved_bytes;
  json["age_ms"] = (wall_ns - info.create_wall_ns) / 1'000'000;
  json["created_us"] = info.create_wall_ns / 1000;  // since the Unix epoch; tells rows apart
  json["idle_ms"] = std::max<int64_t>(0, now - session.last_use()) / 1'000'000;
  json["expires_ms"] = info.expire_wall_ns == kNever
                           ? Value(nullptr)
                           : Value((info.expire_wall_ns - wall_ns) / 1'000'000);
  json["busy"] = session.held();
  return json;
}

}  // namespace

int64_t ListedSessions(int64_t num_layers) {
  return std::clamp<int64_t>(kMaxLengths / std::max<int64_t>(1, num_layers), 1, kMaxListed);
}

StatusDocument::StatusDocument(const ServiceContext& service, std::string version,
                               std::vector<ShownSetting> settings)
    : service_(service),
      version_(std::move(version)),
      settings_(std::move(settings)),
      began_(service.clock.Now()) {}

std::string StatusDocument::Sessions() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const MonotonicNs now = service_.clock.Now();
  if (now < next_look_) {
    return sessions_;
  }
  const int64_t cpu_ns = CpuNs();
  const int64_t limit = ListedSessions(service_.engine->plan().num_layers());
  const int64_t wall_ns = service_.clock.WallNs();
  Value list = Value::array();
  for (const auto& session : service_.engine->sessions().MostRecent(limit)) {
    if (session->Alive().ok()) {
      list.push_back(SessionJson(*session, !service_.auth.on(), now, wall_ns));
    }
  }
  sessions_ = Text({{"limit", limit}, {"named", !service_.auth.on()}, {"list", std::move(list)}});
  next_look_ = now + std::max(kLookNs, kShareOfCpu * (CpuNs() - cpu_ns));
  return sessions_;
}

std::string StatusDocument::Json() {
  Value json = {{"server_id", service_.server_id},
                {"version", version_},
                {"compiler", kCompiler},
                {"state", State(service_.admission)},
                {"uptime_ms", (service_.clock.Now() - began_) / 1'000'000}};
  Value flags = Value::array();
  for (const ShownSetting& setting : settings_) {
    flags.push_back({{"name", setting.name}, {"value", setting.value}, {"given", setting.given}});
  }
  json["flags"] = std::move(flags);
  // Before serving there is neither, and they are being made.
  const bool loaded = service_.admission.AdmitRead().ok();
  json["model"] = loaded ? ModelJson(service_) : Value(nullptr);
  std::string text = Text(json);
  text.pop_back();
  return absl::StrCat(text, ",\"sessions\":", loaded ? Sessions() : "null", "}");
}

}  // namespace attnd::server
