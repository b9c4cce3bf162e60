// What the emulated device finds wrong with a kernel, and what it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "kernels/cuda/device.cuh"

namespace attnd::kernels::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct FaultParams {
  const void* global = nullptr;  // 1 KiB
  float* out = nullptr;          // [64]
};

alignas(16) const char kGlobal[1024] = {};

struct Shape {
  int threads = 64;
  int shared_bytes = 4096;
  int architecture = 90;
};

// What was wrong, the same for a few orders of threads but for who notices it.
std::string FaultOf(void (*kernel)(FaultParams), Shape shape = {}) {
  Stream stream;
  stream.CollectFaults();
  stream.set_architecture(shape.architecture);
  std::string fault;
  for (int seed = -2; seed < 4; ++seed) {
    stream.ClearFault();
    if (seed < 0) {
      stream.set_order(seed == -1 ? Order::kReverse : Order::kInOrder);
    } else {
      stream.set_order(static_cast<uint64_t>(seed));
    }
    float out[64];
    Launch(stream, kernel, Index3{2, 1, 1}, shape.threads, shape.shared_bytes,
           FaultParams{kGlobal, out});
    if (seed > -2) {
      EXPECT_EQ(stream.fault().empty(), fault.empty()) << stream.fault() << " or " << fault;
    }
    fault = stream.fault();
  }
  return fault;
}

Shared<float> TakeFloats(int count) { return SharedCarver().Take<float>(count); }
Shared<uint16_t> TakeHalves(int count) { return SharedCarver().Take<uint16_t>(count); }

TEST(Fault, NoneWhereBarriersAreRight) {
  EXPECT_EQ(FaultOf([](FaultParams p) {
              const Shared<float> s = TakeFloats(64);
              for (int round = 0; round < 3; ++round) {
                s.Store(ThreadIndex(), 1.0f);
                SyncBlock();
                p.out[ThreadIndex()] = s.Load(63 - ThreadIndex());
                SyncBlock();
              }
              // Within a warp.
              s.Store(ThreadIndex(), 2.0f);
              SyncWarp();
              p.out[ThreadIndex()] = s.Load(ThreadIndex() ^ 1) + s.Load(ThreadIndex() ^ 2);
            }),
            "");
}

TEST(Fault, ReadOfWhatAnotherWarpWrote) {
  EXPECT_THAT(
      FaultOf([](FaultParams p) {
        const Shared<float> s = TakeFloats(64);
        s.Store(ThreadIndex(), 1.0f);
        SyncWarp();  // not enough
        p.out[ThreadIndex()] = s.Load(63 - ThreadIndex());
        SyncBlock();
      }),
      AllOf(HasSubstr("race: Load at fault_test.cc:"), HasSubstr("wrote it at fault_test.cc:"),
            HasSubstr("without a SyncBlock() between")));
}

// In some orders the read comes first, in others the write.
TEST(Fault, ReadOfWhatAnotherLaneWrote) {
  EXPECT_THAT(
      FaultOf([](FaultParams p) {
        const Shared<float> s = TakeFloats(64);
        s.Store(ThreadIndex(), 1.0f);
        static_cast<void>(Any(true));  // meets, but orders no memory
        p.out[ThreadIndex()] = s.Load(ThreadIndex() ^ 1);
      }),
      AllOf(HasSubstr("race: Load at fault_test.cc:"), HasSubstr("wrote it at fault_test.cc:"),
            HasSubstr("without a SyncWarp() or SyncBlock() between")));
}

TEST(Fault, WriteOverWhatAnotherWarpReads) {
  EXPECT_THAT(FaultOf([](FaultParams p) {
                const Shared<float> s = TakeFloats(64);
                s.Store(ThreadIndex(), 1.0f);
                SyncBlock();
                p.out[ThreadIndex()] = s.Load(63 - ThreadIndex());
                SyncWarp();
                s.Store(ThreadIndex(), 2.0f);
              }),
              HasSubstr("race: "));
}

TEST(Fault, WriteOverWhatOneOfManyLanesRead) {
  EXPECT_THAT(FaultOf([](FaultParams p) {
                const Shared<float> s = TakeFloats(64);
                s.Store(ThreadIndex(), 1.0f);
                SyncBlock();
                p.out[ThreadIndex()] = s.Load(32 * WarpIndex());
                if (Any(true) && LaneIndex() == 7) {
                  s.Store(32 * WarpIndex(), 2.0f);
                }
              }),
              AllOf(HasSubstr("race: Store at"), HasSubstr("read it at"),
                    HasSubstr("without a SyncWarp()")));
}

