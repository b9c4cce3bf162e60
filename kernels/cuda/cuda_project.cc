#include "kernels/cuda/cuda_project.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/grid.h"

namespace attnd::kernels::cuda {
namespace {

int64_t Padded(int64_t rows) { return (rows + kGemmRows - 1) / kGemmRows * kGemmRows; }

}  // namespace

absl::Status Projector::Prepare(int64_t max_in, int64_t max_out) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  absl::Status status = x_.Allocate(runtime_, "rows to project",
                                    std::max<int64_t>(1, kProjectRows * max_in * kFloat));
  status.Update(y_.Allocate(runtime_, "projected rows",
                            std::max<int64_t>(1, kProjectRows * max_out * kFloat)));
  return status;
}

void Projector::Multiply(const CudaWeight& weight, const GemmRows& rows) {
  const int64_t step = deterministic_ ? kGemmRows : Padded(rows.rows);
  for (int64_t row = 0; row < rows.rows; row += step) {
    GemmParams gemm;
    gemm.dtype = weight.dtype;
    gemm.x = static_cast<const uint8_t*>(rows.x) + row * weight.in * DTypeSize(weight.dtype);
    gemm.w = weight.data;
    gemm.y = rows.y + row * weight.out;
    gemm.rows = step;
    gemm.used_rows = std::min(step, rows.rows - row);
    gemm.n = weight.out;
    gemm.k = weight.in;
    gemm.x_row = gemm.w_row = weight.in;
    gemm.y_row = weight.out;
    gemm.batch = weight.groups;
    gemm.x_batch = rows.x_group;
    gemm.w_batch = weight.out * weight.in;
    gemm.y_batch = rows.y_group;
    runtime_->Gemm(gemm);
  }
}

void Projector::Project(const ProjectParams& params) {
  const auto& weight = static_cast<const CudaWeight&>(*params.weight);
  Check(kProjectRows * weight.groups * weight.in * DTypeSize(weight.dtype) <= x_.bytes() &&
            kProjectRows * weight.groups * weight.out * 4 <= y_.bytes(),
        "weights are packed before Prepare()");
  const auto inner = static_cast<int32_t>(params.inner);
  const auto groups = static_cast<int32_t>(weight.groups);
  const int64_t rows = params.rows * params.inner;
  for (int64_t begin = 0; begin < rows; begin += kProjectRows) {
    const int64_t used = std::min(kProjectRows, rows - begin);
    const int64_t padded = Padded(used);
    PackRowsParams pack;
    pack.x = params.x;
    pack.packed = x_.data();
    pack.from = {params.x_row, params.x_inner, inner};
    pack.dtype = weight.dtype;
    pack.row_begin = begin;
    pack.rows = used;
    pack.padded = padded;
    pack.width = weight.in;
    pack.groups = groups;
    LaunchPackRows(runtime_->stream(), GridFor(*runtime_, groups * padded), pack);
    Multiply(weight, {x_.data(), padded * weight.in, y_.as<float>(), padded * weight.out, used});
    UnpackRowsParams unpack;
    unpack.product = y_.as<float>();
    unpack.y = params.y;
    unpack.to = {params.y_row, params.y_inner, inner};
    unpack.row_begin = begin;
    unpack.rows = used;
    unpack.padded = padded;
    unpack.width = weight.out;
    unpack.groups = groups;
    LaunchUnpackRows(runtime_->stream(), GridFor(*runtime_, groups * used), unpack);
  }
}

}  // namespace attnd::kernels::cuda
