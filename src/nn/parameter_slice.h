// Where the tensors of a checkpoint go in a parameter: its slices, and the common ways to make
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace atom {

// Which of `world` equal parts of a dimension this rank holds.
struct ShardPart {
  int rank = 0;
  int world = 1;
};

// A region of a tensor, of any rank.
struct Box {
  Shape begin;
  Shape size;
};

Box whole(const Shape& shape);
// The `part` of dimension `dim` of a tensor.
Box part_of(const Shape& shape, int dim, const ShardPart& part);

// What of a checkpoint's tensor goes where in the parameter. The sizes are equal but for dimensions
// of 1, and where these differ the target is contiguous: an expert's [out, in] fills [1, out, in]
// of a stack.
struct BoxCopy {
  Box source;
  Box target;
};

struct ParameterSlice {
  std::string id;      // "q", "gate", "3.up", ...; "" of a parameter that one tensor fills
  Shape source_shape;  // of the checkpoint's tensor, all ranks together
  // None: the slice is another rank's, its tensor is accounted for and not read.
  std::vector<BoxCopy> boxes;

  bool of_this_rank() const { return !boxes.empty(); }
};

// Its boxes lie within its tensor and within a parameter of `shape`, and fit each other.
void check_slice(const ParameterSlice& slice, const Shape& shape);

// Consecutive rows of a tensor.
struct RowRun {
  int64_t begin = 0;
  int64_t count = 0;
};

// A tensor of the checkpoint that is one run of the rows of a packed parameter.
struct RowSlice {
  std::string id;    // "q", "k", "v", "gate", "up", ...
  int64_t rows = 0;  // of the checkpoint's tensor, all ranks together; a multiple of part.world
  ShardPart part;    // per slice: K and V heads may be split among fewer ranks than Q heads
  // Where a tensor's rows are not in the parameter's order: those of this rank, in that order,
  // rows / part.world together. Empty: its part, as it is.
  std::vector<RowRun> runs = {};

  int64_t rows_of_rank() const { return rows / part.world; }
};

// The slices of a parameter that is packed along dimension 0, [rows of this rank, row_shape...].
std::vector<ParameterSlice> stack_rows(const std::vector<RowSlice>& slices, const Shape& row_shape);
// That parameter's shape.
Shape stacked_shape(const std::vector<RowSlice>& slices, const Shape& row_shape);

}  // namespace atom
