#include "core/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/support/cpu_timer.h"
#include "tests/support/golden.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_dir.h"

namespace attnd {
namespace {

using ::testing::HasSubstr;

// One layer of each kind, so small that a test can write it down.
LayerPlan TwoLayers() {
  ModelConfig config = LoadModelConfig("builtin:apex1-tiny").value();
  config.d_model = 4;
  config.n_layers = 2;
  config.global_layer_freq = 2;
  config.n_heads_q = 2;
  config.n_heads_kv = 1;
  config.d_head = 2;
  config.d_kv_compressed = 3;
  config.d_q_compressed = 5;
  config.d_head_rope = 2;
  return MakeLayerPlan(config);
}

// All tensors of the plan; the bytes of each are its number.
std::vector<RawTensor> TensorsOf(const LayerPlan& plan, const std::string& dtype = "F32") {
  std::vector<RawTensor> tensors;
  for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    for (const TensorSpec& spec : LayerTensors(plan, layer)) {
      const int64_t bytes = spec.out * spec.in * (dtype == "F32" ? 4 : 2);
      tensors.push_back({spec.name,
                         dtype,
                         {spec.out, spec.in},
                         std::string(bytes, static_cast<char>(tensors.size() + 1))});
    }
  }
  return tensors;
}

RawTensor* FindTensor(std::vector<RawTensor>& tensors, const std::string& name) {
  for (RawTensor& tensor : tensors) {
    if (tensor.name == name) {
      return &tensor;
    }
  }
  return nullptr;
}

std::string Refusal(const std::string& source, const LayerPlan& plan) {
  const CpuTimer timer;
  const auto weights = OpenWeights(source, plan);
  EXPECT_LT(timer.Seconds(), kRefusalSeconds);
  if (weights.ok()) {
    return "accepted";
  }
  const std::string message(weights.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

TEST(Weights, ViewsOfAFileAreItsBytes) {
  const TempDir dir;
  const LayerPlan plan = TwoLayers();
  std::vector<RawTensor> tensors = TensorsOf(plan);
  tensors.insert(tensors.begin(), {"blocks.0.ffn.w1", "F8_E4M3", {3}, "fff"});  // nothing to us
  const std::string path = dir.Write("w.safetensors", FileOfTensors(tensors));
  const auto weights = OpenWeights(path, plan).value();
  EXPECT_EQ(weights->description(), path);
  EXPECT_EQ(weights->dtype(), DType::kF32);
  EXPECT_FALSE(weights->generated());
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (const TensorSpec& spec : LayerTensors(plan, layer)) {
      const TensorView view = weights->Tensor(spec).value();
      EXPECT_EQ(view.out, spec.out);
      EXPECT_EQ(view.in, spec.in);
      const std::string& data = FindTensor(tensors, spec.name)->data;
      EXPECT_EQ(std::memcmp(view.data, data.data(), data.size()), 0) << spec.name;
    }
  }
}

TEST(Weights, DtypesMayDifferAndTheMostCommonIsReported) {
  const TempDir dir;
  const LayerPlan plan = TwoLayers();
  for (const auto& [name, dtype] : {std::pair<const char*, DType>{"BF16", DType::kBF16},
                                    std::pair<const char*, DType>{"F16", DType::kF16}}) {
    std::vector<RawTensor> tensors = TensorsOf(plan, name);
    RawTensor* first = &tensors.front();
    first->dtype = "F32";
    first->data.resize(first->data.size() * 2);
    const auto weights =
        OpenWeights(dir.Write("w.safetensors", FileOfTensors(tensors)), plan).value();
    EXPECT_EQ(weights->dtype(), dtype);
    EXPECT_EQ(weights->Tensor(LayerTensors(plan, 0)[0])->dtype, DType::kF32);
    EXPECT_EQ(weights->Tensor(LayerTensors(plan, 0)[1])->dtype, dtype);
  }
}

TEST(Weights, WrongTensorsAreRefusedByFileAndName) {
  const TempDir dir;
  const LayerPlan plan = TwoLayers();
  const std::string name = "blocks.1.attn.W_DKV.weight";
  const std::string path = dir.path() + "/w.safetensors";
  const auto refusal = [&](auto change) {
    std::vector<RawTensor> tensors = TensorsOf(plan);
    change(tensors, *FindTensor(tensors, name));
    dir.Write("w.safetensors", FileOfTensors(tensors));
    return Refusal(path, plan);
  };
  using Tensors = std::vector<RawTensor>;
  EXPECT_EQ(refusal([](Tensors&, RawTensor&) {}), "accepted");
  EXPECT_EQ(refusal([](Tensors&, RawTensor& t) { t.name = "other"; }),
            path + ": tensor '" + name + "' is missing; expected it with shape [3, 4]");
  EXPECT_EQ(refusal([](Tensors&, RawTensor& t) { t.dtype = "F64"; }),
            path + ": tensor '" + name + "' has dtype 'F64'; expected F32, BF16 or F16");
  EXPECT_EQ(refusal([](Tensors&, RawTensor& t) {
              t.shape = {4, 3};
            }),
            path + ": tensor '" + name + "' has shape [4, 3]; expected [3, 4]");
  EXPECT_EQ(refusal([](Tensors&, RawTensor& t) { t.shape = {12}; }),
            path + ": tensor '" + name + "' has shape [12]; expected [3, 4]");
  EXPECT_THAT(refusal([](Tensors&, RawTensor& t) {
                t.shape = {int64_t{1} << 62, int64_t{1} << 62, 12};
              }),
              HasSubstr("has shape [4611686018427387904, 4611686018427387904, 12]"));
  EXPECT_EQ(refusal([](Tensors&, RawTensor& t) { t.data.resize(47); }),
            path + ": tensor '" + name + "' has 47 bytes; expected 48");
  EXPECT_EQ(refusal([](Tensors&, RawTensor& t) { t.dtype = "F16"; }),
            path + ": tensor '" + name + "' has 48 bytes; expected 24");
  EXPECT_EQ(refusal([](Tensors& all, RawTensor& t) { all.push_back(t); }),
            path + ": tensor '" + name + "' stands there twice");
}

TEST(Weights, TruncatedFilesAreRefused) {
  const TempDir dir;
  const LayerPlan plan = TwoLayers();
  const std::string good = FileOfTensors(TensorsOf(plan));
  for (size_t bytes = 0; bytes < good.size(); bytes += 13) {
    const std::string path = dir.Write("w.safetensors", good.substr(0, bytes));
    const std::string message = Refusal(path, plan);
    EXPECT_EQ(message.rfind(path + ": ", 0), 0u) << message;
  }
  EXPECT_THAT(Refusal(dir.Write("w.safetensors", good.substr(0, good.size() - 1)), plan),
              HasSubstr("tensor 'blocks.1.attn.W_O.weight' has data_offsets"));
}

TEST(Weights, ShardsGiveWhatOneFileGives) {
  const TempDir dir;
  const LayerPlan plan = TwoLayers();
  const std::vector<RawTensor> tensors = TensorsOf(plan);
  const std::vector<RawTensor> first(tensors.begin(), tensors.begin() + 5);
  const std::vector<RawTensor> second(tensors.begin() + 5, tensors.end());
  dir.Write("one.safetensors", FileOfTensors(first));
  dir.Write("sub/two.safetensors", FileOfTensors(second));
  std::string map = R"("unneeded":"not-there.safetensors")";
  for (size_t i = 0; i < tensors.size(); ++i) {
    map += ",\"" + tensors[i].name + "\":\"" +
           (i < 5 ? "one.safetensors" : "./sub/two.safetensors") + "\"";
  }
  const std::string index =
      dir.Write("model.safetensors.index.json", R"({"metadata":{},"weight_map":{)" + map + "}}");
  const auto sharded = OpenWeights(index, plan);
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  const auto whole =
      OpenWeights(dir.Write("all.safetensors", FileOfTensors(tensors)), plan).value();
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (const TensorSpec& spec : LayerTensors(plan, layer)) {
      EXPECT_EQ(std::memcmp((*sharded)->Tensor(spec)->data, whole->Tensor(spec)->data,
                            spec.out * spec.in * 4),
                0);
    }
  }
  EXPECT_EQ(Fingerprint(plan, **sharded).value(), Fingerprint(plan, *whole).value());
}

TEST(Weights, WrongIndexesAreRefused) {
  const TempDir dir;
  const LayerPlan plan = TwoLayers();
  const std::string file = dir.Write("w.safetensors", FileOfTensors(TensorsOf(plan)));
  const auto refusal = [&](const std::string& shard) {
    return Refusal(
        dir.Write("i.json", R"({"weight_map":{"blocks.0.attn.W_Q.weight":")" + shard + "\"}}"),
        plan);
  };
  const std::string start = dir.path() + "/i.json: tensor 'blocks.0.attn.W_Q.weight' is said to be";
  EXPECT_THAT(refusal(file), HasSubstr(start));  // absolute
  EXPECT_THAT(refusal("../w.safetensors"), HasSubstr(start));
  EXPECT_THAT(refusal("a/../../w.safetensors"), HasSubstr(start));
  EXPECT_THAT(refusal(".."), HasSubstr(start));
  EXPECT_THAT(refusal(""), HasSubstr(start));
  EXPECT_THAT(refusal("w.safetensors\\u0000"), HasSubstr(start));
  EXPECT_THAT(refusal("none.safetensors"),
              HasSubstr(dir.path() + "/none.safetensors: cannot be opened"));
  EXPECT_EQ(refusal("w.safetensors"),
            dir.path() + "/i.json: tensor 'blocks.0.attn.W_K.weight' is missing in 'weight_map'");
  EXPECT_THAT(Refusal(dir.Write("i.json", "{"), plan), HasSubstr("i.json: is not JSON"));
}

