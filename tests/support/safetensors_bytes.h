// Safetensors files made in tests, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnd {

struct RawTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};

// A whole file with that header, right or wrong, and that data.
std::string FileWithHeader(const std::string& header, const std::string& data);

// A well-formed file of these tensors, in order and without gaps.
std::string FileOfTensors(const std::vector<RawTensor>& tensors);

}  // namespace attnd
