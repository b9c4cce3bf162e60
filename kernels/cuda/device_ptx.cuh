// What device.cuh lists, for nvcc: the instructions of sm_80 and later.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/element.cuh"

namespace attnd::kernels::cuda {

struct Index3 {
  int x = 1, y = 1, z = 1;
};

struct alignas(16) Uint4 {
  uint32_t x, y, z, w;
};

__device__ __forceinline__ Index3 BlockIndex() {
  return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z)};
}
__device__ __forceinline__ Index3 GridSize() {
  return {static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), static_cast<int>(gridDim.z)};
}
__device__ __forceinline__ int ThreadIndex() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int LaneIndex() { return ThreadIndex() % 32; }
__device__ __forceinline__ int WarpIndex() { return ThreadIndex() / 32; }

extern __shared__ __align__(1024) unsigned char block_shared_memory[];

// A plain pointer: once all is inlined, the compiler knows that it points to shared memory.
template <typename T>
struct Shared {
  T* data = nullptr;

  __device__ __forceinline__ T Load(int i) const { return data[i]; }
  __device__ __forceinline__ void Store(int i, T v) const { data[i] = v; }
  __device__ __forceinline__ Shared At(int offset) const { return {data + offset}; }
  template <typename U>
  __device__ __forceinline__ Shared<U> As() const {
    return {reinterpret_cast<U*>(data)};
  }
  __device__ __forceinline__ void* Address(int i) const { return data + i; }
  // As instructions on shared memory want it.
  __device__ __forceinline__ uint32_t SharedAddress(int i) const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(data + i));
  }
};

class SharedCarver {
 public:
  __device__ __forceinline__ SharedCarver() {}

  template <typename T>
  __device__ __forceinline__ Shared<T> Take(int count) {
    taken_ = (taken_ + 127) / 128 * 128;
    const Shared<T> array{reinterpret_cast<T*>(block_shared_memory + taken_)};
    taken_ += count * static_cast<int>(sizeof(T));
    return array;
  }

 private:
  int taken_ = 0;
};

__device__ __forceinline__ void SyncBlock() { __syncthreads(); }
__device__ __forceinline__ void SyncWarp() { __syncwarp(); }

template <typename T>
__device__ __forceinline__ T Shuffle(T v, int lane) {
  static_assert(sizeof(T) == 4);
  return __shfl_sync(0xffffffffu, v, lane);
}
template <typename T>
__device__ __forceinline__ T ShuffleXor(T v, int mask) {
  static_assert(sizeof(T) == 4);
  return __shfl_xor_sync(0xffffffffu, v, mask);
}
__device__ __forceinline__ bool Any(bool v) { return __any_sync(0xffffffffu, v) != 0; }

template <typename E>
__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  static_assert(std::is_same_v<E, BF16> || std::is_same_v<E, F16>);
  if constexpr (std::is_same_v<E, BF16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

// "memory" in what follows: the compiler does not know that the instruction reads or writes what
// plain loads and stores do too.
__device__ __forceinline__ void LoadMatrix4(uint32_t (&r)[4], const Shared<uint16_t>& s, int i) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(s.SharedAddress(i))
               : "memory");
}

__device__ __forceinline__ void LoadMatrix4Transposed(uint32_t (&r)[4], const Shared<uint16_t>& s,
                                                      int i) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(s.SharedAddress(i))
               : "memory");
}

// .cg: around L1, which has no use for what goes to shared memory. What is beyond the source's size
// is filled with zeros.
template <typename T>
__device__ __forceinline__ void CopyAsync16(const Shared<T>& s, int i, const void* global,
                                            bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(s.SharedAddress(i)), "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void CopyAsyncCommit() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}

template <int kNewest>
__device__ __forceinline__ void CopyAsyncWait() {
  static_assert(kNewest >= 0);
  asm volatile("cp.async.wait_group %0;" : : "n"(kNewest) : "memory");
}

// Relative error below 2^-22 (PTX ISA, ex2.approx.ftz); denormal results become 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float Reciprocal(float x) { return __frcp_rn(x); }

__device__ __forceinline__ int AtomicAdd(int* global, int v) { return atomicAdd(global, v); }

__device__ __forceinline__ void Fence() { __threadfence(); }

// .cg: from L2, where other multiprocessors' writes are; L1 may hold what was there before.
template <typename T>
__device__ __forceinline__ T LoadGlobal(const T* global) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) == sizeof(T));
  const auto address = __cvta_generic_to_global(global);
  T v;
  if constexpr (sizeof(T) == 4) {
    uint32_t bits;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(bits) : "l"(address) : "memory");
    __builtin_memcpy(&v, &bits, sizeof(v));
  } else if constexpr (sizeof(T) == 8) {
    uint64_t bits;
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(bits) : "l"(address) : "memory");
    __builtin_memcpy(&v, &bits, sizeof(v));
  } else {
    Uint4 bits;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(address)
                 : "memory");
    __builtin_memcpy(&v, &bits, sizeof(v));
  }
  return v;
}

template <typename Params>
void Launch(Stream& stream, void (*kernel)(Params), Index3 grid, int threads, int shared_bytes,
            const Params& params) {
  static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= 4096);
  const void* function = reinterpret_cast<const void*>(kernel);
  stream.AllowShared(function, shared_bytes);
  void* arguments[] = {const_cast<Params*>(&params)};
  stream.Keep(cudaLaunchKernel(function, dim3(grid.x, grid.y, grid.z), dim3(threads), arguments,
                               shared_bytes, stream.handle()));
}

}  // namespace attnd::kernels::cuda
