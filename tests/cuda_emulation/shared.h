// Shared memory as kernels see it: every access is checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "cuda_emulation/machine.h"
#include "cuda_emulation/site.h"

namespace attnd::kernels::cuda {

struct alignas(16) Uint4 {
  uint32_t x, y, z, w;
};

template <typename T>
struct Shared {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);

  int64_t begin = 0;  // in bytes, from the block's first
  int64_t count = 0;

  T Load(int i, emulation::Site site = emulation::Here()) const {
    T v;
    std::memcpy(&v,
                emulation::Machine::Current().ReadShared("Load", site, Offset(i, sizeof(T), site),
                                                         sizeof(T)),
                sizeof(T));
    return v;
  }
  void Store(int i, T v, emulation::Site site = emulation::Here()) const {
    std::memcpy(emulation::Machine::Current().WriteShared("Store", site, Offset(i, sizeof(T), site),
                                                          sizeof(T)),
                &v, sizeof(T));
  }
  // What begins `offset` elements further.
  Shared At(int offset, emulation::Site site = emulation::Here()) const {
    if (offset < 0 || offset > count) {
      OutOfBounds(offset, site);
    }
    return {begin + offset * int64_t{sizeof(T)}, count - offset};
  }
  // The same bytes as elements of another type.
  template <typename U>
  Shared<U> As() const {
    return {begin, count * int64_t{sizeof(T)} / int64_t{sizeof(U)}};
  }
  // What is done through it is not checked.
  void* Address(int i, emulation::Site site = emulation::Here()) const {
    return emulation::Machine::Current().SharedAddress(site, Offset(i, sizeof(T), site), sizeof(T));
  }

  // For the emulation: the byte of shared memory where element i begins; `bytes` from there on are
  // in the array.
  int64_t Offset(int i, int bytes, emulation::Site site) const {
    const int64_t size = sizeof(T);
    if (i < 0 || i * size + bytes > count * size) {
      OutOfBounds(i, site);
    }
    if ((begin + i * size) % alignof(T) != 0) {
      emulation::Machine::Current().Fault("element " + std::to_string(i) + " at " + ToString(site) +
                                          " is not aligned to its type");
    }
    return begin + i * size;
  }

 private:
  void OutOfBounds(int i, emulation::Site site) const {
    emulation::Machine::Current().Fault("element " + std::to_string(i) + " of a shared array of " +
                                        std::to_string(count) + " at " + ToString(site));
  }
};

// Cuts the block's shared memory into arrays.
class SharedCarver {
 public:
  template <typename T>
  Shared<T> Take(int count, emulation::Site site = emulation::Here()) {
    taken_ = (taken_ + 127) / 128 * 128;
    const Shared<T> array{taken_, count};
    taken_ += count * int64_t{sizeof(T)};
    if (count < 0 || taken_ > emulation::Machine::Current().shared_bytes()) {
      emulation::Machine::Current().Fault(
          "Take() at " + ToString(site) + ": the arrays need " + std::to_string(taken_) +
          " bytes of shared memory, the launch has " +
          std::to_string(emulation::Machine::Current().shared_bytes()));
    }
    return array;
  }

 private:
  int64_t taken_ = 0;
};

}  // namespace attnd::kernels::cuda
