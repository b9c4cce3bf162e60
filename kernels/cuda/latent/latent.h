// The host's way to the absorbed MLA kernel for tensor cores. Caches in bf16, f16, and e4m3 with a
// float32 scale per row; up to 512 latent columns and rope keys of up to 64, both in whole 16-byte
// pieces of the cache.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/schedule.h"
#include "kernels/dtype.h"

namespace attnd::kernels::cuda {

class Stream;

// What a launch takes, by shape and device.
struct LatentPlan {
  int32_t width = 0;         // latent columns that the kernel is made for
  int32_t units = 0;         // of 16 rows in a tile; 0: no kernel for this shape on this device
  int32_t stages = 0;        // key tiles in shared memory
  int32_t rope_heads = 0;    // KV heads whose rope keys a stage has room for
  int32_t shared_bytes = 0;  // of a block

  bool ok() const { return units > 0; }
  int32_t tile_rows() const { return units * 16; }  // of a partial
};

// `shared_limit`: bytes of shared memory that a block of the device may have.
LatentPlan PlanLatent(DType cache, const LatentParams& params, int64_t shared_limit);

// How the scheduling kernel has to count tiles.
TileShape LatentTiles(const LatentPlan& plan, const LatentParams& params);

// `blocks`: of the grid; one runs on a multiprocessor at a time. The schedule in `params` has been
// filled for LatentTiles(plan, params); its partials have plan.tile_rows() rows of d_latent
// columns.
void LaunchLatent(Stream& stream, DType cache, const LatentPlan& plan, const LatentParams& params,
                  int32_t blocks);

}  // namespace attnd::kernels::cuda
