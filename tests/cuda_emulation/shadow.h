// Finds races on shared memory: keeps, for every word, who touched it last and between which
// barriers. An access must be ordered behind those of other threads that it conflicts with: by a
// SyncBlock(), or within a warp by a SyncWarp(). Warp collectives order no memory, as on a device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda_emulation/site.h"

namespace attnd::kernels::cuda::emulation {

// Who touches memory, and when. Epochs are values of one clock that barriers advance: two accesses
// with the same epoch have no barrier between them. No epoch is used by two blocks.
struct Access {
  int thread = 0;
  bool whole_warp = false;  // any lane of the thread's warp may be the one
  uint32_t block_epoch = 0;
  uint32_t warp_epoch = 0;
  uint32_t run = 0;  // the first epoch of the block
  const char* name = "";
  Site site;
};

class Shadow {
 public:
  explicit Shadow(int bytes) : words_(bytes / kWord) {}

  // What is wrong with the access; empty when nothing is.
  std::string Read(const Access& access, int64_t offset, int64_t bytes);
  std::string Write(const Access& access, int64_t offset, int64_t bytes);
  // A copy that will write the words later, and its arrival; whole words.
  std::string BeginCopy(const Access& access, int64_t offset, int64_t bytes);
  void EndCopy(const Access& access, int64_t offset, int64_t bytes);

  // Forgets everything: epochs may begin again.
  void Clear();

 private:
  static constexpr int kWord = 4;

  struct Cell {
    uint64_t write_site = 0;
    uint64_t read_site = 0;
    uint32_t write_block = 0;  // epochs
    uint32_t write_warp = 0;
    uint32_t read_block = 0;
    uint32_t read_warp_epoch = 0;
    uint32_t read_warps = 0;  // those that read in read_block, a bit each
    uint32_t in_flight = 0;   // the run in which a copy has begun and not arrived
    uint32_t split = 0;       // the run in which the bytes have cells of their own
    int16_t writer = 0;
    uint8_t read_warp = 0;  // the last one to read
    uint8_t read_lane = 0;  // of it, in read_warp_epoch; kManyLanes: several
  };

  template <typename Visit>
  std::string ForEach(const Access& access, int64_t offset, int64_t bytes, Visit visit);
  Cell* Split(const Access& access, int64_t word);

  static bool WriteIsUnordered(const Cell& cell, const Access& access);
  static bool ReadIsUnordered(const Cell& cell, const Access& access);
  static bool MayRead(const Cell& cell, const Access& access);
  static bool MayWrite(const Cell& cell, const Access& access);
  static void NoteRead(Cell& cell, const Access& access);
  static void NoteWrite(Cell& cell, const Access& access);
  static std::string Explain(const Cell& cell, const Access& access, int64_t offset);

  std::vector<Cell> words_;
  std::vector<Cell> bytes_;  // of words that were touched in parts; empty until there is one
};

}  // namespace attnd::kernels::cuda::emulation
