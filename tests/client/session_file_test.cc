// Sessions in files: there and back, cut anywhere, damaged anywhere, and nothing left behind.
#include "client/cpp/session_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/client/fake_server.h"
#include "tests/support/temp_dir.h"

namespace attnd::client {
namespace {

const std::vector<float> kThreeRows = {1, 2, 3, 4, 5, 6};

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

size_t Files(const TempDir& dir) {
  const auto files = std::filesystem::directory_iterator(dir.path());
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

class SessionFile : public testing::Test {
 protected:
  void SetUp() override {
    session_ = *client_->CreateSession({"a", 0, 0, {}});
    ASSERT_TRUE(session_->Prefill(1, kThreeRows).ok());
  }

  std::string Exported() {
    EXPECT_TRUE(ExportToFile(*client_, "a", path_).ok());
    return Read(path_);
  }
  // How an import of these bytes ends.
  Error ImportOf(const std::string& bytes) {
    return ErrorOf(ImportFromFile(*client_, dir_.Write("cut", bytes), {"b", {}}).status());
  }

  FakeServer server_;
  TempDir dir_;
  const std::unique_ptr<Client> client_ = server_.Connect();
  std::unique_ptr<Session> session_;
  const std::string path_ = dir_.path() + "/a.session";
};

TEST_F(SessionFile, ComesBack) {
  std::vector<int64_t> seen;
  const Progress progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 1000);
    seen.push_back(done);
  };
  const auto bytes = ExportToFile(*client_, "a", path_, {false, progress});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, 1000);
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 300, 600, 900, 1000, 1000}));
  seen.clear();
  const auto session = ImportFromFile(*client_, path_, {"b", progress});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->id(), "b");
  EXPECT_EQ((*session)->length(1), 3);
  EXPECT_EQ(seen.back(), 1000);
  EXPECT_EQ(server_.exports(), 1);
}

TEST_F(SessionFile, KeepsItsIdUnlessAnotherIsGiven) {
  Exported();
  EXPECT_EQ(ErrorOf(ImportFromFile(*client_, path_).status()).reason, "SESSION_EXISTS");
  ASSERT_TRUE(session_->Close().ok());
  EXPECT_EQ((*ImportFromFile(*client_, path_))->id(), "a");
}

TEST_F(SessionFile, HasTheLayoutThatOtherClientsRead) {
  const std::string bytes = Exported();
  ASSERT_EQ(bytes.substr(0, 8), "ATTNDS1\n");
  const size_t first = static_cast<unsigned char>(bytes[8]);
  EXPECT_EQ(bytes.substr(9, 3), std::string(3, '\0'));
  v1::SessionChunk chunk;
  ASSERT_TRUE(chunk.ParseFromString(bytes.substr(12, first)));
  EXPECT_EQ(chunk.header().session_id(), "a");
  ASSERT_TRUE(chunk.ParseFromString(bytes.substr(bytes.size() - 18)));
  EXPECT_EQ(chunk.digest().size(), 16u);
}

TEST_F(SessionFile, IsForItsOwnerAlone) {
  Exported();
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(Files(dir_), 1u);
}

TEST_F(SessionFile, CutAnywhereIsRefused) {
  const std::string whole = Exported();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const Error error = ImportOf(whole.substr(0, bytes));
    ASSERT_EQ(error.code,
              bytes < 8 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss)
        << bytes << ": " << error.message;
    ASSERT_EQ(error.reason, bytes < 8 ? "" : "TRUNCATED") << bytes << ": " << error.message;
  }
  EXPECT_EQ(client_->ListSessions()->size(), 1u);
}

TEST_F(SessionFile, DamagedAnywhereIsRefused) {
  const std::string whole = Exported();
  for (size_t at = 0; at < whole.size(); at += at < 100 ? 1 : 7) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x20);
    const Error error = ImportOf(bytes);
    ASSERT_EQ(error.code, at < 8 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss)
        << at << ": " << error.message;
  }
  EXPECT_EQ(client_->ListSessions()->size(), 1u);
}

TEST_F(SessionFile, WithMoreBehindItIsRefused) {
  EXPECT_EQ(ImportOf(Exported() + std::string(4, '\0')).reason, "BAD_DIGEST");
}

TEST_F(SessionFile, AFailedExportLeavesNothingAndKeepsWhatWasThere) {
  const std::string before = Exported();
  FakeExport how;
  how.damage = true;
  server_.SetExport(how);
  EXPECT_EQ(ErrorOf(ExportToFile(*client_, "a", path_).status()).reason, "BAD_DIGEST");
  how = {};
  how.cut_after = 2;
  server_.SetExport(how);
  EXPECT_EQ(ErrorOf(ExportToFile(*client_, "a", path_).status()).reason, "TRUNCATED");
  EXPECT_EQ(ErrorOf(ExportToFile(*client_, "no", path_).status()).reason, "SESSION_UNKNOWN");
  EXPECT_EQ(Read(path_), before);
  EXPECT_EQ(Files(dir_), 1u);
}

TEST_F(SessionFile, SaysWhichFileCannotBeOpened) {
  const auto missing = ImportFromFile(*client_, dir_.path() + "/none");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  const auto nowhere = ExportToFile(*client_, "a", dir_.path() + "/no/where");
  EXPECT_NE(nowhere.status().message().find("/no/where: cannot be written"), std::string::npos);
  EXPECT_EQ(server_.exports(), 0);
}

// As root, an export to /dev/null made a file of it.
TEST_F(SessionFile, ReplacesNothingButAFile) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const auto exported = ExportToFile(*client_, "a", path_);
  EXPECT_NE(exported.status().message().find("it is not a file"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_EQ(server_.exports(), 0);
  EXPECT_EQ(Files(dir_), 1u);
}

TEST_F(SessionFile, AMoveWhoseFileCannotTakeItsPlaceOpensTheSessionAgain) {
  const Progress in_the_way = [&](int64_t, int64_t) { std::filesystem::create_directory(path_); };
  EXPECT_FALSE(ExportToFile(*client_, "a", path_, {true, in_the_way}).ok());
  EXPECT_GE(server_.exports(), 1);
  EXPECT_FALSE(server_.Moving("a"));
  EXPECT_EQ(Files(dir_), 1u);
}

}  // namespace
}  // namespace attnd::client