TEST(Fault, TwoWritesOfOneElement) {
  EXPECT_THAT(FaultOf([](FaultParams) { TakeFloats(64).Store(ThreadIndex() / 2, 1.0f); }),
              AllOf(HasSubstr("race: Store at"), HasSubstr("wrote it")));
}

TEST(Fault, HalvesOfAWordAreNoRace) {
  EXPECT_EQ(FaultOf([](FaultParams p) {
              const Shared<uint16_t> s = TakeHalves(64);
              s.Store(ThreadIndex(), static_cast<uint16_t>(ThreadIndex()));
              const uint16_t own = s.Load(ThreadIndex());
              SyncBlock();
              const uint32_t both = s.As<uint32_t>().Load(ThreadIndex() / 2);
              p.out[ThreadIndex()] = static_cast<float>(own + both);
              SyncBlock();
              s.As<uint32_t>().At(ThreadIndex() / 2).Address(0);
              if (ThreadIndex() < 32) {
                s.As<uint32_t>().Store(ThreadIndex(), 0);
              }
            }),
            "");
}

TEST(Fault, AWordReadWhereAnotherWroteAHalf) {
  EXPECT_THAT(FaultOf([](FaultParams p) {
                const Shared<uint16_t> s = TakeHalves(128);
                s.Store(2 * ThreadIndex(), 0);
                SyncBlock();
                s.Store(2 * (ThreadIndex() ^ 32) + 1, 0);
                static_cast<void>(Any(true));
                p.out[ThreadIndex()] = static_cast<float>(s.As<uint32_t>().Load(ThreadIndex()));
              }),
              HasSubstr("race: "));
}

TEST(Fault, LoadMatrixOfWhatTheLaneItselfWrote) {
  // Other lanes get it: its own order is not enough.
  EXPECT_THAT(FaultOf([](FaultParams) {
                const Shared<uint16_t> s = TakeHalves(64 * 8).At(256 * WarpIndex());
                s.As<Uint4>().Store(LaneIndex(), Uint4{1, 2, 3, 4});
                uint32_t r[4];
                LoadMatrix4(r, s, 8 * LaneIndex());
              }),
              AllOf(HasSubstr("race: LoadMatrix4 at"), HasSubstr("without a SyncWarp()")));
}

TEST(Fault, CopyWithoutAWait) {
  EXPECT_THAT(FaultOf([](FaultParams p) {
                const Shared<uint16_t> s = TakeHalves(64 * 8);
                CopyAsync16(s, 8 * ThreadIndex(), p.global, true);
                CopyAsyncCommit();
                p.out[ThreadIndex()] = s.Load(8 * ThreadIndex());
              }),
              AllOf(HasSubstr("Load at fault_test.cc:"), HasSubstr("began at fault_test.cc:"),
                    HasSubstr("no CopyAsyncWait() yet")));
}

TEST(Fault, CopyWithTooWeakAWait) {
  EXPECT_THAT(FaultOf([](FaultParams p) {
                const Shared<uint16_t> s = TakeHalves(64 * 16);
                CopyAsync16(s, 8 * ThreadIndex(), p.global, true);
                CopyAsyncCommit();
                CopyAsync16(s, 512 + 8 * ThreadIndex(), p.global, true);
                CopyAsyncCommit();
                CopyAsyncWait<1>();
                p.out[ThreadIndex()] = s.Load(8 * ThreadIndex());  // has arrived
                SyncBlock();
                p.out[ThreadIndex()] = s.Load(512 + 8 * ThreadIndex());
              }),
              AllOf(HasSubstr("byte 1"), HasSubstr("no CopyAsyncWait() yet")));
}

TEST(Fault, CopyThatWasNotCommitted) {
  EXPECT_THAT(FaultOf([](FaultParams p) {
                const Shared<uint16_t> s = TakeHalves(64 * 8);
                CopyAsync16(s, 8 * ThreadIndex(), p.global, true);
                CopyAsyncWait<0>();
                p.out[ThreadIndex()] = s.Load(8 * ThreadIndex());
              }),
              HasSubstr("no CopyAsyncWait() yet"));
}

TEST(Fault, CopyOfAnotherThreadWithoutABarrier) {
  EXPECT_THAT(FaultOf([](FaultParams p) {
                const Shared<uint16_t> s = TakeHalves(64 * 8);
                CopyAsync16(s, 8 * ThreadIndex(), p.global, true);
                CopyAsyncCommit();
                CopyAsyncWait<0>();
                SyncWarp();
                p.out[ThreadIndex()] = s.Load(8 * (ThreadIndex() ^ 32));
                SyncBlock();
              }),
              testing::AnyOf(HasSubstr("race: "), HasSubstr("no CopyAsyncWait() yet")));
}

