// --device: what is taken, what is passed over, and what is said when it cannot be.
#include "server/device.h"

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/config.h"

namespace attnd::server {
namespace {

// Cards of a kind "cuda", of which those below `cards` answer, before the CPU.
std::vector<DeviceKind> WithCards(int cards) {
  std::vector<DeviceKind> kinds = {
      {&kernels::CudaSupport(), "cuda", true, "bf16", 2000, 0.75,
       [cards](const Config&, int index, OpenedDevice* device) {
         if (index >= cards) {
           return absl::NotFoundError("there is no card " + std::to_string(index));
         }
         device->backend = *kernels::MakeCpuBackend({1, "best"});
         device->memory = {int64_t{1} << 37, int64_t{1} << 30, "a card"};
         return absl::OkStatus();
       }}};
  kinds.push_back(CpuDevice());
  return kinds;
}

std::string ErrorOf(const Config& config, const std::vector<DeviceKind>& kinds) {
  const absl::Status valid = ValidateDevice(config, kinds);
  return std::string((valid.ok() ? OpenDevice(config, kinds).status() : valid).message());
}

TEST(DeviceTest, AutoTakesTheCardThatAnswersElseTheCpuAndSaysWhy) {
  const Config config;
  const auto card = OpenDevice(config, WithCards(1));
  ASSERT_TRUE(card.ok()) << card.status();
  EXPECT_EQ(card->name, "cuda:0");
  EXPECT_EQ(card->default_cache_dtype, "bf16");
  EXPECT_EQ(card->memory.origin, "a card");
  EXPECT_EQ(card->passed_over, "");
  const auto cpu = OpenDevice(config, WithCards(0));
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ(cpu->name, "cpu");
  EXPECT_EQ(cpu->default_cache_dtype, "f32");
  EXPECT_EQ(cpu->passed_over, "--device=cuda:0: there is no card 0");
}

TEST(DeviceTest, AnAnswerOfOneLine) {
  Config config;
  config.device = "cuda:1";
  EXPECT_EQ(ErrorOf(config, WithCards(1)), "--device=cuda:1: there is no card 1");
  config.device = "cuda:99";
  EXPECT_EQ(ErrorOf(config, WithCards(1)),
            "--device=cuda:99: this build supports auto, cpu, cuda:N");
  config.device = "cuda";
  EXPECT_EQ(ErrorOf(config, WithCards(1)), "--device=cuda: this build supports auto, cpu, cuda:N");
  config.device = "cuda:0";
  EXPECT_EQ(ErrorOf(config, {CpuDevice()}), "--device=cuda:0: this build supports auto, cpu");
}

TEST(DeviceTest, TheCacheDtypeIsThatOfTheDeviceThatServes) {
  Config config;
  config.cache_dtype = "int8";
  EXPECT_EQ(ErrorOf(config, WithCards(0)), "");
  EXPECT_EQ(ErrorOf(config, WithCards(1)),
            "--cache_dtype=int8: device cuda supports f32, bf16, f16, fp8_e4m3");
  config.device = "cpu";
  EXPECT_EQ(ErrorOf(config, WithCards(1)), "");
  config.cache_dtype = "fp8_e4m3";
  EXPECT_EQ(ErrorOf(config, WithCards(1)),
            "--cache_dtype=fp8_e4m3: device cpu supports f32, bf16, f16, int8");
  config.device = "auto";
  config.cache_dtype = "int4";
  EXPECT_EQ(ErrorOf(config, WithCards(1)),
            "--cache_dtype=int4: device cpu supports f32, bf16, f16, int8; device cuda supports "
            "f32, bf16, f16, fp8_e4m3");
}

TEST(DeviceTest, TheCpuKeepsShadows) {
  Config config;
  config.device = "cpu";
  config.mla_shadow_bytes = 1 << 20;
  EXPECT_EQ(ErrorOf(config, WithCards(0)), "");
}

}  // namespace
}  // namespace attnd::server
