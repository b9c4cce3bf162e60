// What a session was sent: enough to make it anew.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attnd::client {

class History {
 public:
  // `max_bytes`, 0 for no limit: beyond it everything is let go.
  History(int64_t num_layers, int64_t d_model, int64_t max_bytes);

  // The layer was cut to `position`, and rows [n, d_model] were appended.
  void Put(int64_t layer, int64_t position, std::span<const float> rows);
  // Every layer longer than `position` was cut to it.
  void Cut(int64_t position);

  int64_t length(int64_t layer) const;
  // Rows [begin, end) of the layer.
  std::span<const float> Rows(int64_t layer, int64_t begin, int64_t end) const;
  // Where a replay of [begin, length) must not go on in the same call: the last step can be
  // repeated, so it is sent alone. The length, when there is nothing to stop for.
  int64_t NextStop(int64_t layer, int64_t begin) const;

  int64_t bytes() const { return bytes_; }
  // Whether a session can be made from it.
  bool complete() const { return complete_; }

 private:
  struct Layer {
    std::vector<float> rows;
    int64_t last_start = 0;  // of the last step
  };

  void CutLayer(int64_t position, Layer* layer);
  void LetGo();

  const int64_t d_model_;
  const int64_t max_bytes_;
  std::vector<Layer> layers_;
  int64_t bytes_ = 0;
  bool complete_ = true;
};

}  // namespace attnd::client
