#include "core/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/error.h"
#include "tests/support/temp_dir.h"

namespace attnd {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(const absl::Status& status) {
  EXPECT_EQ(ReasonOf(status), Reason::kBadArgument);
  return std::string(status.message());
}

TEST(File, ReadsAndMapsTheSameBytes) {
  const TempDir dir;
  const std::string bytes("one\0two\n", 8);
  const std::string path = dir.Write("f", bytes);
  EXPECT_EQ(ReadFile(path, 8).value(), bytes);
  const auto mapped = MappedFile::Open(path).value();
  EXPECT_EQ(std::string(mapped->bytes().begin(), mapped->bytes().end()), bytes);
}

TEST(File, EmptyFilesAreFiles) {
  const TempDir dir;
  const std::string path = dir.Write("empty", "");
  EXPECT_EQ(ReadFile(path, 0).value(), "");
  EXPECT_TRUE(MappedFile::Open(path).value()->bytes().empty());
}

TEST(File, RefusesWhatIsNotAFileAndNamesIt) {
  const TempDir dir;
  const std::string fifo = dir.path() + "/pipe";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const struct {
    std::string path;
    std::string message;
  } cases[] = {{dir.path(), "is a directory; expected a file"},
               {dir.path() + "/none", "cannot be opened: No such file"},
               {fifo, "is not a regular file"},
               {"/dev/zero", "is not a regular file"},
               {"", "is not a file name"},
               {dir.path() + "/bad\nname", "bad\\x0aname: cannot be opened"}};
  for (const auto& c : cases) {
    EXPECT_THAT(MessageOf(ReadFile(c.path, 100).status()), HasSubstr(c.message));
    EXPECT_THAT(MessageOf(MappedFile::Open(c.path).status()), HasSubstr(c.message));
  }
  EXPECT_THAT(MessageOf(ReadFile(dir.path() + "/none", 1).status()),
              HasSubstr(dir.path() + "/none: "));
}

TEST(File, RefusesWhatIsTooLong) {
  const TempDir dir;
  EXPECT_THAT(MessageOf(ReadFile(dir.Write("f", "12345"), 4).status()),
              HasSubstr("has 5 bytes; expected at most 4"));
}

}  // namespace
}  // namespace attnd
