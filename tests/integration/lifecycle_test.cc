// The process: how it says that it is ready, and how it says that it cannot be.
#include <unistd.h>

#include <fstream>

#include "kernels/cpu/cpu_backend.h"
#include "tests/integration/http_get.h"
#include "tests/integration/tiny_server.h"
#include "tests/support/golden.h"

namespace attnd {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

TEST(LifecycleTest, TheReadyLineIsAllOfStdout) {
  ReadyServer server(TinyFlags());
  EXPECT_THAT(server.Stdout(),
              MatchesRegex("attnd ready grpc=127\\.0\\.0\\.1:[0-9]+ http=127\\.0\\.0\\.1:[0-9]+ "
                           "model=apex1-tiny device=cpu:[a-z0-9_]+\n"));
  EXPECT_NE(server.grpc(), "127.0.0.1:0");
  EXPECT_NE(server.http(), "127.0.0.1:0");
  Wire wire(server.grpc());
  const v1::ModelInfo info = wire.Model();
  EXPECT_EQ(info.name(), "apex1-tiny");
  EXPECT_EQ(info.device(), server.Ready("device"));
  EXPECT_EQ(info.weights(), "random:1");
  EXPECT_EQ(info.layers_size(), 6);
  EXPECT_EQ(info.layers(5), v1::LAYER_KIND_GLOBAL_MLA);
  EXPECT_EQ(info.page_tokens(), 64);
  EXPECT_EQ(info.global_bytes_per_token(), (16 + 2 * 8) * 4);
  EXPECT_EQ(info.local_bytes_per_token(), 2 * 2 * 16 * 4);
  EXPECT_EQ(info.max_message_bytes(), 256 << 20);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.WaitExit(), 0);
  EXPECT_EQ(server.Stdout(), server.ready_line() + "\n") << "and nothing more at the end";
}

TEST(LifecycleTest, EveryInstructionSetServesUnderItsName) {
  for (const std::string& isa : kernels::CpuIsas()) {
    ReadyServer server(TinyFlags({"--isa=" + isa}));
    EXPECT_EQ(server.Ready("device"), "cpu:" + isa);
    EXPECT_THAT(server.Stderr(), HasSubstr(" device=cpu:" + isa + "\n")) << "logged too";
    Wire wire(server.grpc());
    EXPECT_EQ(wire.Model().device(), "cpu:" + isa);
    EXPECT_EQ(wire.Prefill(wire.Create(), 0, 0, TinyRows(1, 2)).size(), 128u);
  }
}

TEST(LifecycleTest, SeveralAddressesAndAUnixSocket) {
  TempDir dir;
  const std::string socket = "unix:" + dir.path() + "/s";
  ReadyServer server(TinyFlags({"--listen=" + socket}));
  const std::string all = server.grpc();
  const size_t comma = all.find(',');
  ASSERT_NE(comma, std::string::npos) << all;
  EXPECT_EQ(all.substr(comma + 1), socket);
  const std::string session = Wire(all.substr(0, comma)).Create();
  Wire other(socket);
  EXPECT_EQ(other.Prefill(session, 0, 0, TinyRows(1, 2)).size(), 128u) << "the same server";
}

TEST(LifecycleTest, WithoutHttp) {
  ReadyServer server(TinyFlags({"--http="}));
  EXPECT_EQ(server.http(), "off");
  Wire(server.grpc()).Create();
}

TEST(LifecycleTest, ProbesAndTheStatusPage) {
  ReadyServer server(TinyFlags());
  EXPECT_EQ(HttpGet(server.http(), "/healthz").status, 200);
  EXPECT_EQ(HttpGet(server.http(), "/readyz").status, 200);
  EXPECT_EQ(HttpGet(server.http(), "/").status, 200);
  EXPECT_EQ(HttpGet(server.http(), "/nothing").status, 404);
  EXPECT_THAT(HttpGet(server.http(), "/metrics").head, HasSubstr("text/plain; version=0.0.4"));
  Wire wire(server.grpc());
  Wire::Health health;
  for (const char* service : {"", "attnd.v1.AttentionService"}) {
    EXPECT_TRUE(wire.CheckHealth(service, &health).ok());
    EXPECT_EQ(health, Wire::Health::kServing);
  }
  EXPECT_EQ(wire.CheckHealth("no.such.Service", &health).code, grpc::StatusCode::NOT_FOUND);
}

