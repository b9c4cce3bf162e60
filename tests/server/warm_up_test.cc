// The warm-up leaves nothing behind.
#include "server/warm_up.h"

#include "gtest/gtest.h"
#include "tests/support/test_engine.h"

namespace attnd::server {
namespace {

TEST(WarmUpTest, RunsBothKindsAndLeavesNothing) {
  TestEngine test(TinyConfig(8, 2), "random:1");
  test.engine().Start();
  ASSERT_TRUE(WarmUp(test.engine()).ok());
  test.engine().Stop();
  const EngineStats stats = test.engine().stats();
  EXPECT_EQ(stats.store.sessions, 0);
  EXPECT_EQ(stats.pool.used_bytes, PerKind{});
  ASSERT_EQ(test.batches().size(), 4U);  // a prefill and a decode, on a layer of each kind
  EXPECT_EQ(test.batches()[0].kind, LayerKind::kLocal);
  EXPECT_EQ(test.batches()[2].kind, LayerKind::kGlobal);
  EXPECT_EQ(test.batches()[3].decode_rows, 1);
}

}  // namespace
}  // namespace attnd::server
