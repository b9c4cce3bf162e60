// The golden cases as flatten.py writes them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/params.h"

namespace attnd::gpu {

struct GoldenWeight {
  int64_t out = 0, in = 0;
  std::vector<float> values;  // [out][in]
};

struct GoldenCase {
  int64_t prefix = 0;
  int64_t rows = 0;
  std::vector<float> x, y;  // [rows][d_model]
};

struct GoldenLayer {
  int64_t index = 0;
  bool global = false;
  std::map<std::string, GoldenWeight> weights;  // W_Q ...
  std::vector<GoldenCase> cases;
};

struct GoldenModel {
  std::string name;
  int64_t d_model = 0;
  kernels::GlobalShape shape;
  int64_t window = 0;
  double local_scale = 0, global_scale = 0;
  std::vector<double> local_theta, global_theta;  // radians per position
  std::vector<GoldenLayer> layers;
};

// Ends the process with a line when the files are not what flatten.py writes.
std::vector<GoldenModel> LoadGolden(const std::string& folder);

}  // namespace attnd::gpu