TEST(Weights, OtherSourcesAreRefused) {
  const TempDir dir;
  const LayerPlan plan = TwoLayers();
  EXPECT_THAT(Refusal(dir.path(), plan), HasSubstr("is a directory; expected a file"));
  EXPECT_THAT(Refusal(dir.path() + "/none", plan), HasSubstr("none: cannot be opened"));
  EXPECT_THAT(Refusal("random:x", plan), HasSubstr("expected random:SEED"));
  EXPECT_THAT(Refusal("", plan), HasSubstr("is not a file name"));
}

TEST(Weights, GoldenModelsOpen) {
  for (const std::string& model : GoldenModels()) {
    const std::string dir = GoldenDir() + "/" + model;
    const LayerPlan plan = MakeLayerPlan(LoadModelConfig(dir + "/model.yaml").value());
    const auto weights = OpenWeights(dir + "/model.safetensors", plan);
    ASSERT_TRUE(weights.ok()) << weights.status();
    const auto cases = LoadGolden(dir);
    ASSERT_TRUE(cases.ok()) << cases.status();
    for (const GoldenCase& golden : *cases) {
      EXPECT_EQ(golden.d_model, plan.d_model);
      EXPECT_LT(golden.layer, plan.num_layers());
    }
  }
}

TEST(Fingerprint, TellsModelsApart) {
  const TempDir dir;
  const LayerPlan plan = TwoLayers();
  std::set<std::string> seen;
  const auto is_new = [&](const LayerPlan& of, const std::string& source) {
    const auto weights = OpenWeights(source, of).value();
    const std::string fingerprint = Fingerprint(of, *weights).value();
    EXPECT_EQ(fingerprint, Fingerprint(of, *OpenWeights(source, of).value()).value());
    EXPECT_EQ(fingerprint.size(), std::string("xxh3:").size() + 32) << fingerprint;
    return seen.insert(fingerprint).second;
  };
  EXPECT_TRUE(is_new(plan, "random:1"));
  EXPECT_TRUE(is_new(plan, "random:2"));
  EXPECT_FALSE(is_new(plan, "random:01"));
  LayerPlan other = plan;
  other.local.window += 1;
  EXPECT_TRUE(is_new(other, "random:1"));
  other = plan;
  other.local.scale *= 1.0000001;
  EXPECT_TRUE(is_new(other, "random:1"));
  other = plan;
  other.global.rope.base += 1;
  EXPECT_TRUE(is_new(other, "random:1"));
  std::vector<RawTensor> tensors = TensorsOf(plan);
  EXPECT_TRUE(is_new(plan, dir.Write("a", FileOfTensors(tensors))));
  tensors.back().data.back() ^= 1;
  EXPECT_TRUE(is_new(plan, dir.Write("b", FileOfTensors(tensors))));
  tensors.push_back({"unneeded", "I8", {1}, "x"});
  EXPECT_FALSE(is_new(plan, dir.Write("c", FileOfTensors(tensors))));
}

}  // namespace
}  // namespace attnd
