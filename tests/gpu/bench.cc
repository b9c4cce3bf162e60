#include "tests/gpu/bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "kernels/cuda/cuda_stream.h"

namespace attnd::gpu {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", std::isfinite(value) ? value : 0.0);
  return text;
}

}  // namespace

struct Bench::Events {
  Events() {
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
  }
  ~Events() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  cudaEvent_t begin, end;
};

Bench::Bench(Device& device, const std::string& out, double seconds)
    : device_(device), events_(std::make_unique<Events>()), deadline_(Now() + seconds) {
  if (!out.empty()) {
    file_ = std::fopen(out.c_str(), "w");
    if (file_ == nullptr) {
      std::fprintf(stderr, "%s cannot be written\n", out.c_str());
      std::exit(2);
    }
  }
  const DeviceInfo& info = device.info();
  Line("{\"device\": \"" + info.name +
       "\", \"architecture\": " + std::to_string(info.architecture) +
       ", \"multiprocessors\": " + std::to_string(info.multiprocessors) + "}");
}

Bench::~Bench() {
  if (file_ != nullptr) {
    std::fclose(file_);
  }
}

void Bench::Line(const std::string& text) {
  for (std::FILE* file : {file_, stdout}) {
    if (file != nullptr) {
      std::fprintf(file, "%s\n", text.c_str());
      std::fflush(file);
    }
  }
}

double Bench::Seconds(const std::function<void()>& work) {
  const cudaStream_t stream = device_.stream().handle();
  const auto time = [&](int calls) {
    cudaEventRecord(events_->begin, stream);
    for (int i = 0; i < calls; ++i) {
      work();
    }
    cudaEventRecord(events_->end, stream);
    device_.Synchronize("a benchmark");
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, events_->begin, events_->end);
    return milliseconds / 1e3 / calls;
  };
  work();  // loads the kernel
  const double once = std::max(time(1), 1e-7);
  const int calls = static_cast<int>(std::clamp(2e-3 / once, 1.0, 200.0));
  // Nine runs, fewer where they would take more than half a second.
  const int runs = static_cast<int>(std::clamp(0.5 / (once * calls), 3.0, 9.0));
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    times.push_back(time(calls));
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[static_cast<size_t>(runs / 2)];
}

void Bench::MeasureCeilings() {
  const int64_t bytes = int64_t{2} << 30;
  {
    const Buffer<uint8_t> from(device_, bytes), to(device_, bytes);
    const double seconds = Seconds([&] {
      device_.stream().Keep(cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(bytes),
                                            cudaMemcpyDeviceToDevice, device_.stream().handle()));
    });
    ceilings_.copy_bytes_per_second = 2.0 * static_cast<double>(bytes) / seconds;
    Row("copy of 2 GiB", seconds, ceilings_.copy_bytes_per_second / 1e12, "TB/s", 1);
  }
  const int64_t n = 8192;
  // Zeros would run cooler than numbers: a repeated block of random ones.
  std::vector<uint16_t> block(static_cast<size_t>(n * n));
  uint32_t state = 1;
  for (uint16_t& element : block) {
    state = state * 1664525 + 1013904223;
    element = static_cast<uint16_t>((state >> 31) << 15 | 0x3f00 | (state >> 24 & 0x7f));
  }
  const Buffer<uint16_t> x(device_, block), w(device_, block);
  const Buffer<float> y(device_, n * n);
  Product product{DType::kBF16, x.data(), w.data(), y.data(), n, n, n};
  const double seconds = Seconds([&] { device_.Multiply(product); });
  ceilings_.bf16_flop_per_second = 2.0 * static_cast<double>(n * n * n) / seconds;
  Row("cuBLAS bf16 8192 x 8192 x 8192", seconds, ceilings_.bf16_flop_per_second / 1e12, "TFLOP/s",
      1);
}

void Bench::Row(const std::string& name, double seconds, double value, const std::string& unit,
                double share, const std::string& target, bool met) {
  Line("{\"name\": \"" + name + "\", \"us\": " + Number(seconds * 1e6) + ", \"value\": " +
       Number(value) + ", \"unit\": \"" + unit + "\", \"share\": " + Number(share) +
       ", \"target\": \"" + target + "\", \"met\": " + (met ? "true" : "false") + "}");
}

void Bench::Row(const std::string& name, double seconds, double value, const std::string& unit,
                double share) {
  Line("{\"name\": \"" + name + "\", \"us\": " + Number(seconds * 1e6) + ", \"value\": " +
       Number(value) + ", \"unit\": \"" + unit + "\", \"share\": " + Number(share) + "}");
}

bool Bench::HasTime(const std::string& next) {
  if (Now() < deadline_) {
    return true;
  }
  Line("{\"left_out\": \"" + next + "\"}");
  return false;
}

}  // namespace attnd::gpu
