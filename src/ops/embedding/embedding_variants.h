// Inside embedding: calls by a variant of one's choice, for tests.
#pragma once

#include <string_view>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool embedding_by(std::string_view variant,
                  const Stream& stream,
                  const Tensor& ids,
                  const Tensor& table,
                  const Tensor& out);

}  // namespace atom::ops
