// The variants of linear_silu_and_mul, for its dispatch and its test.
#pragma once

#include <span>

#include "ops/linear/linear_variants.h"

namespace atom::ops {

// Their calls are gated.
std::span<const LinearVariant> linear_silu_and_mul_variants();

}  // namespace atom::ops
