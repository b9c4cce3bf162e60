// The emulated device: what a card would run, on the CPU.
#include <cstdlib>

#include "kernels/convert.h"
#include "kernels/cuda/device.cuh"
#include "tests/gpu/device.h"

namespace attnd::gpu {
namespace {

constexpr int64_t kAlignment = 256;  // as cudaMalloc

std::vector<float> Floats(DType dtype, const void* data, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  kernels::ToFloat(dtype, data, n, values.data());
  return values;
}

}  // namespace

struct Device::State {
  DeviceInfo info{"emulated", 90, 4, 227 << 10, 228 << 10, true};
  Stream stream;
};

Device::Device() : state_(std::make_unique<State>()) {}
Device::~Device() = default;

const DeviceInfo& Device::info() const { return state_->info; }
Stream& Device::stream() { return state_->stream; }

void* Device::Allocate(int64_t bytes) {
  const int64_t rounded = (bytes + kAlignment) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, static_cast<size_t>(rounded));
  std::memset(memory, 0xff, static_cast<size_t>(rounded));
  return memory;
}

void Device::Free(void* memory) { std::free(memory); }

void Device::ToDevice(void* device, const void* host, int64_t bytes) {
  std::memcpy(device, host, static_cast<size_t>(bytes));
}
void Device::ToHost(void* host, const void* device, int64_t bytes) {
  std::memcpy(host, device, static_cast<size_t>(bytes));
}

void Device::Multiply(const Product& p) {
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t size = DTypeSize(p.dtype);
    const uint8_t* x_bytes = static_cast<const uint8_t*>(p.x) + b * p.x_batch * size;
    const uint8_t* w_bytes = static_cast<const uint8_t*>(p.w) + b * p.w_batch * size;
    const std::vector<float> x = Floats(p.dtype, x_bytes, p.rows * p.k);
    const std::vector<float> w = Floats(p.dtype, w_bytes, p.n * p.k);
    for (int64_t i = 0; i < p.rows * p.n; ++i) {
      const float* row = x.data() + i / p.n * p.k;
      const float* column = w.data() + i % p.n * p.k;
      double sum = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        sum += double{row[k]} * column[k];
      }
      p.y[b * p.y_batch + i] = static_cast<float>(sum);
    }
  }
}

// A fault has ended the process already.
void Device::Synchronize(const std::string&) {}

}  // namespace attnd::gpu
