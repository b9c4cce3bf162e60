// Sessions as plain lists: what the wire contract says of lengths, cuts, contents and pages, for
// comparison with the real store and pool.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/layer_plan.h"
#include "core/page_pool.h"

namespace attnd {

// A page's identity; those who hold the same share it.
using ModelPage = std::shared_ptr<int>;
using ModelPages = std::vector<ModelPage>;

// A step on one layer.
struct ModelStep {
  bool decode = false;
  bool rewind = false;
  int64_t position = 0;
  std::vector<int64_t> rows;  // what is stored of each

  int64_t end() const { return position + static_cast<int64_t>(rows.size()); }
};

struct ModelLayer {
  bool local = false;
  int64_t window = 0, max_rewind = 0, prefix = 0;

  std::vector<int64_t> rows;  // all of them, dropped ones too
  int64_t first = 0;
  int64_t last_start = 0;
  int64_t low = 0;  // index of the first page of `main`
  ModelPages main, tail, held;

  int64_t length() const { return static_cast<int64_t>(rows.size()); }
  // Why a cut to `position` is refused; nullopt when it is not.
  std::optional<Reason> RefusesCut(int64_t position) const;
  void Cut(int64_t position);
  // `shared` says whether another session or snapshot holds the page.
  template <typename Shared>
  void Append(const ModelStep& step, Shared shared) {
    const bool cut = step.position < length();
    if (cut) {
      Cut(step.position);
    }
    if (step.position % 64 != 0 && (cut || shared(main.back()))) {
      main.back() = std::make_shared<int>();
    }
    if (step.end() < prefix && step.position % 16 != 0 && (cut || shared(held.back()))) {
      held.back() = std::make_shared<int>();
    }
    Extend(step);
  }
  PerKind Pages() const;
  void AddPages(std::set<ModelPage>* local_pages, std::set<ModelPage>* global_pages,
                std::set<ModelPage>* held_pages) const;

 private:
  void Extend(const ModelStep& step);
};

struct ModelSession {
  std::string id;
  int64_t prefix = 0;
  int64_t max_tokens = 0;
  int64_t ttl_ns = 0;
  int64_t last_use = 0;
  std::vector<ModelLayer> layers;

  // What a step on the layer is refused with.
  std::optional<Reason> Refuses(const ModelLayer& layer, const ModelStep& step,
                                int64_t max_seq_len) const;
  std::optional<Reason> RefusesRewind(int64_t position) const;
  std::optional<Reason> RefusesFork(int64_t position, int64_t fork_max_tokens) const;
  // As it is, or cut to `position` > 0; pages shared.
  std::vector<ModelLayer> Forked(int64_t position) const;
  // Likewise, in pages of its own.
  std::vector<ModelLayer> Imported() const;
  bool Holds(const ModelPage& page) const;
};

}  // namespace attnd
