// A directory for the files of one test.
#pragma once

#include <string>
#include <string_view>

namespace attnd {

class TempDir {
 public:
  TempDir();
  ~TempDir();  // removes it and all in it
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file, making its folders, and returns its path.
  std::string Write(const std::string& name, std::string_view contents) const;

 private:
  std::string path_;
};

}  // namespace attnd
