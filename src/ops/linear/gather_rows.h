// The lookup of an embedding that is tied to the output projection, where ranks share both.
#pragma once

#include "ops/linear/linear.h"

namespace atom::ops {

// Of a weight that holds a part of the vocabulary, from id `first_id` on: the row of each id that
// it holds, zeros for others. gather_rows() is for the whole.
void gather_rows_of_part(const Stream& stream,
                         const Tensor& ids,  // [T] int32
                         const LinearWeight& weight,
                         int64_t first_id,
                         const Tensor& out);  // [T, K] weight.dtype(), row stride allowed

}  // namespace atom::ops
