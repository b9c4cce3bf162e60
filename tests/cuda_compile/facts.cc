// What the launchers know and the compiler does not: threads and dynamic shared memory of a block,
// and how many blocks are meant to share a multiprocessor (0: the launcher does not use the kernel
// there). A line for each kernel and architecture:
//   NAME <tab> ARCHITECTURE <tab> THREADS <tab> BYTES <tab> BLOCKS
#include <cstdio>
#include <utility>

#include "kernels/cuda/gqa/config.h"
#include "kernels/cuda/gqa/gqa.h"
#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/latent/latent_shape.h"
#include "kernels/cuda/plain/plain_attention.h"

namespace {

using attnd::DType;
using namespace attnd::kernels::cuda;

struct Architecture {
  const char* name;
  int block_shared;  // bytes
};
constexpr Architecture kArchitectures[] = {
    {"sm_80", 163 << 10}, {"sm_89", 99 << 10}, {"sm_90a", 227 << 10}, {"sm_100a", 227 << 10}};

template <int kKey, int kValue, GqaVariant kVariant>
void PrintGqa() {
  using Config = GqaConfig<kKey, kValue, kVariant>;
  GqaParams params;
  params.content_width = kKey;
  params.value_width = kValue;
  params.heads_kv = params.group = 1;
  for (const Architecture& a : kArchitectures) {
    for (const char* element : {"BF16", "F16"}) {
      std::printf("GqaKernel<%s, %d, %d, %s>\t%s\t%d\t%d\t%d\n", element, kKey, kValue,
                  Config::kDecode ? "decode" : "prefill", a.name, Config::kThreads,
                  GqaSharedBytes(params, kVariant),
                  GqaBlocksPerMultiprocessor(params, kVariant, a.block_shared + 1024));
    }
  }
}

template <int kKey, int kValue>
void PrintGqaVariants() {
  PrintGqa<kKey, kValue, GqaVariant::kDecode>();
  PrintGqa<kKey, kValue, GqaVariant::kPrefill>();
}

// As planned for a KV head for each unit, the most that a tile touches.
void PrintLatent(const char* element, DType cache, int width, int units) {
  for (const Architecture& a : kArchitectures) {
    const LatentShared shared = LatentSharedOf(cache == DType::kFp8E4M3, width, units, units);
    int stages = kLatentMaxStages;
    while (stages > 2 && shared.Total(stages) > a.block_shared) {
      --stages;
    }
    const bool fits = shared.Total(stages) <= a.block_shared;
    std::printf("LatentKernel<LatentConfig<%s, %d, %d>>\t%s\t%d\t%d\t%d\n", element, width, units,
                a.name, LatentThreads(units), fits ? shared.Total(stages) : 0, fits ? 1 : 0);
  }
}

}  // namespace

int main() {
  for (const Architecture& a : kArchitectures) {
    // As launched for latents of 512 and rope keys of 64.
    std::printf("PlainAttentionKernel\t%s\t64\t%d\t1\n", a.name,
                static_cast<int>(PlainSharedBytes(512, 64, 512)));
    // A prefix sum of 64 bits for each thread.
    std::printf("ScheduleKernel\t%s\t256\t%d\t1\n", a.name, 256 * 8);
  }
  PrintGqaVariants<64, 64>();
  PrintGqaVariants<128, 128>();
  PrintGqaVariants<192, 128>();
  for (const auto& [width, units] : {std::pair{128, 4}, std::pair{512, 4}, std::pair{512, 2}}) {
    PrintLatent("BF16", DType::kBF16, width, units);
    PrintLatent("F16", DType::kF16, width, units);
    PrintLatent("E4M3", DType::kFp8E4M3, width, units);
  }
}
