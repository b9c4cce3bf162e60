// Sessions that are computed together get what they get alone.
#include "tests/integration/tiny_server.h"
#include "tests/support/golden.h"

namespace attnd {
namespace {

class BatchingTest : public testing::TestWithParam<std::string> {};

struct Shape {
  int64_t width = 0;
  uint32_t layers = 0;
};

// A model's server and sessions of different lengths, on all layers.
class Fleet {
 public:
  explicit Fleet(const std::string& model)
      : server_([&] {
          const std::string dir = GoldenDir() + "/" + model;
          return std::vector<std::string>{"--model=" + dir + "/model.yaml",
                                          "--weights=" + dir + "/model.safetensors",
                                          "--kv_cache_bytes=256MiB"};
        }()),
        wire_(server_.grpc()) {
    const v1::ModelInfo info = wire_.Model();
    shape_ = {info.d_model(), static_cast<uint32_t>(info.layers_size())};
  }

  Wire& wire() { return wire_; }
  const Shape& shape() const { return shape_; }
  v1::Tensor Rows(uint64_t seed, int64_t rows) {
    return MakeTensor(RandomRows(seed, rows, shape_.width), shape_.width);
  }
  // The history of session number s: 3 + 17 s rows.
  std::string WithHistory(uint64_t s) {
    const std::string session = wire_.Create();
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      wire_.Prefill(session, layer, 0, Rows(100 * s + layer, Length(s)));
    }
    return session;
  }
  static int64_t Length(uint64_t s) { return 3 + 17 * static_cast<int64_t>(s); }

 private:
  ReadyServer server_;
  Wire wire_;
  Shape shape_;
};

TEST_P(BatchingTest, DecodedTogetherAndAloneTheSameBits) {
  Fleet fleet(GetParam());
  Wire& wire = fleet.wire();
  const int64_t width = fleet.shape().width;
  constexpr int kSessions = 9;
  constexpr int kSteps = 12;
  std::vector<std::string> together, alone;
  for (uint64_t s = 0; s < kSessions; ++s) {
    together.push_back(fleet.WithHistory(s));
    alone.push_back(fleet.WithHistory(s));
  }
  int64_t answers = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    // Two, then three ... then all of them, each with one row or two.
    const int n = 2 + static_cast<int>(step) % (kSessions - 1);
    for (uint32_t layer = 0; layer < fleet.shape().layers; ++layer) {
      std::vector<Part> parts;
      std::vector<float> batch;
      for (int s = 0; s < kSessions; ++s) {
        // All sessions advance by two rows a step: in one call, or in two.
        const int64_t position = Fleet::Length(static_cast<uint64_t>(s)) + 2 * step;
        const std::vector<float> rows =
            RandomRows(1000 * static_cast<uint64_t>(step) + 10 * s + layer, 2, width);
        if (s < n) {
          parts.push_back({together[s], position, 2});
          batch.insert(batch.end(), rows.begin(), rows.end());
        } else {
          wire.Decode(layer, {{together[s], position, 2}}, MakeTensor(rows, width));
        }
      }
      const std::vector<float> joint = wire.Decode(layer, parts, MakeTensor(batch, width));
      ASSERT_EQ(joint.size(), batch.size());
      for (int s = 0; s < kSessions; ++s) {
        const int64_t position = Fleet::Length(static_cast<uint64_t>(s)) + 2 * step;
        const std::vector<float> rows =
            RandomRows(1000 * static_cast<uint64_t>(step) + 10 * s + layer, 2, width);
        const std::vector<float> single =
            wire.Decode(layer, {{alone[s], position, 2}}, MakeTensor(rows, width));
        if (s < n) {
          ASSERT_EQ(single, RowsOf(joint, width, 2 * s, 2))
              << "session " << s << " of " << n << ", layer " << layer << ", step " << step;
          ++answers;
        }
      }
    }
  }
  std::printf("decoded together and alone, %s: %ld answers, all bits equal\n", GetParam().c_str(),
              answers);
}

TEST_P(BatchingTest, DecodedBesidesAPrefillTheSameBits) {
  Fleet fleet(GetParam());
  Wire& wire = fleet.wire();
  const int64_t width = fleet.shape().width;
  const std::string beside = fleet.WithHistory(2);
  const std::string alone = fleet.WithHistory(2);
  const std::string other = wire.Create();
  StepsCall steps(wire);
  for (int64_t i = 0; i < 20; ++i) {
    const v1::Tensor row = fleet.Rows(50 + static_cast<uint64_t>(i), 1);
    // One stream, one layer: they may share a batch.
    v1::PrefillRequest prefill = PrefillOf(other, 0, 0, fleet.Rows(9, 150));
    prefill.set_rewind(true);
    ASSERT_TRUE(steps.Write(StepOf(2 * i, prefill)));
    ASSERT_TRUE(steps.Write(StepOf(2 * i + 1, DecodeOf(0, {{beside, Fleet::Length(2) + i}}, row))));
    std::vector<float> together;
    for (int n = 0; n < 2; ++n) {
      const v1::StepResponse response = steps.Next();
      ASSERT_EQ(StatusText(response.status()), "OK") << response.status().message();
      if (response.has_decode()) {
        together = Values(response.decode().output());
      }
    }
    ASSERT_EQ(together.size(), static_cast<size_t>(width));
    ASSERT_EQ(wire.Decode(0, {{alone, Fleet::Length(2) + i}}, row), together) << i;
  }
}

TEST_P(BatchingTest, ManyRowsOfOneSessionAreCausalAmongThemselves) {
  Fleet fleet(GetParam());
  Wire& wire = fleet.wire();
  const int64_t width = fleet.shape().width;
  for (uint32_t layer = 0; layer < fleet.shape().layers; ++layer) {
    const std::string whole = fleet.WithHistory(1);
    const std::string single = fleet.WithHistory(1);
    const std::vector<float> rows = RandomRows(77, 7, width);
    const std::vector<float> seven =
        wire.Decode(layer, {{whole, Fleet::Length(1), 7}}, MakeTensor(rows, width));
    std::vector<float> seven_times_one;
    for (int64_t i = 0; i < 7; ++i) {
      const std::vector<float> one = wire.Decode(layer, {{single, Fleet::Length(1) + i}},
                                                 MakeTensor(RowsOf(rows, width, i, 1), width));
      seven_times_one.insert(seven_times_one.end(), one.begin(), one.end());
    }
    const Verdict verdict = Compare(seven, seven_times_one, kGoldenF32);
    EXPECT_TRUE(verdict.passed) << verdict.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BatchingTest,
                         testing::Values("apex1_tiny", "odd", "mqa_yarn", "large_shape"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace attnd
