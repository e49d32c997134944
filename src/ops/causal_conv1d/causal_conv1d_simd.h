// Inside causal_conv1d: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
#pragma once

#include <string.h>

#include "ops/causal_conv1d/causal_conv1d_kernels.h"
#include "ops/simd/silu.h"

namespace atom::ops {

// One token's outputs from the rows of inputs that it sees, the oldest first.
template <typename Simd, typename T>
void convolve_row(const CausalConv1dArgs& args,
                  const CausalConv1dTask& task,
                  const T* const* rows,
                  T* out) {
  using Float = typename Simd::Float;
  const float* weight = args.weight + task.first_channel;
  const int64_t whole = task.num_channels / Simd::kWidth * Simd::kWidth;
  const int64_t rest = task.num_channels - whole;
  for (int64_t c = 0; c < whole; c += Simd::kWidth) {
    Float sum = Simd::zero();
    for (int64_t j = 0; j < args.kernel_size; ++j) {
      sum = Simd::fma(Simd::load(weight + j * args.num_channels + c), Simd::load(rows[j] + c), sum);
    }
    Simd::store(out + c, silu<Simd>(sum));
  }
  if (rest == 0) return;
  Float sum = Simd::zero();
  for (int64_t j = 0; j < args.kernel_size; ++j) {
    sum = Simd::fma(Simd::load(weight + j * args.num_channels + whole, rest),
                    Simd::load(rows[j] + whole, rest),
                    sum);
  }
  Simd::store(out + whole, rest, silu<Simd>(sum));
}

// The task's channels of the oldest input in a slot.
template <typename T>
static inline T* conv_state_in(const CausalConv1dArgs& args,
                               const CausalConv1dTask& task,
                               int64_t slot) {
  const int64_t history = args.kernel_size - 1;
  return static_cast<T*>(args.state) + slot * history * args.num_channels + task.first_channel;
}

// The same where tokens leave the last inputs in slots, one of which may be `slot`.
template <typename Simd, typename T>
void convolve_and_keep(const CausalConv1dArgs& args,
                       const CausalConv1dTask& task,
                       int64_t start,
                       int64_t num_queries,
                       int64_t slot) {
  const int64_t history = args.kernel_size - 1;
  const uint64_t row_size = task.num_channels * sizeof(T);
  const bool has_history = args.batch.seq_lens[task.sequence] > num_queries;
  const T* x = static_cast<const T*>(args.x) + start * args.x_stride + task.first_channel;
  T* out = static_cast<T*>(args.out) + start * args.out_stride + task.first_channel;
  T before[(kConvMaxKernelSize - 1) * kConvTaskChannels];
  const T* rows[kConvMaxKernelSize];
  for (int64_t j = 0; j < history; ++j) {
    T* row = before + j * kConvTaskChannels;
    rows[j] = row;
    if (has_history) {
      memcpy(row, conv_state_in<T>(args, task, slot) + j * args.num_channels, row_size);
    } else {
      memset(row, 0, row_size);
    }
  }
  for (int64_t t = 0; t < num_queries; ++t) {
    rows[history] = x + t * args.x_stride;
    convolve_row<Simd>(args, task, rows, out + t * args.out_stride);
    for (int64_t j = 0; j < history; ++j) rows[j] = rows[j + 1];
    const int64_t kept = args.batch.token_slots[start + t];
    for (int64_t j = 0; j < history && kept >= 0; ++j) {
      memcpy(conv_state_in<T>(args, task, kept) + j * args.num_channels, rows[j], row_size);
    }
  }
}

template <typename Simd, typename T>
void convolve(const CausalConv1dArgs& args, const CausalConv1dTask& task) {
  const int64_t start = args.batch.query_start[task.sequence];
  const int64_t num_queries = args.batch.query_start[task.sequence + 1] - start;
  const int64_t slot = args.batch.state_slots[task.sequence];
  const bool has_history = args.batch.seq_lens[task.sequence] > num_queries;
  const int64_t history = args.kernel_size - 1;
  const uint64_t row_size = task.num_channels * sizeof(T);
  const T* x = static_cast<const T*>(args.x) + start * args.x_stride + task.first_channel;
  T* out = static_cast<T*>(args.out) + start * args.out_stride + task.first_channel;
  if (slot < 0) {
    for (int64_t t = 0; t < num_queries; ++t) memset(out + t * args.out_stride, 0, row_size);
    return;
  }
  if (args.batch.token_slots != nullptr) {
    return convolve_and_keep<Simd, T>(args, task, start, num_queries, slot);
  }
  T* state = conv_state_in<T>(args, task, slot);
  const T zeros[kConvTaskChannels] = {};
  const T* rows[kConvMaxKernelSize];
  for (int64_t j = 0; j < history; ++j) {
    rows[j] = has_history ? state + j * args.num_channels : zeros;
  }
  for (int64_t t = 0; t < num_queries; ++t) {
    rows[history] = x + t * args.x_stride;
    convolve_row<Simd>(args, task, rows, out + t * args.out_stride);
    for (int64_t j = 0; j < history; ++j) rows[j] = rows[j + 1];
  }
  // A row of the state comes from one behind it at the earliest, which is still the old one then.
  for (int64_t j = 0; j < history; ++j) {
    memmove(state + j * args.num_channels, rows[j], row_size);
  }
}

template <typename Simd>
void convolve(const CausalConv1dArgs& args, const CausalConv1dTask& task) {
  switch (args.element) {
    case Element::kFloat32:
      return convolve<Simd, float>(args, task);
    case Element::kFloat16:
      return convolve<Simd, Float16Bits>(args, task);
    case Element::kBFloat16:
      return convolve<Simd, BFloat16Bits>(args, task);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
