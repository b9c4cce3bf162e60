#include "cuda_emulation/warp.h"

#include <algorithm>
#include <string>

namespace attnd::kernels::cuda {
namespace emulation {
namespace {

struct ShuffleOperand {
  uint32_t value;
  int source;
  uint32_t result;
};

void ComputeShuffle(Machine&, const Machine::Operands& operands) {
  for (void* lane : operands) {
    auto* operand = static_cast<ShuffleOperand*>(lane);
    operand->result = static_cast<ShuffleOperand*>(operands[operand->source])->value;
  }
}

void ComputeAny(Machine&, const Machine::Operands& operands) {
  bool any = false;
  for (void* lane : operands) {
    any |= *static_cast<bool*>(lane);
  }
  for (void* lane : operands) {
    *static_cast<bool*>(lane) = any;
  }
}

struct MmaOperand {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

// A row of 8. A type of gcc's and clang's: of plain loops gcc 12 makes more shuffles than products.
using Columns [[gnu::vector_size(8 * sizeof(float))]] = float;

// The whole 16 x 8 x 16 product at once, products in the order of k; then it is added to d. A
// tensor core adds in another order and with other roundings: kernels may rely on neither.
template <typename E>
void ComputeMma(Machine& machine, const Machine::Operands& operands) {
  float a[16][16];
  Columns b[16];
  Columns d[16];
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto* operand = static_cast<const MmaOperand*>(operands[lane]);
    const int g = lane / 4;
    const int t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      float* pair = &a[g + 8 * (r & 1)][2 * t + 8 * (r / 2)];
      pair[0] = UnpackLow<E>(operand->a[r]);
      pair[1] = UnpackHigh<E>(operand->a[r]);
    }
    for (int r = 0; r < 2; ++r) {
      b[8 * r + 2 * t][g] = UnpackLow<E>(operand->b[r]);
      b[8 * r + 2 * t + 1][g] = UnpackHigh<E>(operand->b[r]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    Columns sum = {};
    for (int k = 0; k < 16; ++k) {
      sum += a[row][k] * b[k];
    }
    d[row] = sum;
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    float* out = static_cast<const MmaOperand*>(operands[lane])->d;
    const int g = lane / 4;
    const int t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      out[i] += d[g + 8 * (i / 2)][2 * t + i % 2];
    }
  }
  ++machine.counts().mmas;
}

struct LoadMatrixOperand {
  uint32_t* r;
  int64_t row;  // the byte of shared memory where this lane's of the 32 rows begins
  Site site;
};

uint32_t Pair(const char* low, const char* high) {
  uint16_t elements[2];
  std::memcpy(&elements[0], low, 2);
  std::memcpy(&elements[1], high, 2);
  return elements[0] | uint32_t{elements[1]} << 16;
}

// Passes beyond the first that the banks need for a matrix: its rows of 16 bytes lie in 8 groups of
// banks, and a group serves one row at a time.
int BankConflicts(const Machine::Operands& operands, int matrix) {
  int rows_of_group[8] = {};
  int most = 1;
  for (int i = 8 * matrix; i < 8 * matrix + 8; ++i) {
    const int64_t row = static_cast<const LoadMatrixOperand*>(operands[i])->row;
    bool seen = false;  // the same row twice is read once
    for (int j = 8 * matrix; j < i; ++j) {
      seen |= static_cast<const LoadMatrixOperand*>(operands[j])->row == row;
    }
    if (!seen) {
      most = std::max(most, ++rows_of_group[row / 16 % 8]);
    }
  }
  return most - 1;
}

template <bool kTransposed>
void ComputeLoadMatrix(Machine& machine, const Machine::Operands& operands) {
  const char* rows[kWarp];
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto* operand = static_cast<const LoadMatrixOperand*>(operands[lane]);
    rows[lane] = machine.ReadSharedByWarp("LoadMatrix4", operand->site, operand->row, 16);
  }
  for (int matrix = 0; matrix < 4; ++matrix) {
    machine.counts().bank_conflicts += BankConflicts(operands, matrix);
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    uint32_t* r = static_cast<const LoadMatrixOperand*>(operands[lane])->r;
    for (int j = 0; j < 4; ++j) {
      const char* const* matrix = rows + 8 * j;
      if constexpr (kTransposed) {
        const int row = 2 * (lane % 4);
        const int byte = 2 * (lane / 4);
        r[j] = Pair(matrix[row] + byte, matrix[row + 1] + byte);
      } else {
        const char* pair = matrix[lane / 4] + 4 * (lane % 4);
        r[j] = Pair(pair, pair + 2);
      }
    }
  }
  ++machine.counts().load_matrices;
}

template <typename E>
void MmaOf(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site) {
  MmaOperand operand{d, a, b};
  Machine::Current().Meet(Wait::kMma, site, &operand, ComputeMma<E>);
}

}  // namespace

uint32_t ShuffleBits(uint32_t v, int source, Site site) {
  Machine& machine = Machine::Current();
  if (source < 0 || source >= kWarp) {
    machine.Fault("Shuffle from lane " + std::to_string(source) + " at " + ToString(site));
  }
  ShuffleOperand operand{v, source, 0};
  machine.Meet(Wait::kShuffle, site, &operand, ComputeShuffle);
  return operand.result;
}

void MmaBF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site) {
  MmaOf<BF16>(d, a, b, site);
}

void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site) {
  MmaOf<F16>(d, a, b, site);
}

void LoadMatrix(uint32_t (&r)[4], int64_t row, bool transposed, Site site) {
  Machine& machine = Machine::Current();
  if (row % 16 != 0) {
    machine.Fault("LoadMatrix4 at " + ToString(site) + ": a row at byte " + std::to_string(row) +
                  " of shared memory; it must be aligned to 16");
  }
  LoadMatrixOperand operand{r, row, site};
  machine.Meet(Wait::kLoadMatrix, site, &operand,
               transposed ? ComputeLoadMatrix<true> : ComputeLoadMatrix<false>);
}

}  // namespace emulation

void SyncWarp(emulation::Site site) {
  emulation::Machine::Current().Meet(emulation::Wait::kSyncWarp, site, nullptr, nullptr);
}

bool Any(bool v, emulation::Site site) {
  emulation::Machine::Current().Meet(emulation::Wait::kAny, site, &v, emulation::ComputeAny);
  return v;
}

}  // namespace attnd::kernels::cuda
