// A ragged attention problem: its data in a poisoned pool, its answer from the reference.
//
// Every byte of the pool that no row sees is 0xff (a NaN in every dtype) and every page table
// entry that no row needs points nowhere, so that a wrong read shows.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/attention.h"
#include "tests/kernels/compare.h"

namespace attnd::kernels {

// Rows of a sequence by the keys they see.
using Intervals = std::vector<ReferenceInterval>;

// Rows at positions [begin, end) of a session.
Intervals RowsOf(int64_t begin, int64_t end, int64_t prefix, int64_t window);

std::unique_ptr<Backend> MakeBackend(const std::string& isa, int threads);

// What both layer kinds share: page tables, intervals, and the pool.
class AttentionCase {
 public:
  AttentionCase(DType dtype, std::vector<Intervals> sequences, uint64_t seed);
  virtual ~AttentionCase() = default;

  DType dtype() const { return dtype_; }
  int64_t rows() const { return static_cast<int64_t>(lo_.size()); }
  BatchLimits Limits() const;

 protected:
  // Pages for all sequences in shuffled order in a pool.
  void MakePool(int64_t page_bytes);
  AttentionBatch Batch(double scale) const;
  // The batch with only some sequences: their rows keep their places.
  AttentionBatch BatchOf(int64_t sequence, double scale) const;
  bool Sees(int64_t sequence, int64_t token) const;
  // Calls f(sequence, token, page bytes, slot) for every token that some row sees.
  template <typename F>
  void ForTokens(const F& f) {
    for (size_t s = 0; s < intervals_.size(); ++s) {
      for (int64_t token = first_[s]; token < end_[s]; ++token) {
        if (Sees(static_cast<int64_t>(s), token)) {
          f(static_cast<int64_t>(s), token, Page(static_cast<int64_t>(s), token),
            static_cast<int32_t>(token % kPageTokens));
        }
      }
    }
  }
  int64_t Page(int64_t sequence, int64_t token) const;
  int64_t SequenceOf(int64_t row) const;
  AppendTarget OneRow(const int64_t* page, const int32_t* slot, uint8_t* not_finite);

  DType dtype_;
  Random random_;
  std::vector<Intervals> intervals_;
  std::vector<int64_t> first_, end_;  // tokens that a sequence has, by its rows' intervals
  std::vector<int64_t> lo_, hi_;
  std::vector<std::vector<int64_t>> pages_;
  std::vector<AttentionSequence> sequences_;
  std::vector<uint8_t> pool_;
};

class LocalCase : public AttentionCase {
 public:
  LocalCase(const LocalShape& shape, DType dtype, std::vector<Intervals> sequences, uint64_t seed);

  // Before Store(): the data, to be bent by a test. Keys and values of token t of sequence s.
  std::vector<float>& query() { return query_; }
  float* Key(int64_t sequence, int64_t token, int64_t head);
  float* Value(int64_t sequence, int64_t token, int64_t head);
  // Writes the keys and values into the pool and rounds them to the dtype: Want() is before it of
  // the data as made, and after it of the data as stored.
  void Store(Backend& backend);

  // The backend prepared for this case. `only` picks a sequence; -1 = all.
  std::vector<float> Run(Backend& backend, int64_t only = -1) const;
  LocalAttentionParams Params(float* output, int64_t only = -1) const;
  std::vector<double> Want() const;
  const LocalShape& shape() const { return shape_; }
  double scale = 0;

 private:
  LocalShape shape_;
  std::vector<float> query_;
  std::vector<std::vector<float>> key_, value_;  // [sequence][token - first][head][d_head]
};

class GlobalCase : public AttentionCase {
 public:
  GlobalCase(const GlobalShape& shape, DType cache, DType weights, std::vector<Intervals> sequences,
             uint64_t seed);

  void Store(Backend& backend);
  std::vector<float> RunExpanded(Backend& backend, int64_t only = -1) const;
  // In the space of latents, and taken on to [rows][heads_q][d_head] by the value expansion.
  std::vector<float> RunLatent(Backend& backend, int64_t only = -1) const;
  std::vector<float> RunAbsorbed(Backend& backend) const;
  // Over a shadow filled `rows_at_once` rows at a time (shadow_case.cc).
  std::vector<float> RunShadow(Backend& backend, int64_t rows_at_once = INT64_MAX,
                               int64_t only = -1);
  std::vector<double> Want() const;
  const GlobalShape& shape() const { return shape_; }
  LatentAttentionParams LatentParams(const float* latent_query, float* output, int64_t only) const;
  ExpandedAttentionParams ExpandedParams(float* output, int64_t only) const;
  std::vector<float> LatentQuery(Backend& backend) const;
  // Before Store(): the data, to be bent by a test.
  std::vector<float>& latent_query_values() { return query_; }
  std::vector<float>& rope_query() { return rope_query_; }
  std::vector<float>& rope_key(int64_t sequence) {
    return rope_key_[static_cast<size_t>(sequence)];
  }
  double scale = 0;

 private:
  void MakeShadow();
  void FillShadow(Backend& backend, int64_t rows_at_once);

  GlobalShape shape_;
  DType weight_dtype_;
  std::vector<float> query_, rope_query_;
  std::vector<std::vector<float>> latent_, rope_key_;
  std::vector<float> w_uk_, w_uv_;  // [heads_kv][d_head][d_latent], as stored
  std::unique_ptr<PackedWeight> expand_key_, expand_value_, absorb_key_;
  std::vector<uint8_t> shadow_;
  std::vector<std::vector<int64_t>> shadow_pages_;
  std::vector<AttentionSequence> shadow_sequences_;
};

}  // namespace attnd::kernels
