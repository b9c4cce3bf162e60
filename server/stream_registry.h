// The open Steps streams, so that a stopping server can close them.
#pragma once

#include <mutex>
#include <unordered_set>

namespace attnd::server {

class ClosableStream {
 public:
  virtual ~ClosableStream() = default;
  // Ends the stream once what it still owes has been answered. Any thread, repeatable.
  virtual void Close() = 0;
};

class StreamRegistry {
 public:
  void Add(ClosableStream* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.insert(stream);
  }
  // Returns once no CloseAll() can be looking at the stream.
  void Remove(ClosableStream* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.erase(stream);
  }
  void CloseAll() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (ClosableStream* stream : streams_) {
      stream->Close();
    }
  }

 private:
  std::mutex mutex_;
  std::unordered_set<ClosableStream*> streams_;
};

}  // namespace attnd::server
