// Attention of the CUDA backend on the emulated device against the reference: every form, dtype and
// kernel, and rows that do not know of their batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/attention_case.h"
#include "tests/kernels/cuda/emulated_backend.h"

namespace attnd::kernels::cuda {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kFp8E4M3};

// Against the data as stored: what the kernels' own roundings may add.
double Tolerance(DType dtype) {
  return dtype == DType::kF32 ? 2e-6 : dtype == DType::kF16 ? 2e-3 : 1e-2;
}

// One row of a long history, rows that begin a session, a chunk in the middle with a prefix, and a
// row that sees nothing.
std::vector<Intervals> Sequences(int64_t window) {
  Intervals chunk = RowsOf(150, 171, 3, window);
  chunk.front().hi = chunk.front().lo;
  return {RowsOf(400, 401, 0, window), RowsOf(0, 9, 4, window), chunk, RowsOf(63, 64, 0, window)};
}

class BackendAttentionTest : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  PromptBackend MakeBackend() const {
    CudaOptions options = SmallOptions();
    options.tensor_cores = std::get<1>(GetParam());
    return PromptBackend(options);
  }
};

TEST_P(BackendAttentionTest, Local) {
  // The last two have no tensor-core kernel.
  const LocalShape shapes[] = {{8, 2, 64}, {6, 2, 128}, {4, 4, 32}, {3, 1, 20}, {2, 2, 200}};
  PromptBackend backend = MakeBackend();
  for (const LocalShape& shape : shapes) {
    SCOPED_TRACE("width " + std::to_string(shape.d_head));
    LocalCase c(shape, dtype(), Sequences(100), 5);
    c.Store(backend);
    const std::vector<float> all = c.Run(backend);
    EXPECT_TRUE(Close(all, c.Want(), Tolerance(dtype())));
  }
}

TEST_P(BackendAttentionTest, Latent) {
  const GlobalShape shapes[] = {{8, 2, 32, 16, 128}, {4, 2, 16, 8, 64}, {3, 3, 8, 4, 20}};
  PromptBackend backend = MakeBackend();
  for (const GlobalShape& shape : shapes) {
    SCOPED_TRACE("latents " + std::to_string(shape.d_latent));
    GlobalCase c(shape, dtype(), DType::kF32, Sequences(0), 6);
    c.Store(backend);
    EXPECT_TRUE(Close(c.RunAbsorbed(backend), c.Want(), Tolerance(dtype())));
  }
}

TEST_P(BackendAttentionTest, Expanded) {
  const GlobalShape shapes[] = {{8, 2, 64, 32, 128}, {4, 2, 32, 16, 64}, {3, 3, 12, 4, 20}};
  PromptBackend backend = MakeBackend();
  for (const GlobalShape& shape : shapes) {
    SCOPED_TRACE("latents " + std::to_string(shape.d_latent));
    GlobalCase c(shape, dtype(), DType::kF32, Sequences(0), 7);
    c.Store(backend);
    EXPECT_TRUE(Close(c.RunExpanded(backend), c.Want(), Tolerance(dtype())));
  }
}

