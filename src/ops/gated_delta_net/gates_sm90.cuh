// Inside gated_delta_net on Hopper: the projection that gives a value head's b and a.
#pragma once

#include <cstring>

#include "ops/device/async_copy.cuh"
#include "ops/gated_delta_net/step_sm90.cuh"

namespace atom::ops::delta_device {

// A value head's b and a where they are multiplied here.
template <typename T>
class GateProducts {
 public:
  __device__ GateProducts(const GatedDeltaNetArgs& args, int head) : args_(args) {
    if (!exists()) return;
    const auto* weight = static_cast<const T*>(args.gate_weight);
    b_ = weight + head * args.hidden_size;
    a_ = b_ + args.rule.num_v_heads * args.hidden_size;
  }

  __device__ bool exists() const { return args_.gate_weight != nullptr; }

  // Before the kernel before has ended.
  __device__ void prefetch() const {
    constexpr int kLine = 128 / sizeof(T);
    if (!exists()) return;
    for (int i = threadIdx.x * kLine; i < args_.hidden_size; i += kRecurrentThreads * kLine) {
      device::prefetch_to_l2(b_ + i);
      device::prefetch_to_l2(a_ + i);
    }
  }

  // Of a sequence's tokens, to shared memory.
  __device__ void multiply(const Sequence& sequence, float2 (*parts)[kRecurrentWarps]) const {
    constexpr int kVector = sizeof(uint4) / sizeof(T);
    const int lane = threadIdx.x % device::kWarpSize, warp = threadIdx.x / device::kWarpSize;
    for (int token = 0; token < sequence.count; ++token) {
      const T* x = static_cast<const T*>(args_.gate_x) +
                   (int64_t{sequence.begin} + token) * args_.gate_x_stride;
      float2 sum = {};
      for (int i = threadIdx.x * kVector; i < args_.hidden_size; i += kRecurrentThreads * kVector) {
        const Vector of_x = load(x + i), of_b = load(b_ + i), of_a = load(a_ + i);
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          sum.x = fmaf(of_x.value[j], of_b.value[j], sum.x);
          sum.y = fmaf(of_x.value[j], of_a.value[j], sum.y);
        }
      }
      sum.x = device::reduce_lanes(sum.x, device::kWarpSize, device::Sum{});
      sum.y = device::reduce_lanes(sum.y, device::kWarpSize, device::Sum{});
      if (lane == 0) parts[token][warp] = sum;
    }
  }

  // Behind a barrier.
  __device__ static void take(const float2 (&parts)[kRecurrentWarps], GateInputs* gates) {
    float2 sum = {};
#pragma unroll
    for (int warp = 0; warp < kRecurrentWarps; ++warp) {
      sum.x += parts[warp].x;
      sum.y += parts[warp].y;
    }
    gates->b = device::round_to<T>(sum.x);
    gates->a = device::round_to<T>(sum.y);
  }

 private:
  struct Vector {
    float value[sizeof(uint4) / sizeof(T)];
  };
  static __device__ Vector load(const T* from) {
    const uint4 bits = gpu_load_from_l2(reinterpret_cast<const uint4*>(from));
    T elements[sizeof bits / sizeof(T)];
    memcpy(elements, &bits, sizeof bits);
    Vector vector;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof bits / sizeof(T)); ++i) {
      vector.value[i] = device::to_float(elements[i]);
    }
    return vector;
  }

  const GatedDeltaNetArgs& args_;
  const T *b_ = nullptr, *a_ = nullptr;  // the value head's rows
};

}  // namespace atom::ops::delta_device
