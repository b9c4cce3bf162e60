#include "core/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/cpu_timer.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

namespace attnd {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"(model:
  d_model: 100
  n_layers: 4
  n_heads_q: 6
  n_heads_kv: 2
  d_head: 20
  d_kv_compressed: 28
  d_q_compressed: 36
  d_head_rope: 6
  max_seq_len: 512
  rope_base: 10000.0
  rope_scaling: 1.0
attention:
  global_layer_freq: 2
  local_window: 7
)";

// kGood with the first `from` replaced.
std::string With(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// The message of a refusal, which is one line, starts with the file and comes within a second.
std::string Refusal(const std::string& yaml) {
  const CpuTimer timer;
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(yaml, "m.yaml");
  EXPECT_LT(timer.Seconds(), kRefusalSeconds);
  if (config.ok()) {
    return "accepted";
  }
  const std::string message(config.status().message());
  EXPECT_EQ(message.rfind("m.yaml: ", 0), 0u) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 400u) << message;
  EXPECT_EQ(ReasonOf(config.status()), Reason::kBadArgument);
  return message;
}

TEST(ModelConfig, ReadsEveryKey) {
  const ModelConfig c =
      ParseModelConfig(With("rope_scaling: 1.0", "rope_scaling: 8\n  rope_attn_factor: true"), "m")
          .value();
  EXPECT_EQ(c.d_model, 100);
  EXPECT_EQ(c.n_layers, 4);
  EXPECT_EQ(c.n_heads_q, 6);
  EXPECT_EQ(c.n_heads_kv, 2);
  EXPECT_EQ(c.d_head, 20);
  EXPECT_EQ(c.d_kv_compressed, 28);
  EXPECT_EQ(c.d_q_compressed, 36);
  EXPECT_EQ(c.d_head_rope, 6);
  EXPECT_EQ(c.max_seq_len, 512);
  EXPECT_EQ(c.rope_base, 10000);
  EXPECT_EQ(c.rope_scaling, 8);
  EXPECT_TRUE(c.rope_attn_factor);
  EXPECT_EQ(c.global_layer_freq, 2);
  EXPECT_EQ(c.local_window, 7);
}

TEST(ModelConfig, DefaultsOfRope) {
  std::string text = With("  rope_base: 10000.0\n", "");
  text.erase(text.find("  rope_scaling"), std::string("  rope_scaling: 1.0\n").size());
  const ModelConfig c = ParseModelConfig(text, "m").value();
  EXPECT_EQ(c.rope_base, 10000);
  EXPECT_EQ(c.rope_scaling, 1);
  EXPECT_FALSE(c.rope_attn_factor);
}

TEST(ModelConfig, PassesOverWhatItKnowsAndDoesNotNeed) {
  std::string text = With("model:\n",
                          "moe:\n  experts: [1, {deep: [x]}]\n  d_model: yes\n"
                          "model:\n  d_ffn: 1.5\n  vocab_size: -3\n  dropout: {a: b}\n");
  text += "  flash: true\n";
  EXPECT_TRUE(ParseModelConfig(text, "m").ok()) << Refusal(text);
  EXPECT_TRUE(ParseModelConfig("\xEF\xBB\xBF" + std::string(kGood), "m").ok());  // a mark of UTF-8
  EXPECT_TRUE(ParseModelConfig(With("d_model: 100", "d_model: &a 100\n  d_ffn: *a"), "m").ok());
  EXPECT_EQ(ParseModelConfig(With("rope_base: 10000.0", "rope_base: 1e6"), "m")->rope_base, 1e6);
}

TEST(ModelConfig, UnknownKeysAreRefusedWithTheNearest) {
  EXPECT_EQ(Refusal(With("d_model", "d_modle")),
            "m.yaml: key 'd_modle' of section 'model' is not known; did you mean 'd_model'?");
  EXPECT_EQ(Refusal(With("local_window", "window")),
            "m.yaml: key 'window' of section 'attention' is not known; did you mean "
            "'local_window'?");
  EXPECT_EQ(Refusal(With("attention:\n", "  local_window: 3\nattention:\n")),
            "m.yaml: key 'local_window' stands in section 'model'; expected it in 'attention'");
  EXPECT_THAT(Refusal(With("d_model", "\"a\\nb\"")), HasSubstr("key 'a\\x0ab'"));
  EXPECT_THAT(Refusal(With("d_model: 100", "\"d_model\\0\": 100")), HasSubstr("d_model\\x00"));
  EXPECT_THAT(Refusal(With("d_model: 100", "? [d_model]\n  : 100")), HasSubstr("is a list"));
  EXPECT_THAT(Refusal(With("d_model:", "? " + std::string(100000, 'd') + "\n  :")),
              HasSubstr("did you mean"));
}

