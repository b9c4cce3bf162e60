// Making, filling and removing of a test's directory.
#include "tests/support/temp_dir.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/check.h"

namespace attnd {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "attnd_test_XXXXXX").string();
  Check(mkdtemp(pattern.data()) != nullptr, "a temporary directory can be made");
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::Write(const std::string& name, std::string_view contents) const {
  const std::filesystem::path path = std::filesystem::path(path_) / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  file.close();
  Check(file.good(), "a test's file can be written");
  return path.string();
}

}  // namespace attnd
