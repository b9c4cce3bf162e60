#include "client/cpp/history.h"

#include <algorithm>

namespace attnd::client {

History::History(int64_t num_layers, int64_t d_model, int64_t max_bytes)
    : d_model_(d_model), max_bytes_(max_bytes), layers_(static_cast<size_t>(num_layers)) {}

int64_t History::length(int64_t layer) const {
  return static_cast<int64_t>(layers_[static_cast<size_t>(layer)].rows.size()) / d_model_;
}

void History::CutLayer(int64_t position, Layer* layer) {
  const auto values = static_cast<size_t>(position * d_model_);
  if (values < layer->rows.size()) {
    bytes_ -= static_cast<int64_t>((layer->rows.size() - values) * sizeof(float));
    layer->rows.resize(values);
  }
  layer->last_start = std::min(layer->last_start, position);
}

void History::Put(int64_t layer, int64_t position, std::span<const float> rows) {
  if (!complete_) {
    return;
  }
  if (position > length(layer)) {  // rows that were never seen here are before these
    LetGo();
    return;
  }
  Layer& kept = layers_[static_cast<size_t>(layer)];
  CutLayer(position, &kept);
  kept.last_start = position;
  kept.rows.insert(kept.rows.end(), rows.begin(), rows.end());
  bytes_ += static_cast<int64_t>(rows.size() * sizeof(float));
  if (max_bytes_ > 0 && bytes_ > max_bytes_) {
    LetGo();
  }
}

void History::Cut(int64_t position) {
  for (Layer& layer : layers_) {
    CutLayer(position, &layer);
  }
}

std::span<const float> History::Rows(int64_t layer, int64_t begin, int64_t end) const {
  return std::span<const float>(layers_[static_cast<size_t>(layer)].rows)
      .subspan(static_cast<size_t>(begin * d_model_),
               static_cast<size_t>((end - begin) * d_model_));
}

int64_t History::NextStop(int64_t layer, int64_t begin) const {
  const int64_t last = layers_[static_cast<size_t>(layer)].last_start;
  return begin < last ? last : length(layer);
}

void History::LetGo() {
  layers_ = std::vector<Layer>(layers_.size());  // assign() would keep the memory of each
  bytes_ = 0;
  complete_ = false;
}

}  // namespace attnd::client
