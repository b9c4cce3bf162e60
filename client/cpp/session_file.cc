#include "client/cpp/session_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace attnd::client {
namespace {

constexpr char kMagic[] = "ATTNDS1\n";
constexpr size_t kMagicBytes = sizeof(kMagic) - 1;
constexpr size_t kLengthBytes = 4;
// No server sends larger parts. A damaged length must not become gigabytes of memory.
constexpr uint32_t kMaxChunkBytes = 256 << 20;

absl::Status SystemError(const std::string& path, const std::string& what) {
  const int error = errno;
  const std::string message = path + ": " + what + ": " + std::strerror(error);
  return error == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
}

absl::Status Lost(const char* reason, const std::string& message) {
  return ToStatus({absl::StatusCode::kDataLoss, reason, message, std::nullopt});
}

// A name that a rename gave is there after a crash once its folder is synced.
absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return absl::OkStatus();  // one that may be written to and not read
  }
  // Some file systems cannot sync a folder, and say EINVAL.
  const bool synced = fsync(fd) == 0 || errno == EINVAL;
  const absl::Status status =
      synced ? absl::OkStatus() : SystemError(path, "is written, but its folder cannot be synced");
  (void)close(fd);
  return status;
}

std::string EncodeLength(size_t bytes) {
  std::string encoded(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) {
    encoded[i] = static_cast<char>(bytes >> (8 * i) & 0xFF);
  }
  return encoded;
}

uint32_t DecodeLength(const std::array<unsigned char, kLengthBytes>& encoded) {
  uint32_t bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes |= static_cast<uint32_t>(encoded[i]) << (8 * i);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionFileWriter>> SessionFileWriter::Create(
    const std::string& path) {
  // A file takes the path's place in the end: /dev/null would be gone.
  struct stat found = {};
  if (stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
    return absl::FailedPreconditionError(path + ": cannot be written: it is not a file, which an " +
                                         "export would replace");
  }
  std::string draft = path + ".XXXXXX";
  const int fd = mkstemp(draft.data());  // mode 0600
  if (fd < 0) {
    return SystemError(path, "cannot be written");
  }
  std::FILE* file = fdopen(fd, "wb");
  if (file == nullptr) {
    const absl::Status status = SystemError(path, "cannot be written");
    (void)close(fd);
    (void)unlink(draft.c_str());
    return status;
  }
  std::unique_ptr<SessionFileWriter> writer(new SessionFileWriter(path, draft, file));
  if (std::fwrite(kMagic, 1, kMagicBytes, file) != kMagicBytes) {
    return SystemError(path, "cannot be written");
  }
  return writer;
}

SessionFileWriter::~SessionFileWriter() {
  if (file_ != nullptr) {
    (void)std::fclose(file_);
    (void)unlink(draft_.c_str());
  }
}

absl::Status SessionFileWriter::Append(const v1::SessionChunk& chunk) {
  const std::string bytes = chunk.SerializeAsString();
  const std::string length = EncodeLength(bytes.size());
  if (std::fwrite(length.data(), 1, length.size(), file_) != length.size() ||
      std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    return SystemError(path_, "cannot be written");
  }
  return absl::OkStatus();
}

absl::Status SessionFileWriter::Commit() {
  if (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0 ||
      std::rename(draft_.c_str(), path_.c_str()) != 0) {
    return SystemError(path_, "cannot be written");
  }
  (void)std::fclose(file_);
  file_ = nullptr;
  return SyncFolderOf(path_);
}

absl::StatusOr<std::unique_ptr<SessionFileReader>> SessionFileReader::Open(
    const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return SystemError(path, "cannot be read");
  }
  std::unique_ptr<SessionFileReader> reader(new SessionFileReader(path, file));
  std::array<char, kMagicBytes> magic{};
  reader->offset_ = static_cast<int64_t>(std::fread(magic.data(), 1, kMagicBytes, file));
  if (std::memcmp(magic.data(), kMagic, kMagicBytes) != 0) {
    return absl::InvalidArgumentError(path + ": not an exported session; expected \"ATTNDS1\" at " +
                                      "its start");
  }
  return reader;
}

SessionFileReader::~SessionFileReader() { (void)std::fclose(file_); }

absl::StatusOr<bool> SessionFileReader::Next(v1::SessionChunk* chunk) {
  std::array<unsigned char, kLengthBytes> length{};
  const size_t head = std::fread(length.data(), 1, kLengthBytes, file_);
  if (head == 0 && std::ferror(file_) == 0) {
    return false;
  }
  const std::string place = path_ + ": the part at byte " + std::to_string(offset_);
  const uint32_t size = DecodeLength(length);
  if (head == kLengthBytes && size > kMaxChunkBytes) {
    return Lost("BAD_DIGEST", place + " is damaged: it would have " + std::to_string(size) +
                                  " bytes, more than " + std::to_string(kMaxChunkBytes));
  }
  std::string bytes(size, '\0');
  if (head < kLengthBytes || std::fread(bytes.data(), 1, size, file_) != size) {
    return std::ferror(file_) != 0 ? SystemError(path_, "cannot be read")
                                   : Lost("TRUNCATED", place + " is cut off");
  }
  offset_ += static_cast<int64_t>(kLengthBytes + size);
  if (!chunk->ParseFromString(bytes)) {
    return Lost("BAD_DIGEST", place + " is damaged: it does not parse");
  }
  return true;
}

absl::StatusOr<int64_t> ExportToFile(Client& client, const std::string& session_id,
                                     const std::string& path, const ExportOptions& options) {
  auto writer = SessionFileWriter::Create(path);
  if (!writer.ok()) {
    return writer.status();
  }
  int64_t bytes = 0;
  absl::Status status =
      client.ExportSession(session_id, options, [&](const v1::SessionChunk& chunk) {
        bytes += static_cast<int64_t>(chunk.data().size());
        return (*writer)->Append(chunk);
      });
  if (!status.ok()) {
    return status;
  }
  status = (*writer)->Commit();
  if (!status.ok()) {
    if (options.move) {
      client.CancelMove(session_id).IgnoreError();  // the file's error is the one to tell
    }
    return status;
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<Session>> ImportFromFile(Client& client, const std::string& path,
                                                        const ImportOptions& options) {
  const auto reader = SessionFileReader::Open(path);
  if (!reader.ok()) {
    return reader.status();
  }
  return client.ImportSession([&](v1::SessionChunk* chunk) { return (*reader)->Next(chunk); },
                              options);
}

}  // namespace attnd::client
