// How the tokens of a step's prompts are split over the ranks of a context-parallel group. Each
// rank computes its rows through all layers, but attention reads the whole sequence: so whatever a
// rank has stored in a paged cache is passed to the others before anybody reads it
// (layers/attention/share_rows.h), and every rank has the cache of one that computes alone.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "tensor/tensor.h"

namespace atom {

struct ContextSplit {
  Communicator* ranks = nullptr;  // of the group; null on a dry run
  int32_t rank = 0;
  // [ranks, rows] int32: the slots (ops::PagedBatch) of the rows that each rank computes and no
  // other does; -1 behind the last of a rank.
  Tensor slots;
};

}  // namespace atom