TEST(ModelConfig, MissingAndRepeated) {
  EXPECT_EQ(Refusal(With("  d_head: 20\n", "")), "m.yaml: key 'model.d_head' is missing");
  EXPECT_EQ(Refusal(With("  local_window: 7\n", "")),
            "m.yaml: key 'attention.local_window' is missing");
  EXPECT_EQ(Refusal(With("  d_head: 20\n", "  d_head: 20\n  d_head: 20\n")),
            "m.yaml: key 'model.d_head' stands there twice");
  EXPECT_EQ(Refusal(std::string(kGood) + "model:\n  d_model: 3\n"),
            "m.yaml: section 'model' stands there twice");
  EXPECT_EQ(Refusal("model: {}\n"), "m.yaml: key 'model.d_model' is missing");
  EXPECT_THAT(Refusal(std::string(kGood).substr(0, std::string(kGood).find("attention"))),
              HasSubstr("section 'attention' is missing"));
}

TEST(ModelConfig, WrongTypes) {
  EXPECT_EQ(Refusal(With("d_model: 100", "d_model: 64.5")),
            "m.yaml: model.d_model is '64.5'; expected a whole number below 2^63");
  for (const char* value :
       {"100.0", "0x64", "1e2", "yes", "1_000", "100 # no\n  d_head: [", "~", "9223372036854775808",
        "99999999999999999999999", "--1", "-", "+5", "[100]", "{a: 1}"}) {
    EXPECT_NE(Refusal(With("d_model: 100", "d_model: " + std::string(value))), "accepted") << value;
  }
  EXPECT_EQ(Refusal(With("d_model: 100", "d_model: \"100\"")),
            "m.yaml: model.d_model is the text '100'; expected a whole number below 2^63");
  EXPECT_EQ(Refusal(With("d_model: 100", "d_model:")),
            "m.yaml: model.d_model is nothing; expected a whole number below 2^63");
  EXPECT_EQ(Refusal(With("d_model: 100", "d_model: [100]")),
            "m.yaml: model.d_model is a list; expected a whole number below 2^63");
  for (const char* value : {".nan", ".inf", "nan", "inf", "0x10", "ten", "true", "1e400", "1..2"}) {
    EXPECT_NE(Refusal(With("rope_base: 10000.0", "rope_base: " + std::string(value))), "accepted")
        << value;
  }
  EXPECT_EQ(Refusal(With("rope_base: 10000.0", "rope_attn_factor: yes")),
            "m.yaml: model.rope_attn_factor is 'yes'; expected true or false");
  EXPECT_THAT(Refusal("model: 3\nattention: {}\n"), HasSubstr("section 'model' is '3'"));
  EXPECT_THAT(Refusal("model: [d_model, 3]\n"), HasSubstr("section 'model' is a list"));
  EXPECT_THAT(Refusal("model:\nattention:\n"), HasSubstr("section 'model' is nothing"));
}

