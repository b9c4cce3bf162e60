// The one door to the hardware: kernels reach threads, shared memory, tensor cores and the special
// functions through these names alone, never through PTX or an intrinsic of their own. nvcc takes
// them from device_ptx.cuh; a plain C++ compiler, where the tests run the same kernels on the CPU,
// takes them from tests/cuda_emulation/device.h. Both define, in attnd::kernels::cuda:
//
//   struct Index3 { int x, y, z; };
//   Index3 BlockIndex(), GridSize();
//   int ThreadIndex(), LaneIndex(), WarpIndex();   blocks are one-dimensional
//
// Shared memory. Kernels see it as arrays cut from one dynamic buffer, aligned to 1024 bytes:
//
//   template <typename T> struct Shared { T Load(int i); void Store(int i, T v);
//                                         Shared At(int offset); void* Address(int i);
//                                         template <typename U> Shared<U> As(); };
//     T is 1 to 16 bytes; Uint4 (16 bytes) moves a vector.
//   class SharedCarver { SharedCarver(); template <typename T> Shared<T> Take(int count); };
//     Take() aligns to 128 bytes. The kernel's launcher states the same total.
//
// Barriers and exchange. All lanes of a warp call a collective together, at one place:
//
//   void SyncBlock();                      all threads of the block; orders shared memory
//   void SyncWarp();                       all lanes of the warp; orders shared memory
//   T ShuffleXor(T v, int mask);           float, int32_t, uint32_t
//   T Shuffle(T v, int lane);
//   bool Any(bool v);                      whether one lane of the warp has true
//
// Tensor cores: d += a b, m16n8k16, float32 accumulators. Lane = 4 g + t (g = lane / 4,
// t = lane % 4):
//   a[r], r = 0..3: row g + 8 (r & 1), columns 2t, 2t + 1 of half r / 2 (8 columns each)
//   b[r], r = 0..1: k = 8 r + 2t, 2t + 1 of column n = g
//   d[0], d[1]: row g, columns 2t, 2t + 1; d[2], d[3]: row g + 8
// The element of the lower index is in the lower 16 bits.
//
//   template <typename E> void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
//     E is BF16 or F16 (element.cuh).
//   void LoadMatrix4(uint32_t (&r)[4], const Shared<uint16_t>& s, int i);
//     lane l gives the index i of row l % 8 of matrix l / 8 (8 elements, 16 bytes aligned); r[j] is
//     row l / 4, elements 2 (l % 4) and the next of matrix j.
//   void LoadMatrix4Transposed(...);       r[j]: rows 2 (l % 4) and the next, column l / 4
//
// Copies that run beside the computation; a group ends with Commit. What they write may be read by
// the thread that issued them after Wait, by others after a SyncBlock() behind that:
//
//   void CopyAsync16(const Shared<T>& s, int i, const void* global, bool valid);
//     16 bytes to element i; zeros when not valid (`global` is then not read, but must be aligned)
//   void CopyAsyncCommit();
//   template <int kNewest> void CopyAsyncWait();   all groups but the newest kNewest have arrived
//
// Arithmetic and memory:
//
//   float Exp2(float x);                   2^x, relative error < 2^-21; 0 for -inf
//   float Reciprocal(float x)              1 / x, correctly rounded
//   int AtomicAdd(int* global, int v);     returns the value before
//   void Fence();                          global writes before it are seen before those after it
//   T LoadGlobal(const T*)                 that other blocks may have written before a Fence()
//
// Launching, on the host:
//
//   template <typename Params>
//   void Launch(Stream& stream, void (*kernel)(Params), Index3 grid, int threads,
//               int shared_bytes, const Params& params);
//     Params is copied; it is trivially copyable and at most 4 KiB. Errors stay with the stream
//     until Runtime::Synchronize() (runtime.h).
#pragma once

#ifdef __CUDACC__
#include "kernels/cuda/device_ptx.cuh"
#else
#include "cuda_emulation/device.h"
#endif
