// Rows to the wire and back, and what a broken server may send.
#include "client/cpp/tensor.h"

#include <gtest/gtest.h>

namespace attnd::client {
namespace {

TEST(Tensor, RowsComeBackInEveryWireType) {
  const std::vector<float> rows = {1.0f, -2.5f, 0.0f, 0.125f, 3.0f, -1024.0f};
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    v1::Tensor tensor;
    EncodeRows(rows, 3, dtype, &tensor);
    EXPECT_EQ(tensor.dtype(), ToWireDtype(dtype));
    ASSERT_EQ(tensor.shape_size(), 2);
    EXPECT_EQ(tensor.shape(0), 2);
    EXPECT_EQ(tensor.shape(1), 3);
    EXPECT_EQ(tensor.data().size(), static_cast<size_t>(6 * DTypeSize(dtype)));
    std::vector<float> back = {7.0f};
    ASSERT_TRUE(DecodeRows(tensor, 3, &back).ok());
    ASSERT_EQ(back.size(), 7u);
    EXPECT_EQ(back[0], 7.0f);
    EXPECT_EQ(std::vector<float>(back.begin() + 1, back.end()), rows) << DTypeName(dtype);
  }
}

TEST(Tensor, NoRowsAreFine) {
  v1::Tensor tensor;
  EncodeRows({}, 3, DType::kF32, &tensor);
  std::vector<float> back;
  EXPECT_TRUE(DecodeRows(tensor, 3, &back).ok());
  EXPECT_TRUE(back.empty());
}

TEST(Tensor, RefusesWhatIsNotShapedAsAsked) {
  std::vector<float> back;
  v1::Tensor good;
  EncodeRows(std::vector<float>(6), 3, DType::kF32, &good);

  EXPECT_FALSE(DecodeRows(good, 2, &back).ok());
  v1::Tensor tensor = good;
  tensor.mutable_data()->pop_back();
  EXPECT_FALSE(DecodeRows(tensor, 3, &back).ok());
  tensor = good;
  tensor.set_shape(0, -2);
  EXPECT_FALSE(DecodeRows(tensor, 3, &back).ok());
  tensor = good;
  tensor.set_shape(0, int64_t{1} << 62);
  EXPECT_FALSE(DecodeRows(tensor, 3, &back).ok());
  tensor = good;
  tensor.set_dtype(v1::DTYPE_INT8);
  EXPECT_FALSE(DecodeRows(tensor, 3, &back).ok());
  EXPECT_FALSE(DecodeRows(v1::Tensor(), 3, &back).ok());
  EXPECT_TRUE(back.empty());
}

}  // namespace
}  // namespace attnd::client
