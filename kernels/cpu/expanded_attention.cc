#include "kernels/cpu/expanded_attention.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/project.h"

namespace attnd::kernels {
namespace {

class Expansion {
 public:
  Expansion(const KernelTable& table, WorkerPool& pool, const AttentionWorkspace& workspace,
            const ExpandedAttentionParams& params, float* project_scratch)
      : table_(table),
        pool_(pool),
        workspace_(workspace),
        params_(params),
        form_(FormOf(params)),
        project_scratch_(project_scratch) {}

  void Run(const RowRun& run) {
    num_tiles_ = PlanTiles(params_.batch, run, form_.heads_kv, form_.group(), workspace_.tiles());
    Check(num_tiles_ <= workspace_.max_tiles(), "the tiles of a run are within the workspace");
    ZeroBlindTiles();
    for (int64_t begin = run.key_begin; begin < run.key_end;) {
      const int64_t end = std::min((begin / kExpandKeys + 1) * kExpandKeys, run.key_end);
      WidenLatents(run.sequence, begin, end);
      Expand(params_.expand_key, end - begin, workspace_.expanded_keys());
      Expand(params_.expand_value, end - begin, workspace_.expanded_values());
      pool_.ParallelFor(num_tiles_, [&](int64_t tile, int worker) {
        AttendBlock(workspace_.tiles()[tile], begin, end, &workspace_.worker(worker));
      });
      begin = end;
    }
  }

 private:
  // Tiles whose rows see nothing meet no block: zero rows.
  void ZeroBlindTiles() {
    for (int64_t tile = 0; tile < num_tiles_; ++tile) {
      const AttentionTile& t = workspace_.tiles()[tile];
      for (int64_t p = 0; t.key_begin == t.key_end && p < t.rows; ++p) {
        std::fill_n(PackedRow(form_.output, form_, t, p, form_.value_width), form_.value_width,
                    0.0f);
      }
    }
  }

  // Latents of tokens [begin, end) as [end - begin][d_latent], page by page.
  void WidenLatents(int64_t sequence, int64_t begin, int64_t end) {
    const int64_t width = params_.shape.d_latent;
    const PageRows rows = LatentRows(params_.shape, params_.batch.dtype);
    const AttentionSequence& pages = params_.batch.sequences[sequence];
    const int64_t first_page = begin / kPageTokens;
    pool_.ParallelFor((end - 1) / kPageTokens - first_page + 1, [&](int64_t task, int) {
      const int64_t page = first_page + task;
      const uint8_t* data = params_.batch.pool + pages.pages[page - pages.first_page];
      const int64_t last = std::min((page + 1) * kPageTokens, end);
      for (int64_t token = std::max(page * kPageTokens, begin); token < last; ++token) {
        const int64_t slot = token % kPageTokens;
        table_.widen(rows.dtype, data + rows.offset + slot * rows.stride, ScaleOf(rows, slot, data),
                     width, workspace_.latents() + (token - begin) * width);
      }
    });
  }

  void Expand(const PackedWeight* weight, int64_t keys, float* to) {
    ProjectParams project;
    project.weight = weight;
    project.rows = keys;
    project.x = workspace_.latents();
    project.x_row = params_.shape.d_latent;
    project.x_inner = 0;  // every KV head expands the same latent
    project.y = to;
    project.y_row = PaddedWidth(form_.key_width);
    project.y_inner = HeadElements();
    ProjectParallel(table_, pool_, project, project_scratch_);
  }

  // Of one KV head's keys, or values, of a block.
  int64_t HeadElements() const { return kExpandKeys * PaddedWidth(form_.key_width); }

  KeySource BlockKeys(const AttentionTile& tile, int64_t block_begin) const {
    KeySource keys = KeysOf(params_.shape, params_.batch, tile.sequence, tile.kv_head);
    keys.key_width = form_.key_width;
    keys.value_width = form_.value_width;
    keys.value_is_key = false;
    keys.expanded_key = workspace_.expanded_keys() + tile.kv_head * HeadElements();
    keys.expanded_value = workspace_.expanded_values() + tile.kv_head * HeadElements();
    keys.expanded_begin = block_begin;
    keys.expanded_stride = PaddedWidth(form_.key_width);
    return keys;
  }

  void AttendBlock(const AttentionTile& tile, int64_t block_begin, int64_t block_end,
                   WorkerScratch* scratch) {
    const int64_t begin = std::max(block_begin, tile.key_begin);
    const int64_t end = std::min(block_end, tile.key_end);
    if (begin >= end) {
      return;
    }
    const bool fresh = begin == tile.key_begin;
    if (!fresh) {
      LoadState(tile, scratch->total);
    }
    LoadTile(table_, form_, params_.batch, tile, scratch);
    AttendRanges(table_, BlockKeys(tile, block_begin), tile, scratch, begin, end, fresh,
                 scratch->total);
    if (end == tile.key_end) {
      StoreTile(table_, form_, tile, scratch->total);
    } else {
      SaveState(tile, scratch->total);
    }
  }

  // Between blocks the weighted values wait in the output, maximum and sum in the workspace.
  void LoadState(const AttentionTile& tile, const SoftmaxState& state) const {
    const int64_t width = RoundUp(form_.value_width, kPanel);
    for (int64_t p = 0; p < tile.rows; ++p) {
      state.max[p] = *PackedRow(workspace_.row_max(), form_, tile, p, 1);
      state.sum[p] = *PackedRow(workspace_.row_sum(), form_, tile, p, 1);
      float* values = state.values + p * width;
      std::copy_n(PackedRow(form_.output, form_, tile, p, form_.value_width), form_.value_width,
                  values);
      std::fill(values + form_.value_width, values + width, 0.0f);
    }
  }

  void SaveState(const AttentionTile& tile, const SoftmaxState& state) const {
    const int64_t width = RoundUp(form_.value_width, kPanel);
    for (int64_t p = 0; p < tile.rows; ++p) {
      *PackedRow(workspace_.row_max(), form_, tile, p, 1) = state.max[p];
      *PackedRow(workspace_.row_sum(), form_, tile, p, 1) = state.sum[p];
      std::copy_n(state.values + p * width, form_.value_width,
                  PackedRow(form_.output, form_, tile, p, form_.value_width));
    }
  }

  const KernelTable& table_;
  WorkerPool& pool_;
  const AttentionWorkspace& workspace_;
  const ExpandedAttentionParams& params_;
  const AttentionForm form_;
  float* project_scratch_;
  int64_t num_tiles_ = 0;
};

}  // namespace

void ExpandedAttentionParallel(const KernelTable& table, WorkerPool& pool,
                               const AttentionWorkspace& workspace,
                               const ExpandedAttentionParams& params, float* project_scratch) {
  CheckBatch(workspace, FormOf(params), params.batch);
  Expansion expansion(table, pool, workspace, params, project_scratch);
  for (int64_t sequence = 0; sequence < params.batch.num_sequences; ++sequence) {
    const AttentionSequence& rows = params.batch.sequences[sequence];
    for (int64_t row = rows.row_begin; row < rows.row_begin + rows.rows;) {
      const RowRun run = NextRun(params.batch, sequence, row);
      expansion.Run(run);
      row = run.row_end;
    }
  }
}

}  // namespace attnd::kernels
