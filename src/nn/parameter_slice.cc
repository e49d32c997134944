#include "nn/parameter_slice.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace atom {
namespace {

void check_part(int64_t size, const ShardPart& part) {
  CHECK(part.world >= 1);
  CHECK(part.rank >= 0);
  CHECK(part.rank < part.world);
  CHECK(size % part.world == 0);
}

void check_within(const Box& box, const Shape& shape) {
  CHECK(box.begin.rank() == shape.rank());
  CHECK(box.size.rank() == shape.rank());
  for (int dim = 0; dim < shape.rank(); ++dim) {
    CHECK(box.begin[dim] >= 0);
    CHECK(box.size[dim] >= 0);
    CHECK(box.begin[dim] + box.size[dim] <= shape[dim]);
  }
}

// The sizes other than 1.
std::vector<int64_t> significant(const Shape& shape) {
  std::vector<int64_t> sizes;
  std::ranges::copy_if(shape, std::back_inserter(sizes), [](int64_t size) { return size != 1; });
  return sizes;
}

Shape shape_of_part(Shape shape, int dim, const ShardPart& part) {
  shape[dim] /= part.world;
  return shape;
}

// [rows, row_shape...]
Shape stacked(int64_t rows, const Shape& row_shape) {
  std::vector<int64_t> sizes = {rows};
  sizes.insert(sizes.end(), row_shape.begin(), row_shape.end());
  return Shape(sizes);
}

}  // namespace

Box whole(const Shape& shape) {
  Shape begin = shape;
  for (int dim = 0; dim < shape.rank(); ++dim) begin[dim] = 0;
  return {begin, shape};
}

Box part_of(const Shape& shape, int dim, const ShardPart& part) {
  CHECK(dim >= 0);
  CHECK(dim < shape.rank());
  check_part(shape[dim], part);
  Box box = whole(shape_of_part(shape, dim, part));
  box.begin[dim] = part.rank * box.size[dim];
  return box;
}

void check_slice(const ParameterSlice& slice, const Shape& shape) {
  for (const auto& [source, target] : slice.boxes) {
    check_within(source, slice.source_shape);
    check_within(target, shape);
    // One tensor for all may divide its dimensions otherwise.
    const bool is_all = source.size == slice.source_shape && target.size == shape &&
                        source.size.num_elements() == target.size.num_elements();
    CHECK((is_all || significant(source.size) == significant(target.size)));
  }
}

Shape stacked_shape(const std::vector<RowSlice>& slices, const Shape& row_shape) {
  int64_t rows = 0;
  for (const RowSlice& slice : slices) rows += slice.rows_of_rank();
  return stacked(rows, row_shape);
}

std::vector<ParameterSlice> stack_rows(const std::vector<RowSlice>& slices,
                                       const Shape& row_shape) {
  std::vector<ParameterSlice> boxes;
  int64_t row = 0;
  for (const RowSlice& slice : slices) {
    const Shape shape = stacked(slice.rows, row_shape);
    check_part(slice.rows, slice.part);
    std::vector<RowRun> runs = slice.runs;
    if (runs.empty()) runs = {{slice.part.rank * slice.rows_of_rank(), slice.rows_of_rank()}};
    ParameterSlice copied{slice.id, shape, {}};
    for (const RowRun& run : runs) {
      Box source = whole(stacked(run.count, row_shape));
      Box target = source;
      source.begin[0] = run.begin;
      target.begin[0] = row;
      row += run.count;
      copied.boxes.push_back({source, target});
    }
    boxes.push_back(std::move(copied));
  }
  return boxes;
}

}  // namespace atom
