// Calls of the linears for few rows with random operands, and what they have to give.
#pragma once

#include <vector>

#include "harness.h"
#include "ops/linear/linear_gpu_call.h"

namespace atom::bench {

struct LinearCase {
  const char* name;
  Element weight, x, y;
  ops::LinearEpilogue epilogue;
  bool bias;
  bool scale_per_row;
  int32_t scale_rows = 0;  // FP8: not 0 with scales of groups, in the weight of so many rows
};

// What lies behind the last row of x and of the weight is NaN.
class LinearOperands {
 public:
  LinearOperands(const LinearCase& c, int64_t out_features, int64_t in_features, int64_t rows);

  // Rows [first_row, first_row + num_rows) of x and y.
  ops::LinearGpuCall params(int64_t first_row, int64_t num_rows) const;
  ops::LinearGpuCall params() const { return params(0, rows_); }

  // y as it is before a call: NaN, or what the residual is.
  void reset();
  std::vector<uint8_t> result() const { return y_.download<uint8_t>(); }
  // Of rows of y.
  int64_t row_size() const { return width_ * bytes_of(case_.y); }

  // The largest error of some results in units of what rounding allows: 1 passes.
  double error(const std::vector<uint8_t>& result);

 private:
  struct Expected {
    int64_t index;  // in y
    double value, allowed;
  };
  int64_t num_groups() const;
  void compute_expected();

  LinearCase case_;
  int64_t n_, k_, rows_, width_;
  Buffer weight_, x_, bias_, weight_scale_, x_scale_, y_, residual_;
  std::vector<Expected> expected_;
};

}  // namespace atom::bench
