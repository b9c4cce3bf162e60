#include "tests/core/session_model.h"

#include <algorithm>

namespace attnd {
namespace {

int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

void Resize(int64_t count, ModelPages* pages) {
  while (static_cast<int64_t>(pages->size()) > count) {
    pages->pop_back();
  }
  while (static_cast<int64_t>(pages->size()) < count) {
    pages->push_back(std::make_shared<int>());
  }
}

void Own(ModelPages* pages) {
  for (ModelPage& page : *pages) {
    page = std::make_shared<int>();
  }
}

}  // namespace

std::optional<Reason> ModelLayer::RefusesCut(int64_t position) const {
  if (position == 0 || position == length() || position == last_start) {
    return std::nullopt;
  }
  if (position < prefix && length() >= prefix) {
    return Reason::kPrefixAnswered;
  }
  if (local && first > 0 && position < first + window) {
    return Reason::kRewindTooFar;
  }
  return std::nullopt;
}

void ModelLayer::Cut(int64_t position) {
  const int64_t end_page = Ceil(position, 64);
  if (position == 0) {
    rows.clear();
    first = last_start = low = 0;
    main.clear();
    tail.clear();
    held.clear();
    return;
  }
  if (!tail.empty() && position == last_start) {
    // The pages that were kept for the repetition, and those behind them that are still there.
    const int64_t tail_low =
        std::max<int64_t>(0, last_start < prefix ? 0 : last_start - window + 1) / 64;
    const int64_t tail_end = tail_low + static_cast<int64_t>(tail.size());
    ModelPages joined = tail;
    if (tail_end == low) {
      joined.insert(joined.end(), main.begin(), main.end());
    }
    main = joined;
    low = tail_low;
    tail.clear();
  }
  if (end_page < low) {
    main.clear();
    low = end_page;
  } else {
    Resize(std::min(end_page - low, static_cast<int64_t>(main.size())), &main);
  }
  rows.resize(static_cast<size_t>(position));
  if (position < last_start) {
    last_start = -1;
    tail.clear();
  }
  if (position < prefix) {
    Resize(Ceil(position, 16), &held);
  }
}

void ModelLayer::Extend(const ModelStep& step) {
  const int64_t kept =
      local && step.end() >= prefix ? std::max<int64_t>(0, step.end() - window - max_rewind) : 0;
  tail.clear();
  const int64_t needed = step.position < prefix && step.end() >= prefix
                             ? 0
                             : std::max<int64_t>(0, step.position - window + 1);
  const int64_t tail_end = std::min(Ceil(step.position, 64), kept / 64);
  if (local && needed / 64 < tail_end) {
    tail.assign(main.begin() + (needed / 64 - low), main.begin() + (tail_end - low));
  }
  rows.insert(rows.end(), step.rows.begin(), step.rows.end());
  last_start = step.position;
  Resize(Ceil(length(), 64) - low, &main);
  if (const int64_t drop = kept / 64 - low; drop > 0) {
    main.erase(main.begin(), main.begin() + drop);
    low += drop;
  }
  first = std::max(first, kept);
  if (step.end() < prefix) {
    Resize(Ceil(step.end(), 16), &held);
  } else if (step.position >= prefix) {
    held.clear();
  }
}

PerKind ModelLayer::Pages() const {
  PerKind pages{};
  pages[Index(local ? PageKind::kLocal : PageKind::kGlobal)] =
      static_cast<int64_t>(main.size() + tail.size());
  pages[Index(PageKind::kHeld)] = static_cast<int64_t>(held.size());
  return pages;
}

void ModelLayer::AddPages(std::set<ModelPage>* local_pages, std::set<ModelPage>* global_pages,
                          std::set<ModelPage>* held_pages) const {
  std::set<ModelPage>* pages = local ? local_pages : global_pages;
  pages->insert(main.begin(), main.end());
  pages->insert(tail.begin(), tail.end());
  held_pages->insert(held.begin(), held.end());
}

std::optional<Reason> ModelSession::Refuses(const ModelLayer& layer, const ModelStep& step,
                                            int64_t max_seq_len) const {
  if (step.end() > max_seq_len) {
    return Reason::kPastMaxSeqLen;
  }
  if (max_tokens > 0 && step.end() > max_tokens) {
    return Reason::kPastMaxTokens;
  }
  if (step.position > layer.length() || (step.position < layer.length() && !step.rewind)) {
    return Reason::kPositionMismatch;
  }
  if (const auto refused = layer.RefusesCut(step.position)) {
    return refused;
  }
  return step.decode && step.position < prefix ? std::optional(Reason::kPrefixIncomplete)
                                               : std::nullopt;
}

std::optional<Reason> ModelSession::RefusesRewind(int64_t position) const {
  for (const ModelLayer& layer : layers) {
    if (position < layer.length()) {
      if (const auto refused = layer.RefusesCut(position)) {
        return refused;
      }
    }
  }
  return std::nullopt;
}

std::optional<Reason> ModelSession::RefusesFork(int64_t position, int64_t fork_max_tokens) const {
  for (const ModelLayer& layer : layers) {
    if (layer.length() > 0 && layer.length() < prefix) {
      return Reason::kPrefixIncomplete;
    }
    if (position == 0) {
      continue;
    }
    if (position > layer.length()) {
      return Reason::kPositionMismatch;
    }
    if (const auto refused = layer.RefusesCut(position)) {
      return refused;
    }
    if (position < prefix) {
      return Reason::kPrefixAnswered;
    }
  }
  for (const ModelLayer& layer : layers) {
    const int64_t length = position > 0 ? position : layer.length();
    if (fork_max_tokens > 0 && length > fork_max_tokens) {
      return Reason::kPastMaxTokens;
    }
  }
  return std::nullopt;
}

std::vector<ModelLayer> ModelSession::Forked(int64_t position) const {
  std::vector<ModelLayer> forked = layers;
  for (ModelLayer& layer : forked) {
    if (position > 0 && position < layer.length()) {
      layer.Cut(position);
    }
  }
  return forked;
}

std::vector<ModelLayer> ModelSession::Imported() const {
  std::vector<ModelLayer> imported = layers;
  for (ModelLayer& layer : imported) {
    Own(&layer.main);
    Own(&layer.tail);
    Own(&layer.held);
  }
  return imported;
}

bool ModelSession::Holds(const ModelPage& page) const {
  return std::any_of(layers.begin(), layers.end(), [&](const ModelLayer& layer) {
    return std::count(layer.main.begin(), layer.main.end(), page) > 0 ||
           std::count(layer.tail.begin(), layer.tail.end(), page) > 0 ||
           std::count(layer.held.begin(), layer.held.end(), page) > 0;
  });
}

}  // namespace attnd