TEST(LifecycleTest, FlagfilesAndOverrides) {
  TempDir dir;
  const std::string file = dir.Write("flags",
                                     "# a comment\n\n--model=builtin:apex1-tiny\n"
                                     "--max_rewind=17\n--max_message_bytes=1MiB\n");
  ReadyServer server({"--flagfile=" + file, "--max_rewind=23"});
  const v1::ModelInfo info = Wire(server.grpc()).Model();
  EXPECT_EQ(info.max_message_bytes(), 1 << 20);
  EXPECT_EQ(info.max_rewind(), 23);
}

TEST(LifecycleTest, CommandsThatOnlyPrint) {
  for (const char* command : {"--help", "--version", "--check"}) {
    ServerProcess process({command, "--model=builtin:apex1-tiny"});
    EXPECT_EQ(process.WaitExit(), 0) << command;
    EXPECT_FALSE(process.Stdout().empty()) << command;
    EXPECT_EQ(process.Stderr(), "") << command;
    EXPECT_THAT(process.Stdout(), Not(HasSubstr("attnd ready"))) << command;
  }
}

struct BadStart {
  std::string name;
  std::vector<std::string> flags;
  std::vector<std::string> words;  // of the one line on stderr
};

class BadStartTest : public testing::TestWithParam<BadStart> {};

// Exit code 2 and one line within a second. A loaded machine may need longer: 5 s here.
void ExpectRefused(const std::vector<std::string>& flags, const std::vector<std::string>& words) {
  std::vector<std::string> all = {"--listen=127.0.0.1:0", "--http=127.0.0.1:0"};
  all.insert(all.end(), flags.begin(), flags.end());
  ServerProcess process(all);
  EXPECT_EQ(process.WaitExit(Seconds(5)), 2);
  EXPECT_EQ(process.Stdout(), "");
  // What is logged before is one event a line; the last line says what is wrong.
  std::string text = process.Stderr();
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n');
  text.pop_back();
  const std::string last =
      text.substr(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  EXPECT_THAT(last, testing::StartsWith("attnd: "));
  EXPECT_LT(last.size(), 500u);
  for (const std::string& word : words) {
    EXPECT_THAT(last, HasSubstr(word));
  }
}

#if defined(__x86_64__)
constexpr const char* kForeignIsa = "neon";
#else
constexpr const char* kForeignIsa = "avx2";
#endif

// The flag, its value, and every name that would have served.
std::vector<std::string> IsaWords(const std::string& isa) {
  std::vector<std::string> words = kernels::CpuIsas();
  words.insert(words.end(), {"--isa=" + isa, "best"});
  return words;
}

TEST_P(BadStartTest, OneLineAndExitCode2) { ExpectRefused(GetParam().flags, GetParam().words); }

INSTANTIATE_TEST_SUITE_P(
    Flags, BadStartTest,
    testing::Values(
        BadStart{"UnknownFlag", {"--modle=x"}, {"modle", "--model"}},
        BadStart{"BadNumber", {"--max_sessions=many"}, {"max_sessions", "many"}},
        BadStart{"TinyCache", {"--kv_cache_bytes=1MiB"}, {"kv_cache_bytes", "at least"}},
        BadStart{"HugeCache", {"--kv_cache_bytes=1024TiB"}, {"kv_cache_bytes", "may be used"}},
        BadStart{"EmptySecret", {"--auth_tokens_file="}, {"auth_tokens_file", "off"}},
        BadStart{"DirectoryAsFlagfile", {"--flagfile=/tmp"}, {"/tmp", "directory"}},
        BadStart{"EndlessFlagfile", {"--flagfile=/dev/zero"}, {"/dev/zero", "regular file"}},
        BadStart{"BadBytes", {"--kv_cache_bytes=8 potatoes"}, {"kv_cache_bytes", "8GiB"}},
        BadStart{"BadChoice", {"--weight_dtype=f64"}, {"weight_dtype", "bf16"}},
        BadStart{"BadCacheDtype", {"--cache_dtype=int3"}, {"cache_dtype", "bf16"}},
        BadStart{"NoSuchDevice", {"--device=cuda:0"}, {"device", "cuda:0"}},
        BadStart{"NoSuchModel", {"--model=builtin:apex1-huge"}, {"apex1-huge", "apex1-large"}},
        BadStart{"NoModelFile", {"--model=/no/such.yaml"}, {"/no/such.yaml"}},
        BadStart{"NoWeights",
                 {"--model=builtin:apex1-tiny", "--weights=/no/such.safetensors"},
                 {"/no/such.safetensors"}},
        BadStart{"BadSeed", {"--model=builtin:apex1-tiny", "--weights=random:x"}, {"random:x"}},
        BadStart{"BadListen", {"--listen=here"}, {"listen", "host:port"}},
        BadStart{"BadHttp", {"--http=127.0.0.1:99999"}, {"http", "99999"}},
        BadStart{"NotOurAddress",
                 {"--model=builtin:apex1-tiny", "--listen=203.0.113.9:0"},
                 {"203.0.113.9"}},
        BadStart{"BadIsa", {"--model=builtin:apex1-tiny", "--isa=z80"}, IsaWords("z80")},
        BadStart{"IsaOfAnotherMachine",
                 {"--model=builtin:apex1-tiny", std::string("--isa=") + kForeignIsa},
                 IsaWords(kForeignIsa)},
        BadStart{"NoFlagfile", {"--flagfile=/no/flags"}, {"/no/flags"}},
        BadStart{"Positional", {"model.yaml"}, {"model.yaml"}}),
    [](const auto& instance) { return instance.param.name; });

TEST(BadFilesTest, ModelsWithWrongKeys) {
  TempDir dir;
  std::ifstream good(GoldenDir() + "/odd/model.yaml");
  const std::string yaml((std::istreambuf_iterator<char>(good)), std::istreambuf_iterator<char>());
  ASSERT_FALSE(yaml.empty());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = yaml;
    changed.replace(changed.find(from), from.size(), to);
    return "--model=" + dir.Write("m.yaml", changed);
  };
  ExpectRefused({with("d_head:", "d_haed:")}, {"d_haed", "d_head"});
  ExpectRefused({with("n_heads_q: 6", "n_heads_q: 5")}, {"n_heads_q"});
  ExpectRefused({with("local_window: 7", "local_window: 0")}, {"local_window"});
  ExpectRefused({with("d_model: 100", "d_model: lots")}, {"d_model"});
  ExpectRefused({"--model=" + dir.Write("m.yaml", "model: [")}, {"m.yaml"});
}

