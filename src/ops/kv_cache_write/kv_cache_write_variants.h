// Inside kv_cache_write: calls by a variant of one's choice, for tests.
#pragma once

#include <string_view>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool kv_cache_write_by(std::string_view variant,
                       const Stream& stream,
                       const Tensor& k,
                       const Tensor& v,
                       const Tensor& slot_mapping,
                       const Tensor& k_cache,
                       const Tensor& v_cache,
                       float k_scale = 1.0f,
                       float v_scale = 1.0f);

}  // namespace atom::ops
