// Opening, reading and mapping of regular files.
#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/error.h"
#include "core/text.h"

namespace attnd {
namespace {

std::string ErrnoText() { return std::generic_category().message(errno); }

// An open descriptor of a regular file, and its size.
class OpenFile {
 public:
  OpenFile() = default;
  OpenFile(OpenFile&& other) noexcept : fd_(other.fd_), bytes_(other.bytes_) { other.fd_ = -1; }
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }

  static absl::StatusOr<OpenFile> Open(const std::string& path) {
    if (path.empty() || path.find('\0') != std::string::npos) {
      return FileError(path, "is not a file name");
    }
    OpenFile file;
    file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block
    if (file.fd_ < 0) {
      return FileError(path, "cannot be opened: " + ErrnoText());
    }
    struct stat info {};
    if (fstat(file.fd_, &info) != 0) {
      return FileError(path, "cannot be examined: " + ErrnoText());
    }
    if (S_ISDIR(info.st_mode)) {
      return FileError(path, "is a directory; expected a file");
    }
    if (!S_ISREG(info.st_mode)) {
      return FileError(path, "is not a regular file");
    }
    file.bytes_ = info.st_size;
    return file;
  }

  int fd() const { return fd_; }
  int64_t bytes() const { return bytes_; }

 private:
  int fd_ = -1;
  int64_t bytes_ = 0;
};

}  // namespace

absl::Status FileError(const std::string& path, const std::string& message) {
  return MakeError(Reason::kBadArgument, (path.empty() ? "''" : Printable(path)) + ": " + message);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  absl::StatusOr<OpenFile> file = OpenFile::Open(path);
  if (!file.ok()) {
    return file.status();
  }
  if (file->bytes() > max_bytes) {
    return FileError(path, "has " + std::to_string(file->bytes()) + " bytes; expected at most " +
                               std::to_string(max_bytes));
  }
  std::string text(static_cast<size_t>(file->bytes()), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(file->fd(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return FileError(path, "cannot be read: " + ErrnoText());
    }
    if (got == 0) {
      return FileError(path, "became shorter while it was read");
    }
    done += static_cast<size_t>(got);
  }
  return text;
}

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  absl::StatusOr<OpenFile> file = OpenFile::Open(path);
  if (!file.ok()) {
    return file.status();
  }
  const size_t bytes = static_cast<size_t>(file->bytes());
  if (bytes == 0) {  // mmap refuses empty files
    return std::unique_ptr<MappedFile>(new MappedFile({}));
  }
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file->fd(), 0);
  if (data == MAP_FAILED) {
    return FileError(path, "cannot be mapped: " + ErrnoText());
  }
  return std::unique_ptr<MappedFile>(new MappedFile({static_cast<const uint8_t*>(data), bytes}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace attnd