TEST(BadFilesTest, WeightsThatDoNotFit) {
  TempDir dir;
  const std::string golden = GoldenDir() + "/odd/";
  const std::string model = "--model=" + golden + "model.yaml";
  std::ifstream good(golden + "model.safetensors", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(good)), std::istreambuf_iterator<char>());
  ASSERT_GT(bytes.size(), 1000u);
  const auto file = [&](const std::string& contents) {
    return "--weights=" + dir.Write("w.safetensors", contents);
  };
  ExpectRefused({model, file(bytes.substr(0, bytes.size() / 2))}, {"w.safetensors"});
  ExpectRefused({model, file(bytes.substr(0, 4))}, {"w.safetensors"});
  ExpectRefused({model, file("")}, {"w.safetensors"});
  std::string huge = bytes;
  huge[7] = 16;  // a header of 2^60 bytes
  ExpectRefused({model, file(huge)}, {"w.safetensors"});
  std::string renamed = bytes;
  renamed.replace(renamed.find("W_KR"), 4, "W_XX");
  ExpectRefused({model, file(renamed)}, {"W_KR"});
  ExpectRefused({"--model=" + GoldenDir() + "/mha/model.yaml", file(bytes)}, {"blocks."});
}

TEST(BadFilesTest, APortThatIsTaken) {
  ReadyServer server(TinyFlags());
  ExpectRefused(TinyFlags({"--listen=" + server.grpc()}), {"listen", server.grpc()});
  ExpectRefused(TinyFlags({"--http=" + server.http()}), {"http", server.http()});
  TempDir dir;
  const std::string socket = "unix:" + dir.path() + "/s";
  ReadyServer other(TinyFlags({"--listen=" + socket}));
  ExpectRefused(TinyFlags({"--listen=" + socket}), {socket});
  Wire(socket).Create();  // the first still answers there
}

}  // namespace
}  // namespace attnd