// A sequence alone has the bits that it has among others.
TEST_P(BackendAttentionTest, ASequenceDoesNotKnowOfTheOthers) {
  PromptBackend backend = MakeBackend();
  LocalCase local({8, 2, 64}, dtype(), Sequences(100), 8);
  local.Store(backend);
  GlobalCase global({8, 2, 32, 16, 128}, dtype(), DType::kF32, Sequences(0), 9);
  global.Store(backend);
  const std::vector<std::vector<float>> together = {local.Run(backend), global.RunLatent(backend),
                                                    global.RunExpanded(backend)};
  for (int64_t only = 0; only < 4; ++only) {
    const std::vector<std::vector<float>> alone = {local.Run(backend, only),
                                                   global.RunLatent(backend, only),
                                                   global.RunExpanded(backend, only)};
    for (size_t form = 0; form < alone.size(); ++form) {
      int64_t rows = 0;
      for (size_t i = 0; i < alone[form].size(); ++i) {
        if (alone[form][i] == alone[form][i]) {  // the other sequences' rows stay a NaN
          ASSERT_EQ(alone[form][i], together[form][i]) << "form " << form << " element " << i;
          ++rows;
        }
      }
      EXPECT_GT(rows, 0) << "form " << form << " sequence " << only;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, BackendAttentionTest,
                         testing::Combine(testing::ValuesIn(kDTypes), testing::Bool()),
                         [](const auto& instance) {
                           return std::string(DTypeName(std::get<0>(instance.param))) +
                                  (std::get<1>(instance.param) ? "_tensor_cores" : "_plain");
                         });

// More sequences than one launch has room for partials of.
TEST(BackendAttentionTest, ABatchIsCutWherePartialsNeedMoreRoom) {
  std::vector<Intervals> sequences;
  for (int64_t i = 0; i < 40; ++i) {
    sequences.push_back(RowsOf(600 + 3 * i, 601 + 3 * i, 0, 1 << 20));
  }
  LocalCase c({4, 2, 64}, DType::kBF16, sequences, 10);
  CudaOptions options = SmallOptions();
  options.partial_bytes = 1;
  PromptBackend narrow(options);
  PromptBackend wide(SmallOptions());
  c.Store(narrow);
  const std::vector<float> got = c.Run(narrow);
  EXPECT_TRUE(Close(got, c.Want(), Tolerance(DType::kBF16)));
  EXPECT_TRUE(SameBits(got, c.Run(wide)));
}

// They may be all that there is of their class.
TEST(BackendAttentionTest, SequencesWithoutRows) {
  for (const bool tensor_cores : {true, false}) {
    CudaOptions options = SmallOptions();
    options.tensor_cores = tensor_cores;
    PromptBackend backend(options);
    const std::vector<Intervals> sequences = {{}, RowsOf(60, 75, 0, 0), {}};
    LocalCase local({8, 2, 64}, DType::kBF16, sequences, 16);
    local.Store(backend);
    EXPECT_TRUE(Close(local.Run(backend), local.Want(), Tolerance(DType::kBF16)));
    GlobalCase global({64, 2, 32, 16, 128}, DType::kBF16, DType::kF32, sequences, 17);
    global.Store(backend);
    EXPECT_TRUE(Close(global.RunAbsorbed(backend), global.Want(), Tolerance(DType::kBF16)));
    EXPECT_TRUE(Close(global.RunExpanded(backend), global.Want(), Tolerance(DType::kBF16)));
  }
}

// A row of 8000 KV heads has more work items, if its history were long, than a launch is made for.
TEST(BackendAttentionTest, ThousandsOfHeads) {
  LocalCase c({8000, 8000, 8}, DType::kBF16, {{{3, 5}}}, 15);
  PromptBackend backend(SmallOptions());
  c.Store(backend);
  BatchLimits limits = c.Limits();
  limits.max_keys = 8192;
  ASSERT_TRUE(backend.Prepare(limits, &c.shape(), nullptr).ok());
  std::vector<float> got(static_cast<size_t>(c.rows() * 8000 * 8));
  backend.LocalAttention(c.Params(got.data()));
  EXPECT_TRUE(Close(got, c.Want(), Tolerance(DType::kBF16)));
}

// On a card an allocation begins where the one before it ends, and no copy may lie in two.
TEST(BackendAttentionTest, CopiesKeepToOneAllocation) {
  CudaOptions options = SmallOptions();
  options.expand_keys = CudaOptions().expand_keys;
  EmulatedOptions device;
  device.neighbours = true;
  PromptBackend backend(options, device);
  GlobalCase c({4, 2, 32, 16, 64}, DType::kBF16, DType::kF32, Sequences(0), 14);
  c.Store(backend);
  EXPECT_TRUE(Close(c.RunExpanded(backend), c.Want(), Tolerance(DType::kBF16)));
}

// A layer of many rows has several calls, each with a batch of its own, and all are in one graph.
TEST(BackendAttentionTest, CallsOfAGraphHaveTheirOwnBatches) {
  LocalCase c({4, 2, 64}, DType::kBF16, {RowsOf(100, 101, 0, 0), RowsOf(300, 301, 0, 0)}, 13);
  PromptBackend prompt(SmallOptions());
  c.Store(prompt);
  const std::vector<float> want = c.Run(prompt);
  EXPECT_TRUE(Close(want, c.Want(), Tolerance(DType::kBF16)));
  auto runtime = MakeEmulatedRuntime();
  const EmulatedRuntime* device = runtime.get();
  const auto backend = *MakeCudaBackend(std::move(runtime), SmallOptions());
  ASSERT_TRUE(backend->Prepare(c.Limits(), &c.shape(), nullptr).ok());
  std::vector<float> got(want.size());
  for (int run = 0; run < 3; ++run) {
    std::fill(got.begin(), got.end(), kNoNumber);
    backend->BeginLayer(c.rows());
    backend->LocalAttention(c.Params(got.data(), 0));
    backend->LocalAttention(c.Params(got.data(), 1));
    backend->EndLayer();
    backend->Synchronize();
    EXPECT_TRUE(SameBits(got, want)) << run;
  }
  EXPECT_EQ(device->counts().captures, 1);
  EXPECT_EQ(device->counts().graph_runs, 2);
}

TEST(BackendAttentionTest, SplitsOfTheDevicesChoiceAreAsGood) {
  CudaOptions options = SmallOptions();
  options.deterministic = false;
  PromptBackend backend(options);
  LocalCase local({8, 2, 64}, DType::kBF16, Sequences(1 << 20), 11);
  local.Store(backend);
  EXPECT_TRUE(Close(local.Run(backend), local.Want(), Tolerance(DType::kBF16)));
  GlobalCase global({8, 2, 32, 16, 128}, DType::kBF16, DType::kBF16, Sequences(0), 12);
  global.Store(backend);
  EXPECT_TRUE(Close(global.RunAbsorbed(backend), global.Want(), 2e-2));
  EXPECT_TRUE(Close(global.RunExpanded(backend), global.Want(), 2e-2));
}

}  // namespace
}  // namespace attnd::kernels::cuda
