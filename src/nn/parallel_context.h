// This rank's place in the parallel groups. One rank today; layers already ask it for their share.
#pragma once

#include <cstdint>

namespace atom {

struct ParallelContext {
  int32_t tensor_parallel_rank = 0;
  int32_t tensor_parallel_size = 1;
};

}  // namespace atom
