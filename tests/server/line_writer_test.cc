// Lines to a pipe that nobody reads: nobody waits, and what was dropped is counted.
#include "server/line_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>

#include "gtest/gtest.h"

namespace attnd::server {
namespace {

using Clock = std::chrono::steady_clock;

class LineWriterTest : public ::testing::Test {
 protected:
  ~LineWriterTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }

  void Write(const std::string& line) {
    writer_.Write(line, [](int64_t count) { return "dropped " + std::to_string(count) + "\n"; });
  }
  // What is in the pipe.
  std::string Read() {
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string text;
    std::array<char, 65536> buffer{};
    for (ssize_t got = 0; (got = read(ends_[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<size_t>(got));
    }
    return text;
  }

  static std::array<int, 2> MakePipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    return ends;
  }

  std::array<int, 2> ends_ = MakePipe();
  LineWriter writer_{ends_[1]};
};

TEST_F(LineWriterTest, AFullPipeDropsLinesAndThenSaysHowMany) {
  const std::string line(99, 'x');
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 10'000; ++i) {
    Write(line + "\n");
  }
  // One wait of 100 ms for all of them.
  EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(1000));
  const std::string before = Read();
  ASSERT_EQ(before.size() % 100, 0U);
  Write("next\n");
  EXPECT_EQ(Read(), "dropped " + std::to_string(10'000 - before.size() / 100) + "\nnext\n");
  Write("more\n");
  EXPECT_EQ(Read(), "more\n");
}

TEST_F(LineWriterTest, ALongLineIsCutAtMost) {
  const std::string head = "head\n";
  Write(head);
  Write(std::string(300'000, 'x') + "\n");
  EXPECT_EQ(Read().substr(0, 7), "head\nxx");
  Write("next\n");
  EXPECT_EQ(Read(), "\ndropped 1\nnext\n");
}

TEST_F(LineWriterTest, ALongLineThatIsReadIsWhole) {
  const std::string line = std::string(30'000, 'x') + "\n";
  Write(line);
  EXPECT_EQ(Read(), line);
}

TEST_F(LineWriterTest, AReaderThatIsGoneCostsNothing) {
  signal(SIGPIPE, SIG_IGN);
  close(ends_[0]);
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 1000; ++i) {
    Write("line\n");
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(1000));
}

}  // namespace
}  // namespace attnd::server
