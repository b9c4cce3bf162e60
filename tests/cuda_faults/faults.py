"""The faults: each has happened to kernels of this kind or is one keystroke away."""

from typing import NamedTuple

# The instantiations that the tests below run, of those that come in files of their own.
INSTANCES = {
    "gqa/gqa_bf16_64_64_decode",
    "gqa/gqa_bf16_64_64_prefill",
    "latent/latent_bf16_128x4",
    "latent/latent_e4m3_128x4",
    "latent/latent_f16_128x4",
}

# What the others get in place of the kernel. A fault that ends there is not caught.
TRIMMED_MESSAGE = "this kernel was trimmed away"
_TRIMMED = """\
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/{header}"

namespace attnd::kernels::cuda {{

template <{parameters}>
void {name} {{
  std::fputs("{message}\\n", stderr);
  std::abort();
}}

}}  // namespace attnd::kernels::cuda
"""
TRIMMED = {
    "gqa": _TRIMMED.format(
        header="gqa/config.h", message=TRIMMED_MESSAGE,
        parameters="typename E, int kKeyWidth, int kValueWidth, GqaVariant kVariant",
        name="LaunchGqaKernel(Stream&, const GqaParams&, int)"),
    "latent": _TRIMMED.format(
        header="latent/latent_instances.h", message=TRIMMED_MESSAGE,
        parameters="typename Cache, int kWidth, int kUnits",
        name="LaunchLatentKernel(Stream&, const LatentLaunch&, int, int)"),
}


class Edit(NamedTuple):
    path: str
    old: str  # found exactly once
    new: str


class Fault(NamedTuple):
    name: str
    why: str  # such a fault happens
    edits: list
    target: str
    tests: str  # a filter of GoogleTest


def fault(name, why, path, old, new, target, tests):
    return Fault(name, why, [Edit("kernels/cuda/" + path, old, new)], target, tests)


def gqa(test):
    """A test of the two instantiations that are there."""
    return ":".join(f"All/GqaTest.{test}/{variant}Bf16_64_64" for variant in ("Decode", "Prefill"))


def latent(test):
    return f"All/LatentTest.{test}/bf16_sm80_128_64:All/LatentTest.{test}/fp8_e4m3_sm80_48_16"


