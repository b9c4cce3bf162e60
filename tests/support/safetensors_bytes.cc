// Writing of safetensors bytes.
#include "tests/support/safetensors_bytes.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace attnd {

std::string FileWithHeader(const std::string& header, const std::string& data) {
  std::string file;
  for (int byte = 0; byte < 8; ++byte) {
    file += static_cast<char>((static_cast<uint64_t>(header.size()) >> (8 * byte)) & 0xFF);
  }
  return file + header + data;
}

std::string FileOfTensors(const std::vector<RawTensor>& tensors) {
  std::vector<std::string> fields;
  std::string data;
  for (const RawTensor& tensor : tensors) {
    fields.push_back(absl::StrFormat(R"("%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]})",
                                     tensor.name, tensor.dtype, absl::StrJoin(tensor.shape, ","),
                                     data.size(), data.size() + tensor.data.size()));
    data += tensor.data;
  }
  return FileWithHeader("{" + absl::StrJoin(fields, ",") + "}", data);
}

}  // namespace attnd
