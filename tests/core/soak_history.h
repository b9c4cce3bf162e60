// What a soaked session holds as its client knows it: the wire contract's rules of positions once
// more, as plainly as they can be written, and the rows to expect.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/layer_plan.h"
#include "core/step.h"
#include "core/weights.h"

namespace attnd {

// Sequences of rows with one prefix length. They agree up to a branch point and differ behind it: a
// layer that was cut goes on with any that agrees up to there, so that rows which should have been
// cut away, or those of another session, show in the answers.
struct SoakFamily {
  int64_t prefix = 0;
  int64_t rows = 0;
  std::vector<int64_t> branch;  // of each variant, where it leaves variant 0; 0's own is `rows`
  std::vector<std::vector<std::vector<float>>> hidden;   // [variant][layer][rows * d_model]
  std::vector<std::vector<std::vector<float>>> answers;  // likewise, in float64

  // How many first rows of two variants agree.
  int64_t Common(size_t a, size_t b) const;
};

SoakFamily MakeSoakFamily(const LayerPlan& plan, WeightSource* weights, int64_t prefix,
                          int64_t rows, const std::vector<int64_t>& branches, uint64_t seed);

// Rows of a variant for one layer.
struct SoakStep {
  bool decode = false;
  size_t layer = 0;
  int64_t position = 0;
  int64_t rows = 0;
  size_t variant = 0;
  bool rewind = false;
  OutputRows output_rows = OutputRows::kAll;

  int64_t end() const { return position + rows; }
};

class SoakHistory {
 public:
  struct Layer {
    int64_t length = 0;
    int64_t first = 0;       // the oldest token that a cut may rely on
    int64_t last_start = 0;  // where the last step began; -1: no step can be repeated
    size_t variant = 0;
  };

  // The plan and the family outlive the history. `max_tokens` 0: no cap.
  SoakHistory(const LayerPlan& plan, const SoakFamily& family, int64_t max_rewind,
              int64_t max_tokens);

  const SoakFamily& family() const { return *family_; }
  const Layer& layer(size_t i) const { return layers_[i]; }
  int64_t longest() const;
  int64_t limit() const;  // of a layer's length
  bool reserved() const { return max_tokens_ > 0; }

  // The reason with which a step, or a cut of one layer, is refused now; nullopt: it is not.
  std::optional<Reason> Refusal(const SoakStep& step) const;
  std::optional<Reason> CutRefusal(size_t layer, int64_t position) const;
  // Of a rewind of all layers; several reasons may be given.
  std::vector<Reason> RewindRefusals(int64_t position) const;
  // Likewise of a fork of [0, position), or of position 0 of each layer as it is.
  std::vector<Reason> ForkRefusals(int64_t position, int64_t max_tokens) const;

  void Apply(const SoakStep& step);
  void ApplyRewind(int64_t position);
  // The history becomes that of the fork.
  void ApplyFork(int64_t position, int64_t max_tokens);

  std::vector<float> Hidden(const SoakStep& step) const;
  // The answered rows; `*position` is that of the first.
  std::vector<float> Expected(const SoakStep& step, int64_t* position) const;

 private:
  std::optional<Reason> ForkRefusal(size_t layer, int64_t position) const;
  static void Cut(Layer* layer, int64_t position);
  std::vector<float> Slice(const std::vector<float>& rows, int64_t begin, int64_t end) const;

  const LayerPlan* plan_;
  const SoakFamily* family_;
  int64_t max_rewind_;
  int64_t max_tokens_;
  std::vector<Layer> layers_;
};

}  // namespace attnd