FAULTS = [
    # What a row sees.
    fault("window_off_by_one", "the window's first key is inclusive, and easily is not",
          "gqa/softmax.cuh",
          "key >= seen.lo && key < seen.hi", "key > seen.lo && key < seen.hi",
          "gqa_test", "Gqa.TheWindowBeginsWhereItShould"),
    fault("latent_key_off_by_one", "a causal row's own key is the last that it sees",
          "latent/latent_compute.cuh",
          "lo <= own && own < hi ?", "lo <= own && own <= hi ?",
          "latent_test", latent("ARowDoesNotDependOnItsBatch")),
    fault("mask_skipped_in_edge_tile", "tiles are taken for full by one of their two ends",
          "gqa/softmax.cuh",
          "if (position < rows.full.lo || position + kKeys > rows.full.hi) {",
          "if (position < rows.full.lo) {",
          "gqa_test", gqa("LengthsAroundPagesWithoutBankConflicts")),
    fault("latent_mask_skipped", "a tile that ends behind a row's last key is taken for full",
          "latent/latent_compute.cuh",
          "if (key < work.seen_begin || work.all_end < key + kLatentKeys) {",
          "if (key < work.seen_begin) {",
          "latent_test", "LatentRows.IntervalsOfAnyKind"),
    fault("gap_between_rows_loaded", "rows of a tile are thought to see all keys between them",
          "gqa/rows.cuh",
          "  return row > tile.first_row && batch.lo[row] < batch.hi[row] &&",
          "  return false && row > tile.first_row && batch.lo[row] < batch.hi[row] &&",
          "gqa_test", gqa("EmptyRowsAndGapsBetweenRows")),
    # Softmax.
    fault("maximum_guard_removed", "-inf - -inf is NaN in a row that has seen nothing yet",
          "gqa/softmax.cuh",
          "subtrahend[r] = Subtrahend(maximum);", "subtrahend[r] = maximum;",
          "gqa_test", gqa("EmptyRowsAndGapsBetweenRows")),
    fault("latent_maximum_guard_removed", "-inf - -inf is NaN in a row that has seen nothing yet",
          "latent/latent_compute.cuh",
          "const float subtrahend = Subtrahend(maximum);", "const float subtrahend = maximum;",
          "latent_test", latent("SplitsInAnyNumber")),
    fault("rescale_for_first_row_only", "a lane has two rows, and a branch asks one of them",
          "gqa/softmax.cuh",
          "if (Any(rescale[0] != 1.0f || rescale[1] != 1.0f)) {", "if (Any(rescale[0] != 1.0f)) {",
          "gqa_test", gqa("LengthsAroundPagesWithoutBankConflicts")),
    fault("sum_without_a_shuffle", "a reduction over four lanes takes two steps",
          "gqa/softmax.cuh",
          "    sum[r] += ShuffleXor(sum[r], 2);\n", "",
          "gqa_test", gqa("LengthsAroundPagesWithoutBankConflicts")),
    # Tensor cores.
    fault("score_fragment_swapped", "the halves of b are k 0-7 and 8-15 in this order",
          "gqa/softmax.cuh",
          "Mma<E>(score[n], query[k], {b[0], b[1]});", "Mma<E>(score[n], query[k], {b[1], b[0]});",
          "gqa_test", gqa("LengthsAroundPagesWithoutBankConflicts")),
    fault("weight_fragment_swapped", "a has its rows in registers 0, 1 and its halves in 0, 2",
          "gqa/softmax.cuh",
          "const uint32_t a[4] = {Pack<E>(low[0], low[1]), Pack<E>(low[2], low[3]),\n"
          "                           Pack<E>(high[0], high[1]), Pack<E>(high[2], high[3])};",
          "const uint32_t a[4] = {Pack<E>(low[0], low[1]), Pack<E>(high[0], high[1]),\n"
          "                           Pack<E>(low[2], low[3]), Pack<E>(high[2], high[3])};",
          "gqa_test", gqa("LengthsAroundPagesWithoutBankConflicts")),
    fault("latent_fragment_swapped", "a transposed load has its registers in another order",
          "latent/latent_compute.cuh",
          "Mma<E>(output.values[unit][2 * step], a[unit], {b[0], b[2]});",
          "Mma<E>(output.values[unit][2 * step], a[unit], {b[0], b[1]});",
          "latent_test", latent("ARowDoesNotDependOnItsBatch")),
    fault("swizzle_forgotten", "right, and eight times slower: every load meets in four banks",
          "gqa/load.cuh",
          "(chunk ^ (row & 7)) * 8", "chunk * 8",
          "gqa_test", gqa("LengthsAroundPagesWithoutBankConflicts")),
    # Copies and barriers.
    fault("copy_wait_one_short", "the wait counts groups that may be under way, not those to wait for",
          "gqa/gqa_kernel.cuh",
          "CopyAsyncWait<C::kStages - 2>();", "CopyAsyncWait<C::kStages - 1>();",
          "gqa_test", gqa("SplitsOfEverySize")),
    fault("latent_copy_wait_one_short", "the wait counts groups that may be under way",
          "latent/latent_kernel.cuh",
          "    CopyAsyncWait<2>();", "    CopyAsyncWait<3>();",
          "latent_test", latent("LengthsAroundTilesAndPages")),
    fault("warp_barrier_missing", "a warp's lanes run in step, or did before Volta",
          "gqa/gqa_kernel.cuh",
          "      SyncWarp();\n", "",
          "gqa_test", gqa("SplitsOfEverySize")),
    fault("block_barrier_missing", "the stage that is filled next is still read by other warps",
          "gqa/gqa_kernel.cuh",
          "    } else {\n      SyncBlock();\n", "    } else {\n      SyncWarp();\n",
          "gqa_test", gqa("SplitsOfEverySize")),
    fault("latent_barrier_missing", "weights are read by warps that did not write them",
          "latent/latent_kernel.cuh",
          "thread, n * kLatentKeys, state);\n    }\n    SyncBlock();\n",
          "thread, n * kLatentKeys, state);\n    }\n",
          "latent_test", latent("ARowDoesNotDependOnItsBatch")),
    fault("barrier_in_a_branch", "a barrier that only the warps with rows reach is never passed",
          "latent/latent_kernel.cuh",
          "thread, n * kLatentKeys, state);\n    }\n    SyncBlock();\n",
          "thread, n * kLatentKeys, state);\n    SyncBlock();\n    }\n",
          "latent_test", latent("ARowDoesNotDependOnItsBatch")),
    fault("item_barrier_missing", "the next work item overwrites what the last one still reads",
          "gqa/rows.cuh",
          "  SyncBlock();\n  if (LaneIndex() == 0) {\n    notes.Store(3 * WarpIndex(), warp.lo);",
          "  if (LaneIndex() == 0) {\n    notes.Store(3 * WarpIndex(), warp.lo);",
          "gqa_test", gqa("SplitsOfEverySize")),
    fault("plain_barrier_missing", "scores are read by threads that did not write them",
          "plain/plain_attention.cu",
          "  shared.scores.Store(thread, score);\n  SyncBlock();\n",
          "  shared.scores.Store(thread, score);\n",
          "cuda_backend_test", "DTypes/BackendAttentionTest.Latent/bf16_plain"),
    fault("values_of_unseen_keys_loaded", "their weight is 0, and 0 * NaN is NaN",
          "gqa/load.cuh",
          "p.value_width,\n                         (seen >> i & 1) != 0, p.batch.pool);",
          "p.value_width,\n                         true, p.batch.pool);",
          "gqa_test", gqa("LengthsAroundPagesWithoutBankConflicts")),
    fault("latent_tail_loaded", "latents are values too: 0 * NaN is NaN",
          "latent/latent_load.cuh",
          "if (work.seen_begin <= key && key + kLatentKeys <= work.seen_end) {",
          "if (work.seen_begin <= key) {",
          "latent_test", latent("ARowDoesNotDependOnItsBatch")),
    # Where things lie.
    fault("page_offset_of_32_bits", "a pool is larger than 4 GiB, a test's is not",
          "gqa/load.cuh",
          "int64_t page, int32_t begin,", "int32_t page, int32_t begin,",
          "gqa_test", "GqaMemory.PagesBeyondFourGigabytes"),
    fault("latent_page_offset_of_32_bits", "a pool is larger than 4 GiB, a test's is not",
          "latent/latent_load.cuh",
          "p.batch.pool + (seen != 0 ? page : 0);",
          "p.batch.pool + (seen != 0 ? static_cast<uint32_t>(page) : 0);",
          "latent_test", "LatentMemory.PagesBeyondFourGigabytes"),
    fault("rope_key_of_another_head", "a tile may hold units of several KV heads",
          "latent/latent_compute.cuh",
          "arrays.rope_slots.Load(2 * thread.pair + unit)",
          "arrays.rope_slots.Load(2 * thread.pair)",
          "latent_test", "LatentHeads.GroupsHeadsAndRows"),
    fault("query_of_another_head", "rows of a tile are pairs (row, head), the head innermost",
          "gqa/rows.cuh",
          "const int64_t row = view.row_begin + pair / p.group;\n  return",
          "const int64_t row = view.row_begin + (pair + 1) / p.group;\n  return",
          "gqa_test", gqa("BitsOfARowDependOnItAlone")),
    # e4m3 latents.
    fault("scale_of_another_row", "fragments of scores hold keys 8 apart",
          "latent/latent_compute.cuh",
          "scales.Load(16 * half + i / 2 * 8 + 2 * (lane % 4) + i % 2)",
          "scales.Load(16 * half + 2 * (lane % 4) + i % 2)",
          "latent_test", "LatentRows.IntervalsOfAnyKind"),
    fault("scale_missing_in_values", "a latent is a key and a value: its scale counts twice",
          "latent/latent_compute.cuh",
          "value = value > 0.0f ? value * scales.Load(first + 16 * j + i) : 0.0f;",
          "value = value > 0.0f ? value : 0.0f;",
          "latent_test", latent("ARowDoesNotDependOnItsBatch")),
    fault("scale_over_rope", "the scale is the latent's, and the sum has the rope key's part",
          "latent/latent_compute.cuh",
          "        Mma<E>(s[unit][0], queries.rope[unit], {b[0], b[1]});",
          "        const float scale = C::kE4M3 ? scales.Load(16 * half + 2 * (lane % 4)) : 1.0f;\n"
          "        for (uint32_t i = 0; i < 4; ++i) {\n"
          "          b[i] = Pack<E>(scale * UnpackLow<E>(b[i]), scale * UnpackHigh<E>(b[i]));\n"
          "        }\n"
          "        Mma<E>(s[unit][0], queries.rope[unit], {b[0], b[1]});",
          "latent_test", "LatentE4M3.LargeRopeKeysAndAnyScale"),
    fault("append_without_the_scale", "what is cached and what its scale says differ",
          "elementwise/append.cu",
          "to[k] = ToE4M3(from[k] / divisor);", "to[k] = ToE4M3(from[k]);",
          "cuda_backend_test", "DTypes/BackendAppendTest.*/fp8_e4m3"),
    # Splits.
    fault("combine_without_empty_guard", "a row may see nothing in any split of its tile",
          "combine.cuh",
          "const float maximum = Subtrahend(CombinedMaximum(partials, splits, row));",
          "const float maximum = CombinedMaximum(partials, splits, row);",
          "gqa_test", gqa("EmptyRowsAndGapsBetweenRows")),
    fault("merge_without_empty_guard", "a row may see nothing of what any warp has looked at",
          "gqa/finish.cuh",
          "weight[w] = Exp2(own.x - Subtrahend(maximum));", "weight[w] = Exp2(own.x - maximum);",
          "gqa_test", gqa("EmptyRowsAndGapsBetweenRows")),
    fault("arrivals_left_standing", "the next launch finds the counter of the last one",
          "combine.cuh",
          "      *arrivals = 0;\n", "",
          "gqa_test", gqa("SplitsOfEverySize")),
    fault("more_than_a_warp_of_splits", "a lane knows a split, and there may be more than 32",
          "combine.cuh",
          "for (int64_t first = 0; first < splits; first += 32) {",
          "for (int64_t first = 0; first < 32; first += 32) {",
          "latent_test", "LatentMemory.FortySplits"),
    Fault("splits_relative_to_the_sequence",
          "right, but bits depend on where the rows beside a row begin to see",
          [Edit("kernels/cuda/schedule.cu",
                "SplitCount(view.key_begin, view.key_end, split_keys);",
                "SplitCount(view.key_begin % 64, view.key_end - view.key_begin / 64 * 64,"
                " split_keys);"),
           Edit("kernels/cuda/schedule.cuh",
                "SplitCount(view.key_begin, view.key_end, split_keys)",
                "SplitCount(view.key_begin % 64, view.key_end - view.key_begin / 64 * 64,"
                " split_keys)"),
           Edit("kernels/cuda/schedule.cuh",
                "item.first_split = static_cast<int32_t>(view.key_begin) / split_keys;",
                "item.first_split = 0;"),
           Edit("kernels/cuda/gqa/gqa_kernel.cuh",
                "  const TileSplits splits =\n"
                "      SplitTile(item, p.schedule.split_keys[0], tile.origin + reach.lo,"
                " tile.origin + reach.hi);\n",
                "  TileSplits splits =\n"
                "      SplitTile(item, p.schedule.split_keys[0], reach.lo, reach.hi);\n"
                "  splits.begin += tile.origin;\n"
                "  splits.end += tile.origin;\n")],
          "gqa_test", gqa("BitsOfARowDoNotDependOnTheRowsBesideIt")),
    fault("schedule_not_made_again", "a graph is run again when lengths, and so splits, are others",
          "schedule.cu",
          "  const ScheduleShare share = ShareOfThread(p.num_sequences);\n",
          "  if (p.schedule.work_begin[p.num_sequences] > 0) {\n    return;\n  }\n"
          "  const ScheduleShare share = ShareOfThread(p.num_sequences);\n",
          "gqa_test", "GqaMemory.RecordedLaunchesFollowTheLengths"),
    # State carried from block to block of a history.
    fault("carried_sum_lost", "of (m, l, O) the middle is easily forgotten",
          "plain/plain_attention.cu",
          "    state.sum = carry[1];\n", "",
          "cuda_backend_test", "DTypes/BackendAttentionTest.Expanded/bf16_plain"),
    # The backend.
    fault("staging_overwritten", "page-locked memory is used again before its copy has run",
          "staging.cc",
          "    status_.Update(runtime_->Synchronize());\n    used_ = begin_ = 0;",
          "    used_ = begin_ = 0;",
          "cuda_backend_test", "BackendTest.CopiesArriveInOrderAndAtTheSynchronization"),
    fault("metadata_behind_the_graph", "a replayed graph reads what was not yet sent",
          "cuda_backend.cc",
          "    return;\n  }\n  staging_->Flush();\n  GraphCache::Entry&",
          "    return;\n  }\n  GraphCache::Entry&",
          "cuda_engine_test", "CudaGraphTest.*"),
    fault("calls_of_a_graph_share_metadata",
          "all of a graph's batches are sent before the first of its kernels runs",
          "device_batch.cc",
          "return call == 0 ? places_.data()", "return call >= 0 ? places_.data()",
          "cuda_backend_test", "BackendAttentionTest.CallsOfAGraphHaveTheirOwnBatches"),
    fault("calls_of_a_graph_share_pages", "likewise, of the page tables",
          "device_batch.cc",
          "  int64_t pages = used_pages_;\n  for (; *next", "  int64_t pages = 0;\n  for (; *next",
          "cuda_backend_test", "BackendAttentionTest.CallsOfAGraphHaveTheirOwnBatches"),
    fault("graph_of_other_operations", "what is found by a number has to be compared as a whole",
          "graph_cache.h",
          "if (entry->operations == operations) {",
          "if (entry->operations.size() == operations.size()) {",
          "cuda_engine_test", "CudaGraphTest.*"),
    fault("products_of_any_rows", "a library sums in another order for other numbers of rows",
          "cuda_project.cc",
          "deterministic_ ? kGemmRows : Padded(rows.rows)", "Padded(rows.rows)",
          "cuda_backend_test", "BackendTest.AProjectedRowDoesNotKnowOfTheOthers"),
    fault("products_not_padded", "the rows that fill up a product read beyond the operands",
          "cuda_project.cc",
          "return (rows + kGemmRows - 1) / kGemmRows * kGemmRows;", "return rows;",
          "cuda_backend_test", "BackendTest.AProjectedRowDoesNotKnowOfTheOthers"),
]
