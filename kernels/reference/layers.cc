#include "kernels/reference/layers.h"

#include <cmath>
#include <numeric>

#include "kernels/check.h"
#include "kernels/reference/attention.h"

namespace attnd::kernels {
namespace {

using Rows = std::vector<double>;

// x Wᵀ for x [rows][in], w [out][in].
Rows Multiply(const Rows& x, const ReferenceMatrix& w, int64_t in) {
  Check(in > 0 && static_cast<int64_t>(w.size()) % in == 0, "a weight is [out][in]");
  const int64_t rows = static_cast<int64_t>(x.size()) / in;
  const int64_t out = static_cast<int64_t>(w.size()) / in;
  Rows y(static_cast<size_t>(rows * out));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t n = 0; n < out; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < in; ++k) {
        sum += x[static_cast<size_t>(row * in + k)] * w[static_cast<size_t>(n * in + k)];
      }
      y[static_cast<size_t>(row * out + n)] = sum;
    }
  }
  return y;
}

// Rotates the interleaved pairs of every head; row r of y is at position positions[r].
void Rotate(const std::vector<double>& theta, const std::vector<int64_t>& positions, int64_t heads,
            Rows* y) {
  const int64_t half = static_cast<int64_t>(theta.size());
  Check(
      static_cast<int64_t>(y->size()) == static_cast<int64_t>(positions.size()) * heads * 2 * half,
      "rotated rows are [rows][heads][2 * theta]");
  double* pair = y->data();
  for (const int64_t position : positions) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t t = 0; t < half; ++t, pair += 2) {
        const double angle = static_cast<double>(position) * theta[static_cast<size_t>(t)];
        const double even = pair[0];
        const double odd = pair[1];
        pair[0] = even * std::cos(angle) - odd * std::sin(angle);
        pair[1] = odd * std::cos(angle) + even * std::sin(angle);
      }
    }
  }
}

// Per head [first | second]: [rows][heads][a], [rows][heads][b] -> [rows][heads][a + b].
Rows Concatenate(const Rows& first, int64_t a, const Rows& second, int64_t b) {
  const int64_t heads = static_cast<int64_t>(first.size()) / a;
  Rows joined;
  joined.reserve(first.size() + second.size());
  for (int64_t head = 0; head < heads; ++head) {
    joined.insert(joined.end(), first.begin() + head * a, first.begin() + (head + 1) * a);
    joined.insert(joined.end(), second.begin() + head * b, second.begin() + (head + 1) * b);
  }
  return joined;
}

Rows Select(const Rows& x, int64_t width, const std::vector<int64_t>& wanted) {
  Rows selected;
  for (const int64_t row : wanted) {
    selected.insert(selected.end(), x.begin() + row * width, x.begin() + (row + 1) * width);
  }
  return selected;
}

struct Heads {
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t key_width = 0;
  int64_t value_width = 0;
  double scale = 0;
  int64_t prefix = 0;
  int64_t window = 0;  // 0 on global layers
};

// query [wanted][heads_q][key_width]; key, value of all rows -> [wanted][heads_q][value_width].
Rows AttendAll(const Heads& heads, const std::vector<int64_t>& wanted, const Rows& query,
               const Rows& key, const Rows& value) {
  Rows output;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const ReferenceInterval seen = ReferenceVisible(wanted[i], heads.prefix, heads.window);
    for (int64_t h = 0; h < heads.heads_q; ++h) {
      const int64_t kv = h / (heads.heads_q / heads.heads_kv);
      ReferenceHead head;
      head.key_width = heads.key_width;
      head.value_width = heads.value_width;
      head.scale = heads.scale;
      head.query = query.data() + h * heads.key_width;
      head.query_stride = heads.heads_q * heads.key_width;
      head.key = key.data() + kv * heads.key_width;
      head.key_stride = heads.heads_kv * heads.key_width;
      head.value = value.data() + kv * heads.value_width;
      head.value_stride = heads.heads_kv * heads.value_width;
      const Rows row = ReferenceAttend(head, static_cast<int64_t>(i), seen);
      output.insert(output.end(), row.begin(), row.end());
    }
  }
  return output;
}

void CheckRows(const Rows& x, int64_t rows, int64_t d_model, int64_t prefix,
               const std::vector<int64_t>& wanted) {
  Check(static_cast<int64_t>(x.size()) == rows * d_model, "x is [rows][d_model]");
  for (const int64_t row : wanted) {
    Check(row >= 0 && row < rows, "a wanted row is one of the rows");
    Check(row >= prefix || prefix <= rows, "the prefix of a wanted prefix row is there");
  }
}

}  // namespace

std::vector<int64_t> AllRows(int64_t rows) {
  std::vector<int64_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<double> ReferenceForward(const ReferenceLocalLayer& layer, const std::vector<double>& x,
                                     int64_t rows, int64_t prefix,
                                     const std::vector<int64_t>& wanted) {
  CheckRows(x, rows, layer.d_model, prefix, wanted);
  const LocalShape& shape = layer.shape;
  Rows query = Multiply(Select(x, layer.d_model, wanted), layer.w_q, layer.d_model);
  Rotate(layer.theta, wanted, shape.heads_q, &query);
  Rows key = Multiply(x, layer.w_k, layer.d_model);
  Rotate(layer.theta, AllRows(rows), shape.heads_kv, &key);
  const Rows value = Multiply(x, layer.w_v, layer.d_model);
  const Heads heads{shape.heads_q, shape.heads_kv, shape.d_head, shape.d_head,
                    layer.scale,   prefix,         layer.window};
  return Multiply(AttendAll(heads, wanted, query, key, value), layer.w_o,
                  shape.heads_q * shape.d_head);
}

std::vector<double> ReferenceForward(const ReferenceGlobalLayer& layer,
                                     const std::vector<double>& x, int64_t rows, int64_t prefix,
                                     const std::vector<int64_t>& wanted) {
  CheckRows(x, rows, layer.d_model, prefix, wanted);
  const GlobalShape& shape = layer.shape;
  const Rows latent = Multiply(x, layer.w_dkv, layer.d_model);
  const Rows content_key = Multiply(latent, layer.w_uk, shape.d_latent);
  const Rows value = Multiply(latent, layer.w_uv, shape.d_latent);
  Rows rope_key = Multiply(x, layer.w_kr, layer.d_model);
  Rotate(layer.theta, AllRows(rows), shape.heads_kv, &rope_key);

  const Rows x_wanted = Select(x, layer.d_model, wanted);
  const Rows query_latent = Multiply(x_wanted, layer.w_dq, layer.d_model);
  const Rows content_query = Multiply(query_latent, layer.w_uq, layer.d_query_latent);
  Rows rope_query = Multiply(x_wanted, layer.w_qr, layer.d_model);
  Rotate(layer.theta, wanted, shape.heads_q, &rope_query);

  const Rows query = Concatenate(content_query, shape.d_head, rope_query, shape.d_rope);
  const Rows key = Concatenate(content_key, shape.d_head, rope_key, shape.d_rope);
  const Heads heads{shape.heads_q, shape.heads_kv, shape.d_head + shape.d_rope,
                    shape.d_head,  layer.scale,    prefix,
                    /*window=*/0};
  return Multiply(AttendAll(heads, wanted, query, key, value), layer.w_o,
                  shape.heads_q * shape.d_head);
}

}  // namespace attnd::kernels