TEST(ModelConfig, Conditions) {
  EXPECT_EQ(Refusal(With("d_model: 100", "d_model: 0")),
            "m.yaml: model.d_model is 0; expected 1 to 1048576");
  EXPECT_EQ(Refusal(With("d_model: 100", "d_model: -5")),
            "m.yaml: model.d_model is -5; expected 1 to 1048576");
  EXPECT_EQ(Refusal(With("n_heads_kv: 2", "n_heads_kv: 4")),
            "m.yaml: model.n_heads_q is 6; expected a multiple of model.n_heads_kv, which is 4");
  EXPECT_EQ(Refusal(With("d_head: 20", "d_head: 21")),
            "m.yaml: model.d_head is 21; expected an even number");
  EXPECT_EQ(Refusal(With("d_head_rope: 6", "d_head_rope: 7")),
            "m.yaml: model.d_head_rope is 7; expected an even number");
  EXPECT_EQ(Refusal(With("rope_scaling: 1.0", "rope_scaling: 0.5")),
            "m.yaml: model.rope_scaling is 0.5; expected 1 to 1e+06");
  EXPECT_EQ(Refusal(With("local_window: 7", "local_window: 0")),
            "m.yaml: attention.local_window is 0; expected 1 to 2147483648");
  EXPECT_EQ(Refusal(With("global_layer_freq: 2", "global_layer_freq: 0")),
            "m.yaml: attention.global_layer_freq is 0; expected 1 to 2147483648");
  EXPECT_EQ(Refusal(With("max_seq_len: 512", "max_seq_len: 16777217")),
            "m.yaml: model.max_seq_len is 16777217; expected 1 to 16777216");
  EXPECT_EQ(Refusal(With("n_layers: 4", "n_layers: 4097")),
            "m.yaml: model.n_layers is 4097; expected 1 to 4096");
  EXPECT_EQ(Refusal(With("n_heads_q: 6", "n_heads_q: 65536")),
            "accepted");  // 65536 x 28 elements of latent queries are few enough
  EXPECT_EQ(Refusal(With("n_heads_q: 6\n  n_heads_kv: 2\n  d_head: 20",
                         "n_heads_q: 65536\n  n_heads_kv: 2\n  d_head: 66")),
            "m.yaml: model.d_head is 66 with model.n_heads_q 65536; expected a product of at most "
            "4194304");
}

TEST(ModelConfig, NotAConfiguration) {
  EXPECT_THAT(Refusal(""), HasSubstr("is nothing; expected a map"));
  EXPECT_THAT(Refusal("# only a comment\n"), HasSubstr("is nothing; expected a map"));
  EXPECT_THAT(Refusal("just words"), HasSubstr("is 'just words'; expected a map"));
  EXPECT_THAT(Refusal("- model\n- attention\n"), HasSubstr("is a list; expected a map"));
  EXPECT_THAT(Refusal("---\na: 1\n---\nb: 2\n"), HasSubstr("has 2 YAML documents; expected one"));
  EXPECT_THAT(Refusal("model: {d_model: 1\n"), HasSubstr("is not YAML at line"));
  EXPECT_THAT(Refusal("model:\n\td_model: 1\n"), HasSubstr("is not YAML at line"));
  EXPECT_THAT(Refusal("model: *nowhere\n"), HasSubstr("is not YAML at line 1"));
  EXPECT_THAT(Refusal(std::string("model:\0", 7)), HasSubstr("has a NUL at byte 6"));
  EXPECT_THAT(Refusal("model: \xFF\n"), HasSubstr("is not UTF-8 at byte 7"));
  EXPECT_NE(Refusal(std::string("\xFF\xFE m\0o\0", 8)), "accepted");
}

TEST(ModelConfig, BombsAreRefusedInTime) {
  // As long as a file may be.
  const auto repeat = [](const std::string& text) {
    std::string all;
    while (all.size() + text.size() <= (256 << 10)) {
      all += text;
    }
    return all;
  };
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 60; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + ", " + before +
              ", " + before + "]\n";
  }
  const std::string half = "d_model: 1\n" + std::string(250000, ' ');
  for (const std::string& bomb : std::vector<std::string>{
           laughs, laughs + "model: *a59\n", "model: &m {x: *m}\n", repeat("["), repeat("{a: "),
           repeat("- "), repeat("? "), repeat("a: "), repeat("!"), repeat("&a "), repeat("\""),
           repeat("'"), repeat("model:\n"), repeat("---\n"), "model: |\n" + half,
           "model: {" + repeat("a: 1, ") + "}\n", repeat("a: ["),
           "%TAG ! " + std::string(250000, 'x') + "\n---\n", repeat("#")}) {
    EXPECT_NE(Refusal(bomb), "accepted") << bomb.substr(0, 40);
  }
}

