#include "tests/gpu/golden_data.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "kernels/check.h"

namespace attnd::gpu {
namespace {

std::vector<float> ReadFloats(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  Check(file.good(), "golden.bin can be read");
  std::vector<float> values(static_cast<size_t>(file.tellg()) / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

double ReadDouble(std::istream& line) {
  std::string text;  // hexadecimal: streams do not read that
  line >> text;
  return std::strtod(text.c_str(), nullptr);
}

class Reader {
 public:
  explicit Reader(const std::string& folder) : floats_(ReadFloats(folder + "/golden.bin")) {}

  void Line(const std::string& text) {
    std::istringstream line(text);
    std::string kind;
    line >> kind;
    if (kind == "model") {
      Model(line);
    } else if (kind == "theta") {
      Theta(line);
    } else if (kind == "layer") {
      Layer(line);
    } else if (kind == "weight") {
      Weight(line);
    } else if (kind == "case") {
      Case(line);
    } else {
      Check(kind.empty(), "golden.txt has lines that are known");
    }
    Check(!line.fail(), "golden.txt has complete lines");
  }

  std::vector<GoldenModel> Take() { return std::move(models_); }

 private:
  void Model(std::istream& line) {
    GoldenModel& m = models_.emplace_back();
    int64_t query_latent = 0;
    line >> m.name >> m.d_model >> m.shape.heads_q >> m.shape.heads_kv >> m.shape.d_head >>
        m.shape.d_rope >> m.shape.d_latent >> query_latent >> m.window;
    m.local_scale = ReadDouble(line);
    m.global_scale = ReadDouble(line);
  }
  void Theta(std::istream& line) {
    std::string kind;
    size_t n = 0;
    line >> kind >> n;
    std::vector<double>& theta =
        kind == "local" ? models_.back().local_theta : models_.back().global_theta;
    while (theta.size() < n && line.good()) {
      theta.push_back(ReadDouble(line));
    }
  }
  void Layer(std::istream& line) {
    GoldenLayer& layer = models_.back().layers.emplace_back();
    std::string kind;
    line >> layer.index >> kind;
    layer.global = kind == "global";
  }
  void Weight(std::istream& line) {
    std::string name;
    GoldenWeight weight;
    int64_t offset = 0;
    line >> name >> weight.out >> weight.in >> offset;
    weight.values = Floats(offset, weight.out * weight.in);
    models_.back().layers.back().weights[name] = std::move(weight);
  }
  void Case(std::istream& line) {
    GoldenCase& c = models_.back().layers.back().cases.emplace_back();
    int64_t x = 0, y = 0;
    line >> c.prefix >> c.rows >> x >> y;
    c.x = Floats(x, c.rows * models_.back().d_model);
    c.y = Floats(y, c.rows * models_.back().d_model);
  }
  std::vector<float> Floats(int64_t offset, int64_t n) const {
    Check(offset + n <= static_cast<int64_t>(floats_.size()), "golden.bin is long enough");
    return {floats_.begin() + offset, floats_.begin() + offset + n};
  }

  const std::vector<float> floats_;
  std::vector<GoldenModel> models_;
};

}  // namespace

std::vector<GoldenModel> LoadGolden(const std::string& folder) {
  Reader reader(folder);
  std::ifstream file(folder + "/golden.txt");
  Check(file.good(), "golden.txt can be read");
  std::string line;
  while (std::getline(file, line)) {
    reader.Line(line);
  }
  return reader.Take();
}

}  // namespace attnd::gpu
