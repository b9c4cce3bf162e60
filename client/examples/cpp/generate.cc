// Prefills 8 rows and decodes one token through every layer of a running server.
// Usage: example_generate [TARGET]
#include <cstdio>
#include <vector>

#include "client/cpp/client.h"

int main(int argc, char** argv) {
  const auto client = attnd::client::Client::Connect(argc > 1 ? argv[1] : "127.0.0.1:8470");
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }
  const auto model = (*client)->Model();
  const auto session = (*client)->CreateSession({});
  if (!model.ok() || !session.ok()) {
    std::fprintf(stderr, "%s\n",
                 (model.ok() ? session.status() : model.status()).ToString().c_str());
    return 1;
  }
  // In a real client these are normalised hidden states, and the FFN stands between the layers.
  const std::vector<float> prompt(static_cast<size_t>(8 * model->d_model()), 0.5F);
  const std::vector<float> token(static_cast<size_t>(model->d_model()), 0.25F);
  for (int layer = 0; layer < model->layers_size(); ++layer) {
    const auto prefilled = (*session)->Prefill(layer, prompt);
    const attnd::client::DecodeItem item{session->get(), 1};
    const auto decoded = prefilled.ok()
                             ? (*client)->Decode(layer, {&item, 1}, token)
                             : absl::StatusOr<attnd::client::DecodeResult>(prefilled.status());
    if (!decoded.ok()) {
      std::fprintf(stderr, "%s\n", decoded.status().ToString().c_str());
      return 1;
    }
    std::printf("layer %d: output[0] = %g\n", layer, decoded->output[0]);
  }
  return (*session)->Close().ok() ? 0 : 1;
}
