// Latencies in buckets that grow with them.
#include "client/attnctl/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace attnd::attnctl {
namespace {

// Buckets of each doubling. Times below twice as many nanoseconds have a bucket each.
constexpr uint64_t kPerDoubling = 128;
constexpr int kMantissaBits = 8;

size_t BucketOf(int64_t ns) {
  const auto value = static_cast<uint64_t>(ns);
  const int shift = std::max(0, static_cast<int>(std::bit_width(value)) - kMantissaBits);
  return static_cast<size_t>(static_cast<uint64_t>(shift) * kPerDoubling + (value >> shift));
}

int64_t UpperEnd(size_t bucket) {
  if (bucket < 2 * kPerDoubling) {
    return static_cast<int64_t>(bucket);
  }
  const uint64_t shift = bucket / kPerDoubling - 1;
  const uint64_t mantissa = bucket - shift * kPerDoubling;
  return static_cast<int64_t>(((mantissa + 1) << shift) - 1);
}

}  // namespace

void LatencyHistogram::Add(int64_t ns) {
  ns = std::max<int64_t>(0, ns);
  const size_t bucket = BucketOf(ns);
  if (bucket >= counts_.size()) {
    counts_.resize(bucket + 1);
  }
  ++counts_[bucket];
  ++count_;
  max_ns_ = std::max(max_ns_, ns);
  sum_ns_ += static_cast<double>(ns);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  counts_.resize(std::max(counts_.size(), other.counts_.size()));
  for (size_t i = 0; i < other.counts_.size(); ++i) {
    counts_[i] += other.counts_[i];
  }
  count_ += other.count_;
  max_ns_ = std::max(max_ns_, other.max_ns_);
  sum_ns_ += other.sum_ns_;
}

double LatencyHistogram::mean_ns() const {
  return count_ > 0 ? sum_ns_ / static_cast<double>(count_) : 0;
}

int64_t LatencyHistogram::QuantileNs(double q) const {
  const auto rank = static_cast<int64_t>(std::ceil(q * static_cast<double>(count_)));
  int64_t below = 0;
  for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    below += counts_[bucket];
    if (below >= std::max<int64_t>(1, rank)) {
      return std::min(UpperEnd(bucket), max_ns_);
    }
  }
  return max_ns_;
}

}  // namespace attnd::attnctl