TEST(Fault, CopyIntoWhatOthersStillRead) {
  EXPECT_THAT(FaultOf([](FaultParams p) {
                const Shared<uint16_t> s = TakeHalves(64 * 8);
                s.Store(8 * ThreadIndex(), 0);
                SyncBlock();
                p.out[ThreadIndex()] = s.Load(8 * (ThreadIndex() ^ 32));
                SyncWarp();
                CopyAsync16(s, 8 * ThreadIndex(), p.global, true);
              }),
              testing::AnyOf(AllOf(HasSubstr("race: CopyAsync16 at"), HasSubstr("read it at")),
                             HasSubstr("no CopyAsyncWait() yet")));
}

TEST(Fault, MisalignedCopy) {
  EXPECT_THAT(
      FaultOf([](FaultParams p) { CopyAsync16(TakeHalves(64), 4, p.global, true); }),
      AllOf(HasSubstr("CopyAsync16 at"), HasSubstr("to byte 8"), HasSubstr("aligned to 16")));
  EXPECT_THAT(FaultOf([](FaultParams p) {
                CopyAsync16(TakeHalves(64 * 8), 8 * ThreadIndex(),
                            static_cast<const char*>(p.global) + 8, false);
              }),
              HasSubstr("from a global address that is not aligned to 16"));
}

TEST(Fault, MisalignedLoadMatrix) {
  EXPECT_THAT(FaultOf([](FaultParams) {
                uint32_t r[4];
                LoadMatrix4(r, TakeHalves(1024), 8 * LaneIndex() + 4);
              }),
              AllOf(HasSubstr("LoadMatrix4 at"), HasSubstr("aligned to 16")));
}

TEST(Fault, MisalignedElement) {
  EXPECT_THAT(FaultOf([](FaultParams) { TakeHalves(64).At(2).As<Uint4>().Load(0); }),
              HasSubstr("element 0 at fault_test.cc:"));
}

TEST(Fault, OutOfBounds) {
  EXPECT_THAT(FaultOf([](FaultParams p) { p.out[0] = TakeFloats(16).Load(16); }),
              HasSubstr("element 16 of a shared array of 16 at fault_test.cc:"));
  EXPECT_THAT(FaultOf([](FaultParams) { TakeFloats(16).Store(-1, 0.0f); }),
              HasSubstr("element -1 of a shared array of 16"));
  EXPECT_THAT(FaultOf([](FaultParams) { TakeFloats(16).At(8).Store(8, 0.0f); }),
              HasSubstr("element 8 of a shared array of 8"));
  EXPECT_THAT(FaultOf([](FaultParams p) { CopyAsync16(TakeHalves(12), 8, p.global, true); }),
              HasSubstr("element 8 of a shared array of 12"));
  EXPECT_THAT(FaultOf([](FaultParams) {
                uint32_t r[4];
                LoadMatrix4(r, TakeHalves(8 * 31), 8 * LaneIndex());
              }),
              HasSubstr("element 248 of a shared array of 248"));
}

TEST(Fault, SharedMemory) {
  const auto kernel = [](FaultParams) { TakeFloats(1025); };
  EXPECT_THAT(FaultOf(kernel),
              AllOf(HasSubstr("need 4100 bytes"), HasSubstr("the launch has 4096")));
  const auto nothing = [](FaultParams) {};
  EXPECT_EQ(FaultOf(nothing, {.shared_bytes = 99 << 10, .architecture = 89}), "");
  EXPECT_THAT(FaultOf(nothing, {.shared_bytes = (99 << 10) + 1, .architecture = 89}),
              HasSubstr("sm_89 has 101376 for a block"));
  EXPECT_EQ(FaultOf(nothing, {.shared_bytes = 163 << 10, .architecture = 80}), "");
  EXPECT_THAT(FaultOf(nothing, {.shared_bytes = (163 << 10) + 1, .architecture = 80}),
              HasSubstr("sm_80 has 166912"));
  EXPECT_EQ(FaultOf(nothing, {.shared_bytes = 227 << 10, .architecture = 100}), "");
  EXPECT_THAT(FaultOf(nothing, {.shared_bytes = (227 << 10) + 1, .architecture = 90}),
              HasSubstr("sm_90 has 232448"));
}