TEST(ModelConfig, BuiltinsAreApex1) {
  const ModelConfig large = LoadModelConfig("builtin:apex1-large").value();
  EXPECT_EQ(large.name, "apex1-large");
  EXPECT_EQ(large.d_model, 7168);
  EXPECT_EQ(large.n_layers, 72);
  EXPECT_EQ(large.n_heads_q, 128);
  EXPECT_EQ(large.n_heads_kv, 8);
  EXPECT_EQ(large.d_head, 128);
  EXPECT_EQ(large.d_kv_compressed, 512);
  EXPECT_EQ(large.d_q_compressed, 768);
  EXPECT_EQ(large.d_head_rope, 64);
  EXPECT_EQ(large.max_seq_len, 131072);
  EXPECT_EQ(large.rope_base, 1e6);
  EXPECT_EQ(large.rope_scaling, 8);
  EXPECT_EQ(large.global_layer_freq, 6);
  EXPECT_EQ(large.local_window, 8192);
  const ModelConfig medium = LoadModelConfig("builtin:apex1-medium").value();
  EXPECT_EQ(medium.rope_base, 500000);
  EXPECT_EQ(medium.rope_scaling, 4);
  EXPECT_EQ(medium.n_heads_kv, 4);
  EXPECT_EQ(medium.local_window, 2048);
  const ModelConfig small = LoadModelConfig("builtin:apex1-small").value();
  EXPECT_EQ(small.n_heads_kv, 2);
  EXPECT_EQ(small.d_q_compressed, 96);
  EXPECT_EQ(small.rope_scaling, 1);
  for (const char* size : {"tiny", "small", "medium", "large"}) {
    const ModelConfig config = LoadModelConfig(std::string("builtin:apex1-") + size).value();
    EXPECT_TRUE(ValidateModelConfig(config, size).ok());
  }
}

TEST(ModelConfig, TheTinyOfTheGoldenCasesIsTheBuiltin) {
  const ModelConfig file = LoadModelConfig(GoldenDir() + "/apex1_tiny/model.yaml").value();
  const ModelConfig tiny = LoadModelConfig("builtin:apex1-tiny").value();
  EXPECT_EQ(file.name, "model");
  EXPECT_EQ(file.d_model, tiny.d_model);
  EXPECT_EQ(file.n_layers, tiny.n_layers);
  EXPECT_EQ(file.n_heads_q, tiny.n_heads_q);
  EXPECT_EQ(file.n_heads_kv, tiny.n_heads_kv);
  EXPECT_EQ(file.d_head, tiny.d_head);
  EXPECT_EQ(file.d_kv_compressed, tiny.d_kv_compressed);
  EXPECT_EQ(file.d_q_compressed, tiny.d_q_compressed);
  EXPECT_EQ(file.d_head_rope, tiny.d_head_rope);
  EXPECT_EQ(file.max_seq_len, tiny.max_seq_len);
  EXPECT_EQ(file.global_layer_freq, tiny.global_layer_freq);
  EXPECT_EQ(file.local_window, tiny.local_window);
}

TEST(ModelConfig, LoadsFilesAndNamesThem) {
  const TempDir dir;
  EXPECT_EQ(LoadModelConfig(dir.Write("odd one.v2.yaml", kGood))->name, "odd_one.v2");
  EXPECT_EQ(LoadModelConfig(dir.Write("plain", kGood))->name, "plain");
  const auto message = [](const std::string& source) {
    return std::string(LoadModelConfig(source).status().message());
  };
  EXPECT_EQ(message(dir.path()), dir.path() + ": is a directory; expected a file");
  EXPECT_THAT(message(dir.path() + "/none.yaml"), HasSubstr("none.yaml: cannot be opened"));
  EXPECT_THAT(message(dir.Write("long.yaml", std::string((256 << 10) + 1, '#'))),
              HasSubstr("has 262145 bytes; expected at most 262144"));
  EXPECT_THAT(message("builtin:apex1-smal"), HasSubstr("did you mean 'builtin:apex1-small'?"));
  EXPECT_THAT(message("builtin:"), HasSubstr("'builtin:' is not known"));
  EXPECT_FALSE(LoadModelConfig("").ok());
}

TEST(ModelConfig, AllGoldenModelsLoad) {
  for (const std::string& model : GoldenModels()) {
    const auto config = LoadModelConfig(GoldenDir() + "/" + model + "/model.yaml");
    EXPECT_TRUE(config.ok()) << config.status();
  }
}

}  // namespace
}  // namespace attnd
