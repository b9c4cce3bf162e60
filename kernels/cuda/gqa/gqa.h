// Grouped-query attention on tensor cores, from the host: what it can do, how it wants its work
// cut, and its launch. A batch is launched once per variant with the sequences of that variant.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/schedule.h"
#include "kernels/dtype.h"

namespace attnd::kernels::cuda {

class Stream;

enum class GqaVariant : uint8_t {
  kDecode,   // tiles of 16 rows: four warps share the keys of a tile
  kPrefill,  // tiles of 64 rows: four warps share the rows
};

// Whether the tensor-core kernel takes these shapes: elements of 16 bits; key (content + rope) up
// to 192 and value up to 128 wide, in multiples of 8; groups of 1 to 128; rows of the cache and of
// the query aligned to 16 bytes; scale > 0. Looks at shapes and strides alone.
bool GqaSupports(const GqaParams& params, DType element);

// By what a sequence has alone, so that its bits do not depend on the batch. Carried state, which
// must be taken up bit for bit, is the prefill variant's alone.
GqaVariant ChooseGqaVariant(const GqaParams& params, int64_t rows);

// For the scheduler. A partial has `unit_rows` rows.
TileShape GqaTiles(const GqaParams& params, GqaVariant variant);

// Dynamic shared memory of a block, at most 99 KiB, which every architecture from sm_80 on has.
int GqaSharedBytes(const GqaParams& params, GqaVariant variant);

// How many blocks a multiprocessor with so much shared memory and 65536 registers holds: the grid
// is that many for each multiprocessor.
int GqaBlocksPerMultiprocessor(const GqaParams& params, GqaVariant variant,
                               int64_t multiprocessor_shared_bytes);

// `element` is kBF16 or kF16. The schedule has been filled, with kOneSplit when state is carried.
void LaunchGqa(Stream& stream, GqaVariant variant, DType element, const GqaParams& params,
               int grid);

}  // namespace attnd::kernels::cuda
