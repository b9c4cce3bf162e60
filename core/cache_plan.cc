// Bytes of caches.
#include "core/cache_plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "core/error.h"
#include "core/planner.h"
#include "kernels/params.h"

namespace attnd {
namespace {

absl::Status CheckRange(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value < min || value > max) {
    return MakeError(Reason::kBadArgument,
                     absl::StrFormat("%s is %d; expected %d to %d", name, value, min, max));
  }
  return absl::OkStatus();
}

absl::Status CheckQuestion(const CacheQuestion& question) {
  absl::Status status = CheckRange("context", question.context, 1, int64_t{1} << 24);
  status.Update(CheckRange("sessions", question.sessions, 1, int64_t{1} << 30));
  status.Update(CheckRange("max_rewind", question.max_rewind, 0, int64_t{1} << 31));
  return status;
}

int64_t Pages(int64_t tokens) { return (tokens + kernels::kPageTokens - 1) / kernels::kPageTokens; }

void FillTokens(const ModelConfig& config, DType cache_dtype, CachePlan* plan) {
  plan->global_layers = config.n_layers / config.global_layer_freq;
  plan->local_layers = config.n_layers - plan->global_layers;
  plan->mha_token_bytes = MhaTokenBytes(config, cache_dtype);
  plan->gqa_token_bytes = GqaTokenBytes(config, cache_dtype);
  plan->mla_token_bytes = MlaTokenBytes(config, cache_dtype);
  plan->token_bytes_past_window = plan->global_layers * plan->mla_token_bytes;
  plan->token_bytes = plan->local_layers * plan->gqa_token_bytes + plan->token_bytes_past_window;
}

void FillSession(const ModelConfig& config, const CacheQuestion& question, CachePlan* plan) {
  const int64_t context = question.context;
  const int64_t windowed = std::min(context, config.local_window);
  plan->session_local_bytes = plan->local_layers * windowed * plan->gqa_token_bytes;
  plan->session_global_bytes = plan->global_layers * context * plan->mla_token_bytes;
  plan->session_bytes = plan->session_local_bytes + plan->session_global_bytes;
  plan->session_mha_bytes = config.n_layers * context * plan->mha_token_bytes;
  plan->session_gqa_bytes = config.n_layers * context * plan->gqa_token_bytes;
  plan->session_mla_bytes = config.n_layers * context * plan->mla_token_bytes;
  const int64_t global_pages = Pages(context);
  const int64_t local_pages =
      std::min(global_pages, Pages(config.local_window + question.max_rewind) + 1);
  plan->session_page_bytes =
      kernels::kPageTokens * (plan->local_layers * local_pages * plan->gqa_token_bytes +
                              plan->global_layers * global_pages * plan->mla_token_bytes);
  plan->window_saving = static_cast<double>(context) / static_cast<double>(windowed);
  plan->decode_flop = static_cast<double>(plan->local_layers) * LocalDecodeFlop(config, context) +
                      static_cast<double>(plan->global_layers) * GlobalDecodeFlop(config, context);
}

}  // namespace

absl::StatusOr<CachePlan> PlanCache(const ModelConfig& config, const CacheQuestion& question) {
  if (absl::Status status = CheckQuestion(question); !status.ok()) {
    return status;
  }
  CachePlan plan;
  FillTokens(config, question.cache_dtype, &plan);
  FillSession(config, question, &plan);
  // A session's bytes fit by the limits of a configuration; many sessions' may not.
  const int64_t largest = std::max(plan.session_page_bytes, plan.session_bytes);
  if (question.sessions > std::numeric_limits<int64_t>::max() / largest) {
    return MakeError(Reason::kBadArgument,
                     absl::StrFormat("sessions is %d with %d bytes each; expected a total below "
                                     "2^63 bytes",
                                     question.sessions, largest));
  }
  plan.total_bytes = question.sessions * plan.session_bytes;
  plan.total_page_bytes = question.sessions * plan.session_page_bytes;
  return plan;
}

}  // namespace attnd
