// Inside embedding: calls by a variant of one's choice, for tests.
#pragma once

#include <optional>
#include <string_view>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool embedding_by(std::string_view variant,
                  const Stream& stream,
                  const Tensor& ids,
                  const Tensor& table,
                  const Tensor& out,
                  std::optional<int64_t> first_id = {});  // embedding_of_part()

}  // namespace atom::ops
