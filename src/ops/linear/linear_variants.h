// The variants of linear, for its dispatch and its test.
#pragma once

#include <span>

#include "ops/linear/linear.h"
#include "ops/linear/linear_kernels.h"
#include "ops/variant.h"

namespace atom::ops {

// One checked call; see linear().
struct LinearCall {
  const Tensor& x;
  const LinearWeight& weight;
  const Tensor& bias;
  const Tensor& y;
};

using LinearLaunch = void(const Stream&, const LinearCall&, Workspace&);
using LinearVariant = Variant<LinearCall, LinearLaunch>;

std::span<const LinearVariant> linear_variants();

// Any weight layout; plain loops, the oracle of the others.
void linear_reference(const Stream& stream, const LinearCall& call, Workspace& scratch);

// Weights in panels, by the kernels of one instruction set and dtype.
void linear_panels(const linear_kernels::KernelTable& kernels,
                   const Stream& stream,
                   const LinearCall& call,
                   Workspace& scratch);

// Element (row, 0) of a weight is at the first offset; following k advance by the returned strides:
// k in a step by 1, steps by `step_stride`. In elements.
struct WeightRow {
  int64_t begin;
  int64_t step_stride;
  int64_t step_size;
};
WeightRow weight_row(const LinearWeight& weight, int64_t row);

}  // namespace atom::ops
