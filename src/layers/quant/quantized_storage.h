// How checkpoints store quantized matrices, and what of it linear layers and experts share.
#pragma once

#include <cstdint>
#include <span>

#include "config/quant_config.h"
#include "ops/linear/linear.h"
#include "tensor/tensor.h"

namespace atom {

constexpr int64_t kQuantBlockRows = 128;  // of QuantType::kPer128x128

struct QuantizedStorage {
  DType stored;
  int64_t values;  // of a row in one stored element
};

// Null when this scheme cannot be computed with: its weights, or groups of its activations that
// are not those of its weights.
const QuantizedStorage* find_storage(const QuantScheme& scheme);

// The dtype of codes of activations: FP4 are bytes of two.
DType code_dtype(QuantDType dtype);

// How a matrix is packed whose rows are parts of these sizes, one after the other: rows of a block
// share a scale here, all of them where every part begins with one.
ops::QuantFormat packed_format(const QuantScheme& scheme, std::span<const int64_t> part_rows);

// From scales of the blocks of each part, [block rows, groups], to those of runs of `scale_rows`
// rows, as ops::pack_scales() takes them.
Tensor scales_of_blocks(const Tensor& scales,
                        std::span<const int64_t> part_rows,
                        int64_t scale_rows);

// The bytes of words, little-endian: [rows, words] int32 -> [rows, 4 * words]. Others as they are.
Tensor as_bytes(const Tensor& words);

// Whether all are positive numbers; with groups 0 is the scale of a group of zeros.
bool are_scales(const Tensor& scales, bool of_groups);

}  // namespace atom
