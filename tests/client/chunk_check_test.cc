// Which sequences of parts are a whole session, and what is said of the others.
#include "client/cpp/chunk_check.h"

#include <gtest/gtest.h>

#include "client/cpp/error.h"
#include "tests/client/session_parts.h"

namespace attnd::client {
namespace {

using Chunks = std::vector<v1::SessionChunk>;

// The first refusal, or the verdict at the end: "" or "REASON: message".
std::string Verdict(const Chunks& chunks) {
  ChunkCheck check;
  absl::Status status;
  for (const v1::SessionChunk& chunk : chunks) {
    status = check.Add(chunk);
    if (!status.ok()) {
      break;
    }
  }
  status = status.ok() ? check.Finish() : status;
  if (status.ok()) {
    return "";
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  return ErrorOf(status).reason + ": " + std::string(status.message());
}

Chunks Whole(int64_t data_bytes = 10, size_t chunk_bytes = 4) {
  v1::SessionHeader header;
  header.set_session_id("a");
  header.set_data_bytes(data_bytes);
  return PartsOf(header, std::string(static_cast<size_t>(data_bytes), 'x'), chunk_bytes);
}

TEST(ChunkCheck, TakesAWholeSession) {
  EXPECT_EQ(Verdict(Whole()), "");
  EXPECT_EQ(Verdict(Whole(0)), "");
  EXPECT_EQ(Verdict(Whole(1 << 20, 1 << 16)), "");
}

TEST(ChunkCheck, TakesAllInOnePart) {
  Chunks parts = Whole(10, 10);
  v1::SessionChunk one = parts[0];
  one.set_data(parts[1].data());
  one.set_digest(parts[2].digest());
  EXPECT_EQ(Verdict({one}), "");
}

TEST(ChunkCheck, SaysHowMuchIsMissing) {
  Chunks parts = Whole();
  parts.pop_back();
  EXPECT_EQ(Verdict(parts),
            "TRUNCATED: the session ends early: 10 of 10 bytes of data and no digest");
  parts.pop_back();
  EXPECT_EQ(Verdict(parts),
            "TRUNCATED: the session ends early: 8 of 10 bytes of data and no digest");
  EXPECT_EQ(Verdict({}), "TRUNCATED: the session ends early: no header");
  parts = Whole();
  parts.erase(parts.begin() + 1);
  EXPECT_EQ(Verdict(parts),
            "TRUNCATED: the session ends early: 6 of 10 bytes of data and no digest");
}

TEST(ChunkCheck, FindsEveryChangedBit) {
  for (size_t part = 1; part < Whole().size(); ++part) {
    Chunks parts = Whole();
    std::string* bytes =
        parts[part].data().empty() ? parts[part].mutable_digest() : parts[part].mutable_data();
    bytes->back() ^= 4;
    EXPECT_EQ(Verdict(parts).rfind("BAD_DIGEST: digest: another than", 0), 0u) << part;
  }
  Chunks parts = Whole();
  parts[0].mutable_header()->set_max_tokens(7);
  EXPECT_EQ(Verdict(parts).rfind("BAD_DIGEST: digest: another than", 0), 0u);
}

TEST(ChunkCheck, RefusesPartsOutOfPlace) {
  Chunks parts = Whole();
  EXPECT_EQ(Verdict({parts.begin() + 1, parts.end()}),
            "BAD_DIGEST: part 0: no header; expected one in the first part alone");
  EXPECT_EQ(Verdict({parts[0], parts[0]}),
            "BAD_DIGEST: part 1: a header; expected one in the first part alone");
  parts.push_back(v1::SessionChunk());
  EXPECT_EQ(Verdict(parts), "BAD_DIGEST: part 5: comes after the digest; expected nothing");
  parts = Whole();
  parts[1].mutable_data()->append("more than promised");
  EXPECT_EQ(Verdict(parts),
            "BAD_DIGEST: part 1: more data than the 10 bytes that the header promises");
  parts[0].mutable_header()->set_data_bytes(-1);
  EXPECT_EQ(Verdict(parts), "BAD_DIGEST: header.data_bytes: -1; expected 0 or more");
}

}  // namespace
}  // namespace attnd::client
