#include "cuda_emulation/shadow.h"

#include <algorithm>

#include "kernels/check.h"

namespace attnd::kernels::cuda::emulation {
namespace {

constexpr int kWarpSize = 32;
constexpr uint8_t kManyLanes = 255;

// Addresses have 48 bits: a site fits 8 bytes, and a cell 56.
uint64_t PackSite(Site site) {
  return reinterpret_cast<uint64_t>(site.file) << 16 | static_cast<uint16_t>(site.line);
}

Site UnpackSite(uint64_t packed) {
  return {reinterpret_cast<const char*>(packed >> 16), static_cast<int>(packed & 0xffff)};
}

std::string Missing(bool same_warp) {
  return same_warp ? ", without a SyncWarp() or SyncBlock() between"
                   : ", without a SyncBlock() between";
}

}  // namespace

bool Shadow::WriteIsUnordered(const Cell& cell, const Access& access) {
  if (cell.writer == access.thread && !access.whole_warp) {
    return false;
  }
  return cell.writer / kWarpSize == access.thread / kWarpSize
             ? cell.write_warp == access.warp_epoch
             : cell.write_block == access.block_epoch;
}

bool Shadow::ReadIsUnordered(const Cell& cell, const Access& access) {
  const int warp = access.thread / kWarpSize;
  if (cell.read_block == access.block_epoch && (cell.read_warps & ~(1u << warp)) != 0) {
    return true;
  }
  return cell.read_warp == warp && cell.read_warp_epoch == access.warp_epoch &&
         cell.read_lane != access.thread % kWarpSize;
}

bool Shadow::MayRead(const Cell& cell, const Access& access) {
  return cell.in_flight != access.run && !WriteIsUnordered(cell, access);
}

bool Shadow::MayWrite(const Cell& cell, const Access& access) {
  return MayRead(cell, access) && !ReadIsUnordered(cell, access);
}

void Shadow::NoteRead(Cell& cell, const Access& access) {
  const int warp = access.thread / kWarpSize;
  if (cell.read_block != access.block_epoch) {
    cell.read_block = access.block_epoch;
    cell.read_warps = 0;
  }
  cell.read_warps |= 1u << warp;
  const uint8_t lane =
      access.whole_warp ? kManyLanes : static_cast<uint8_t>(access.thread % kWarpSize);
  const bool again = cell.read_warp == warp && cell.read_warp_epoch == access.warp_epoch;
  cell.read_lane = !again || cell.read_lane == lane ? lane : kManyLanes;
  cell.read_warp = static_cast<uint8_t>(warp);
  cell.read_warp_epoch = access.warp_epoch;
  cell.read_site = PackSite(access.site);
}

void Shadow::NoteWrite(Cell& cell, const Access& access) {
  cell.writer = static_cast<int16_t>(access.thread);
  cell.write_block = access.block_epoch;
  cell.write_warp = access.warp_epoch;
  cell.write_site = PackSite(access.site);
}

std::string Shadow::Explain(const Cell& cell, const Access& access, int64_t offset) {
  const int warp = access.thread / kWarpSize;
  const std::string what = std::string(access.name) + " at " + ToString(access.site) + ", byte " +
                           std::to_string(offset) + " of shared memory: ";
  const std::string writer = "thread " + std::to_string(cell.writer);
  if (cell.in_flight == access.run) {
    return what + "the copy that " + writer + " began at " + ToString(UnpackSite(cell.write_site)) +
           " has not arrived: no CopyAsyncWait() yet";
  }
  if (WriteIsUnordered(cell, access)) {
    return "race: " + what + writer + " wrote it at " + ToString(UnpackSite(cell.write_site)) +
           Missing(cell.writer / kWarpSize == warp);
  }
  const bool same_warp =
      cell.read_block != access.block_epoch || (cell.read_warps & ~(1u << warp)) == 0;
  return "race: " + what + "another thread, of warp " + std::to_string(cell.read_warp) +
         ", read it at " + ToString(UnpackSite(cell.read_site)) + Missing(same_warp);
}

// The cells of the word's bytes, which know what its own did.
Shadow::Cell* Shadow::Split(const Access& access, int64_t word) {
  if (bytes_.empty()) {
    bytes_.resize(words_.size() * kWord);
  }
  Cell* bytes = &bytes_[word * kWord];
  if (words_[word].split != access.run) {
    std::fill_n(bytes, kWord, words_[word]);
    words_[word].split = access.run;
  }
  return bytes;
}

// Visits the cells of the bytes, whole words where they were only touched as such, until one visit
// gives false.
template <typename Visit>
std::string Shadow::ForEach(const Access& access, int64_t offset, int64_t bytes, Visit visit) {
  for (int64_t at = offset; at < offset + bytes;) {
    const int64_t word = at / kWord;
    const int64_t end = std::min((word + 1) * kWord, offset + bytes);
    if (end - at == kWord && words_[word].split != access.run) [[likely]] {
      if (!visit(words_[word])) {
        return Explain(words_[word], access, at);
      }
      at = end;
      continue;
    }
    Cell* cells = Split(access, word);
    for (; at < end; ++at) {
      if (!visit(cells[at % kWord])) {
        return Explain(cells[at % kWord], access, at);
      }
    }
  }
  return "";
}

std::string Shadow::Read(const Access& access, int64_t offset, int64_t bytes) {
  return ForEach(access, offset, bytes, [&](Cell& cell) {
    if (!MayRead(cell, access)) {
      return false;
    }
    NoteRead(cell, access);
    return true;
  });
}

std::string Shadow::Write(const Access& access, int64_t offset, int64_t bytes) {
  std::string wrong = ForEach(access, offset, bytes, [&](Cell& cell) {
    if (!MayWrite(cell, access)) {
      return false;
    }
    NoteWrite(cell, access);
    return true;
  });
  // A word that was written as a whole, rightly, needs its bytes' history no more: whoever is
  // ordered behind this write is ordered behind all that came before.
  for (int64_t word = (offset + kWord - 1) / kWord; word < (offset + bytes) / kWord; ++word) {
    if (words_[word].split == access.run) {
      words_[word] = bytes_[word * kWord];
      words_[word].split = 0;
    }
  }
  return wrong;
}

std::string Shadow::BeginCopy(const Access& access, int64_t offset, int64_t bytes) {
  return ForEach(access, offset, bytes, [&](Cell& cell) {
    if (!MayWrite(cell, access)) {
      return false;
    }
    NoteWrite(cell, access);
    cell.in_flight = access.run;
    return true;
  });
}

void Shadow::EndCopy(const Access& access, int64_t offset, int64_t bytes) {
  const std::string wrong = ForEach(access, offset, bytes, [&](Cell& cell) {
    const bool was_in_flight = cell.in_flight == access.run;
    cell.in_flight = 0;
    NoteWrite(cell, access);  // nobody touched it meanwhile
    return was_in_flight;
  });
  Check(wrong.empty(), "only copies that were begun arrive");
}

void Shadow::Clear() {
  std::fill(words_.begin(), words_.end(), Cell());
  bytes_.clear();
}

}  // namespace attnd::kernels::cuda::emulation
