// Where the elements of tensor-core fragments lie: the tables of the PTX ISA (mma.m16n8k16, figures
// of the fragments for .f16 and .bf16; ldmatrix), against which the emulated device and cards
// (tests/gpu) are both held.
#pragma once

#include <cstdint>

namespace attnd::kernels::cuda {

// The PTX ISA numbers a lane's elements, two to a register.
struct FragmentPlace {
  int row, column;
};

inline FragmentPlace PlaceInA(int lane, int i) {
  return {lane / 4 + ((0 <= i && i < 2) || (4 <= i && i < 6) ? 0 : 8),
          lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
inline FragmentPlace PlaceInB(int lane, int i) {
  return {lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane / 4};
}
inline FragmentPlace PlaceInD(int lane, int i) {
  return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)};
}

// The first of the two elements that LoadMatrix4 leaves in register j of a lane: its row in matrix
// j and its column there. The second is the next of the row; of the transposed form, of the column.
inline FragmentPlace PlaceOfLoad(int lane) { return {lane / 4, 2 * (lane % 4)}; }
inline FragmentPlace PlaceOfLoadTransposed(int lane) { return {2 * (lane % 4), lane / 4}; }

}  // namespace attnd::kernels::cuda
