// The arithmetic of reductions on the host, the same for every transport.
#pragma once

#include <cstdint>
#include <span>

#include "comm/communicator.h"
#include "tensor/dtype.h"

namespace atom {

// Element i of every target becomes op over `sources` in their order: added in float32 and rounded
// once for values of 16 bits, in their own type for others. A target may be one of the sources.
void reduce_in_order(ReduceOp op,
                     DType dtype,
                     std::span<const void* const> sources,
                     std::span<void* const> targets,
                     int64_t count);

}  // namespace atom
