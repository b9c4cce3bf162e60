// /status.json: what it says, what it never says, and how large it may become.
#include "server/status_document.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "server/config.h"
#include "tests/server/service_fixture.h"
#include "tests/support/temp_dir.h"

namespace attnd::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class StatusDocumentTest : public ServiceFixture {
 protected:
  json Get(StatusDocument& document) { return json::parse(document.Json()); }
  std::string Create(const std::string& id, const std::string& affinity_key = "") {
    CreateOptions options;
    options.id = id;
    options.affinity_key = affinity_key;
    const auto info = engine_.engine().sessions().Create(options);
    EXPECT_TRUE(info.ok()) << info.status();
    return info->id;
  }
};

TEST_F(StatusDocumentTest, SaysWhatServes) {
  StatusDocument document(service_, "1.2.3", {{"max_rewind", "64", false}, {"isa", "sse4", true}});
  engine_.clock().Advance(5'000'000'000);
  const json status = Get(document);
  EXPECT_EQ(status["server_id"], "replica-7");
  EXPECT_EQ(status["version"], "1.2.3");
  EXPECT_EQ(status["state"], "ready");
  EXPECT_EQ(status["uptime_ms"], 5000);
  EXPECT_EQ(status["flags"][1], json({{"name", "isa"}, {"value", "sse4"}, {"given", true}}));
  EXPECT_EQ(status["model"]["layers"], "LG");
  EXPECT_EQ(status["model"]["local"]["window"], 8);
  EXPECT_EQ(status["model"]["max_seq_len"], engine_.engine().plan().max_seq_len);
  EXPECT_EQ(status["sessions"]["list"], json::array());
}

TEST_F(StatusDocumentTest, SaysHowFarTheServerIs) {
  Admission admission;
  ServiceContext starting{.config = config_,
                          .clock = engine_.clock(),
                          .auth = auth_,
                          .log = log_,
                          .requests = requests_,
                          .metrics = metrics_,
                          .admission = admission,
                          .streams = streams_,
                          .budget = budget_,
                          .server_id = "replica-7",
                          .on_drain = [] {},
                          .engine = nullptr,  // is not there yet
                          .model = {}};
  StatusDocument document(starting, "1.2.3", {});
  EXPECT_EQ(Get(document)["state"], "starting");
  EXPECT_EQ(Get(document)["model"], nullptr);
  EXPECT_EQ(Get(document)["sessions"], nullptr);
  starting.engine = &engine_.engine();
  admission.BeginServing();
  EXPECT_EQ(Get(document)["state"], "ready");
  admission.BeginDraining();
  EXPECT_EQ(Get(document)["state"], "draining");
  admission.BeginRefusing();
  EXPECT_EQ(Get(document)["state"], "refusing");
  EXPECT_FALSE(Get(document)["sessions"].is_null());
}

TEST_F(StatusDocumentTest, ListsSessionsWithTheLengthsOfTheirLayers) {
  Create("idle");
  engine_.clock().Advance(2'000'000'000);
  Create("a", "worker-1");
  engine_.Run(engine_.Prefill("a", 0, 0, RandomRows(1, 12, d_model())));
  engine_.Run(engine_.Prefill("a", 1, 0, RandomRows(1, 7, d_model())));
  engine_.clock().Advance(1'500'000'000);
  StatusDocument document(service_, "1.2.3", {});
  const json list = Get(document)["sessions"]["list"];
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["id"], "a") << "the one used last is first";
  EXPECT_EQ(list[0]["affinity_key"], "worker-1");
  EXPECT_EQ(list[0]["lengths"], json({12, 7}));
  EXPECT_EQ(list[0]["idle_ms"], 1500);
  EXPECT_EQ(list[0]["cache_bytes"], engine_.Find("a")->CacheBytes());
  EXPECT_EQ(list[1]["idle_ms"], 3500);
  EXPECT_EQ(list[1]["age_ms"], 3500);
}

TEST_F(StatusDocumentTest, DoesNotRestartIdleTimes) {
  Create("a");
  const MonotonicNs expiry = engine_.Find("a")->expiry();
  engine_.clock().Advance(1'000'000);
  StatusDocument document(service_, "1.2.3", {});
  EXPECT_EQ(Get(document)["sessions"]["list"].size(), 1U);
  EXPECT_EQ(engine_.engine().sessions().MostRecent(1).front()->expiry(), expiry);
}

TEST_F(StatusDocumentTest, LooksThroughTheSessionsNowAndThenHoweverManyAsk) {
  StatusDocument document(service_, "1.2.3", {});
  Create("a");
  EXPECT_EQ(Get(document)["sessions"]["list"].size(), 1U);
  Create("b");
  EXPECT_EQ(Get(document)["sessions"]["list"].size(), 1U);
  engine_.clock().Advance(500'000'000);
  EXPECT_EQ(Get(document)["sessions"]["list"].size(), 2U);
}

TEST_F(StatusDocumentTest, WhateverClientsWroteIsText) {
  const std::string odd = "</script><b>\"\\ &'{";
  Create("a", odd);
  StatusDocument document(service_, "1.2.3", {});
  const json status = Get(document);
  const std::string key = status["sessions"]["list"][0]["affinity_key"].get<std::string>();
  EXPECT_EQ(key, odd);
}

TEST_F(StatusDocumentTest, IsOfBoundedSize) {
  for (int i = 0; i < 200; ++i) {
    Create("s" + std::string(120, 'x') + std::to_string(i), std::string(256, '"'));
  }
  StatusDocument document(service_, "1.2.3", {});
  const std::string text = document.Json();
  EXPECT_EQ(json::parse(text)["sessions"]["list"].size(), 50U);
  EXPECT_LT(text.size(), size_t{128} << 10);
  EXPECT_EQ(ListedSessions(2), 50);
  EXPECT_EQ(ListedSessions(72), 50);
  EXPECT_EQ(ListedSessions(4096), 4);
  EXPECT_EQ(ListedSessions(1 << 20), 1);
}

TEST_F(StatusDocumentTest, NamesNoSessionWhereTheServerHasTokens) {
  const TempDir dir;
  auth_ = *Auth::FromFile(dir.Write("tokens", "acme swordfish\n"));
  CreateOptions options;
  options.tenant = "acme";
  options.id = "a-secret-session";
  options.affinity_key = "worker-1";
  ASSERT_TRUE(engine_.engine().sessions().Create(options).ok());
  StatusDocument document(service_, "1.2.3", {});
  const std::string text = document.Json();
  const json sessions = json::parse(text)["sessions"];
  EXPECT_EQ(sessions["named"], false);
  ASSERT_EQ(sessions["list"].size(), 1U);
  EXPECT_EQ(sessions["list"][0]["lengths"], json({0, 0}));
  for (const char* secret : {"a-secret-session", "acme", "worker-1", "swordfish"}) {
    EXPECT_THAT(text, Not(HasSubstr(secret)));
  }
}

TEST(ShownSettingsTest, OfSecurityOnlyWhetherItIsSet) {
  Config config;
  FlagTable flags = MakeFlagTable(&config);
  ASSERT_TRUE(flags
                  .Parse({"--auth_tokens_file=/etc/attnd/tokens", "--tls_cert=/etc/c.pem",
                          "--tls_key=/etc/k.pem", "--max_rewind=7"})
                  .ok());
  std::map<std::string, ShownSetting> shown;
  for (const ShownSetting& setting : flags.Shown()) {
    shown[setting.name] = setting;
    EXPECT_THAT(setting.value, Not(HasSubstr("/etc/")));
  }
  EXPECT_EQ(shown["auth_tokens_file"].value, "set");
  EXPECT_EQ(shown["tls_key"].value, "set");
  EXPECT_EQ(shown["tls_client_ca"].value, "off");
  EXPECT_EQ(shown["max_rewind"].value, "7");
  EXPECT_TRUE(shown["max_rewind"].given);
  EXPECT_FALSE(shown["idle_ttl"].given);
  EXPECT_EQ(shown.count("help"), 0U);
  EXPECT_EQ(shown.size(), flags.Values().size());
}

}  // namespace
}  // namespace attnd::server
