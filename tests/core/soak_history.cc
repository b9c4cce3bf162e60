#include "tests/core/soak_history.h"

#include <algorithm>

#include "tests/support/reference_answers.h"
#include "tests/support/test_engine.h"

namespace attnd {

int64_t SoakFamily::Common(size_t a, size_t b) const {
  return a == b ? rows : std::min(branch[a], branch[b]);
}

SoakFamily MakeSoakFamily(const LayerPlan& plan, WeightSource* weights, int64_t prefix,
                          int64_t rows, const std::vector<int64_t>& branches, uint64_t seed) {
  SoakFamily family{prefix, rows, {rows}, {}, {}};
  family.branch.insert(family.branch.end(), branches.begin(), branches.end());
  for (size_t variant = 0; variant < family.branch.size(); ++variant) {
    auto& hidden = family.hidden.emplace_back();
    auto& answers = family.answers.emplace_back();
    for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
      const uint64_t own = seed * 1000 + variant * 100 + static_cast<uint64_t>(layer);
      hidden.push_back(RandomRows(own, rows, plan.d_model));
      if (variant > 0) {
        const std::vector<float>& base = family.hidden[0][static_cast<size_t>(layer)];
        std::copy_n(base.begin(), family.branch[variant] * plan.d_model, hidden.back().begin());
      }
      answers.push_back(ReferenceAnswers(plan, weights, layer, hidden.back(), prefix));
    }
  }
  return family;
}

SoakHistory::SoakHistory(const LayerPlan& plan, const SoakFamily& family, int64_t max_rewind,
                         int64_t max_tokens)
    : plan_(&plan),
      family_(&family),
      max_rewind_(max_rewind),
      max_tokens_(max_tokens),
      layers_(plan.layers.size()) {}

int64_t SoakHistory::limit() const {
  return max_tokens_ > 0 ? std::min(max_tokens_, family_->rows) : family_->rows;
}

int64_t SoakHistory::longest() const {
  int64_t longest = 0;
  for (const Layer& layer : layers_) {
    longest = std::max(longest, layer.length);
  }
  return longest;
}

std::optional<Reason> SoakHistory::CutRefusal(size_t i, int64_t position) const {
  const Layer& layer = layers_[i];
  if (position == 0 || position == layer.length || position == layer.last_start) {
    return std::nullopt;
  }
  if (position < family_->prefix && layer.length >= family_->prefix) {
    return Reason::kPrefixAnswered;
  }
  if (plan_->layers[i] == LayerKind::kLocal && layer.first > 0 &&
      position < layer.first + plan_->local.window) {
    return Reason::kRewindTooFar;
  }
  return std::nullopt;
}

std::optional<Reason> SoakHistory::Refusal(const SoakStep& step) const {
  const int64_t length = layers_[step.layer].length;
  if (max_tokens_ > 0 && step.end() > max_tokens_) {
    return Reason::kPastMaxTokens;
  }
  if (step.position > length || (step.position < length && !step.rewind)) {
    return Reason::kPositionMismatch;
  }
  if (const auto refusal = CutRefusal(step.layer, step.position)) {
    return refusal;
  }
  if (step.decode && step.position < family_->prefix) {
    return Reason::kPrefixIncomplete;
  }
  return std::nullopt;
}

std::vector<Reason> SoakHistory::RewindRefusals(int64_t position) const {
  std::vector<Reason> reasons;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].length > position) {
      if (const auto reason = CutRefusal(i, position)) {
        reasons.push_back(*reason);
      }
    }
  }
  return reasons;
}

std::optional<Reason> SoakHistory::ForkRefusal(size_t i, int64_t position) const {
  const int64_t length = layers_[i].length;
  if (length > 0 && length < family_->prefix) {
    return Reason::kPrefixIncomplete;
  }
  if (position == 0) {
    return std::nullopt;
  }
  if (position > length) {
    return Reason::kPositionMismatch;
  }
  if (const auto refusal = CutRefusal(i, position)) {
    return refusal;
  }
  // The step that completed the prefix could be repeated here, but not in a fork.
  return position < family_->prefix ? std::optional(Reason::kPrefixAnswered) : std::nullopt;
}

std::vector<Reason> SoakHistory::ForkRefusals(int64_t position, int64_t max_tokens) const {
  std::vector<Reason> reasons;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (const auto reason = ForkRefusal(i, position)) {
      reasons.push_back(*reason);
    }
  }
  const int64_t kept = position > 0 ? position : longest();
  if (max_tokens > 0 && kept > max_tokens) {
    reasons.push_back(Reason::kPastMaxTokens);
  }
  return reasons;
}

void SoakHistory::Cut(Layer* layer, int64_t position) {
  if (position == 0) {
    *layer = Layer{};
    return;
  }
  layer->length = position;
  layer->last_start = position < layer->last_start ? -1 : layer->last_start;
}

void SoakHistory::Apply(const SoakStep& step) {
  Layer& layer = layers_[step.layer];
  if (step.position < layer.length) {
    Cut(&layer, step.position);
  }
  layer.length = step.end();
  layer.last_start = step.position;
  layer.variant = step.variant;
  if (plan_->layers[step.layer] == LayerKind::kLocal && step.end() >= family_->prefix) {
    layer.first = std::max(layer.first, step.end() - plan_->local.window - max_rewind_);
  }
}

void SoakHistory::ApplyRewind(int64_t position) {
  for (Layer& layer : layers_) {
    if (layer.length > position) {
      Cut(&layer, position);
    }
  }
}

void SoakHistory::ApplyFork(int64_t position, int64_t max_tokens) {
  if (position > 0) {
    ApplyRewind(position);
  }
  max_tokens_ = max_tokens;
}

std::vector<float> SoakHistory::Slice(const std::vector<float>& rows, int64_t begin,
                                      int64_t end) const {
  return {rows.begin() + begin * plan_->d_model, rows.begin() + end * plan_->d_model};
}

std::vector<float> SoakHistory::Hidden(const SoakStep& step) const {
  const std::vector<float>& rows = family_->hidden[step.variant][step.layer];
  // A step past the end will be refused; any rows do.
  const int64_t begin = step.end() <= family_->rows ? step.position : 0;
  return Slice(rows, begin, begin + step.rows);
}

std::vector<float> SoakHistory::Expected(const SoakStep& step, int64_t* position) const {
  int64_t begin = step.position;
  int64_t end = step.end();
  if (!step.decode) {
    if (end < family_->prefix || step.output_rows == OutputRows::kNone) {
      end = begin;
    } else if (step.output_rows == OutputRows::kLast) {
      begin = end - 1;
    } else if (begin < family_->prefix) {
      begin = 0;
    }
  }
  *position = begin;
  return Slice(family_->answers[step.variant][step.layer], begin, end);
}

}  // namespace attnd