TEST(Fault, BlockOfPartialWarps) {
  EXPECT_THAT(FaultOf([](FaultParams) {}, {.threads = 48}), HasSubstr("a block of 48 threads"));
}

// Kernels outside of macros: within one, all lines are the same.
TEST(Fault, DivergentCollective) {
  const auto kernel = [](FaultParams p) {
    if (LaneIndex() < 16) {
      p.out[ThreadIndex()] = ShuffleXor(1.0f, 1);
    } else {
      p.out[ThreadIndex()] = ShuffleXor(1.0f, 2);
    }
  };
  EXPECT_THAT(FaultOf(kernel), AllOf(HasSubstr("divergent warp: Shuffle at fault_test.cc:"),
                                     HasSubstr("is in Shuffle at fault_test.cc:")));
}

TEST(Fault, DifferentCollectives) {
  EXPECT_THAT(FaultOf([](FaultParams) { LaneIndex() == 0 ? SyncWarp() : void(Any(true)); }),
              AllOf(HasSubstr("divergent warp: "), HasSubstr("SyncWarp at fault_test.cc:"),
                    HasSubstr("Any at fault_test.cc:")));
}

TEST(Fault, CollectiveThatALaneMisses) {
  EXPECT_THAT(FaultOf([](FaultParams p) {
                if (LaneIndex() != 5) {
                  p.out[ThreadIndex()] = ShuffleXor(1.0f, 1);
                }
              }),
              testing::AnyOf(HasSubstr("but a lane has returned"),
                             HasSubstr("the thread returns while lane")));
}

TEST(Fault, ShuffleFromNoLane) {
  EXPECT_THAT(FaultOf([](FaultParams) { Shuffle(1.0f, 32); }), HasSubstr("Shuffle from lane 32"));
}

TEST(Fault, DivergentBarrier) {
  const auto kernel = [](FaultParams) {
    if (WarpIndex() == 0) {
      SyncBlock();
    } else {
      SyncBlock();
    }
  };
  EXPECT_THAT(FaultOf(kernel), AllOf(HasSubstr("divergent block: SyncBlock at fault_test.cc:"),
                                     HasSubstr("waits in SyncBlock at fault_test.cc:")));
}

TEST(Fault, Deadlock) {
  EXPECT_THAT(FaultOf([](FaultParams p) {
                if (ThreadIndex() == 35) {
                  SyncBlock();
                } else if (WarpIndex() == 1) {
                  p.out[ThreadIndex()] = ShuffleXor(1.0f, 1);
                }
              }),
              AllOf(HasSubstr("deadlock"), HasSubstr("threads 0 to 31: returned"),
                    HasSubstr("threads 32 to 34: in Shuffle at fault_test.cc:"),
                    HasSubstr("thread 35: in SyncBlock at fault_test.cc:")));
}

TEST(Fault, ReturnedThreadsAreNotWaitedFor) {
  EXPECT_EQ(FaultOf([](FaultParams p) {
              const Shared<float> s = TakeFloats(64);
              if (WarpIndex() == 1) {
                return;
              }
              s.Store(ThreadIndex(), 1.0f);
              SyncBlock();
              p.out[ThreadIndex()] = s.Load(31 - ThreadIndex());
            }),
            "");
}

TEST(Fault, EndsTheStreamUntilItIsCleared) {
  Stream stream;
  stream.CollectFaults();
  float out[64] = {};
  const FaultParams params{kGlobal, out};
  const auto good = +[](FaultParams p) { p.out[ThreadIndex()] = 1.0f; };
  Launch(
      stream, +[](FaultParams) { TakeFloats(4000); }, Index3{}, 64, 64, params);
  Launch(stream, good, Index3{}, 64, 64, params);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_THAT(stream.fault(), AllOf(HasSubstr("block 0, thread "), HasSubstr("need 16000 bytes")));
  stream.ClearFault();
  Launch(stream, good, Index3{}, 64, 64, params);
  EXPECT_EQ(stream.fault(), "");
  EXPECT_EQ(out[63], 1.0f);
}

TEST(FaultDeathTest, EndsTheProcessByDefault) {
  Stream stream;
  const auto kernel = +[](FaultParams) { TakeFloats(16).Load(16); };
  EXPECT_DEATH(Launch(stream, kernel, Index3{}, 64, 64, FaultParams{}),
               "emulated device: block 0, thread [0-9]+: element 16 of a shared array of 16");
}

}  // namespace
}  // namespace attnd::kernels::cuda
