#include <cmath>

#include "ops/causal_conv1d/causal_conv1d_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

template <typename T>
void convolve_channel(const CausalConv1dArgs& args, int64_t sequence, int64_t channel) {
  const int64_t start = args.batch.query_start[sequence];
  const int64_t num_queries = args.batch.query_start[sequence + 1] - start;
  const int64_t slot = args.batch.state_slots[sequence];
  const bool has_history = args.batch.seq_lens[sequence] > num_queries;
  const int64_t history = args.kernel_size - 1;
  const T* x = static_cast<const T*>(args.x) + start * args.x_stride + channel;
  T* out = static_cast<T*>(args.out) + start * args.out_stride + channel;
  if (slot < 0) {
    for (int64_t t = 0; t < num_queries; ++t) out[t * args.out_stride] = T{};
    return;
  }
  const auto keep = [&](int64_t at, const T* window) {
    T* kept = static_cast<T*>(args.state) + at * history * args.num_channels + channel;
    for (int64_t j = 0; j < history; ++j) kept[j * args.num_channels] = window[j];
  };
  const int32_t* token_slots = args.batch.token_slots;
  const T* state = static_cast<const T*>(args.state) + slot * history * args.num_channels + channel;
  T window[kConvMaxKernelSize] = {};
  for (int64_t j = 0; j < history && has_history; ++j) window[j] = state[j * args.num_channels];
  for (int64_t t = 0; t < num_queries; ++t) {
    window[history] = x[t * args.x_stride];
    float sum = 0;
    for (int64_t j = 0; j < args.kernel_size; ++j) {
      sum += args.weight[j * args.num_channels + channel] * to_float(window[j]);
    }
    out[t * args.out_stride] = from_float<T>(sum / (1.0f + std::exp(-sum)));
    for (int64_t j = 0; j < history; ++j) window[j] = window[j + 1];
    if (token_slots != nullptr && token_slots[start + t] >= 0) keep(token_slots[start + t], window);
  }
  if (token_slots == nullptr) keep(slot, window);
}

}  // namespace

void causal_conv1d_reference(const CausalConv1dArgs& args, const CausalConv1dTask& task) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t i = 0; i < task.num_channels; ++i) {
      convolve_channel<T>(args, task.sequence, task.first_channel + i);
    }
  });
}

}  // namespace atom::ops
