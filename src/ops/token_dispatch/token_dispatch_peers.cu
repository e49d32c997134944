// Teams of warps have a token each: many tokens a warp, few of them a whole block, so that a
// token's vectors are on their way together.
#include "comm/device/exchange.cuh"
#include "comm/device/kernels.h"
#include "ops/device/programmatic_launch.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/token_dispatch/token_dispatch.cuh"

namespace atom::ops {
namespace {

using namespace device;
using namespace device_exchange;

constexpr int kWarps = 8, kThreads = kWarps * kWarpSize;
constexpr int kAtOnce = 4;  // vectors of a thread on their way together

// The warps that have a token, of a block's.
struct Team {
  int warps;

  __device__ int lanes() const { return warps * kWarpSize; }
  __device__ int lane() const { return threadIdx.x % lanes(); }
  __device__ int64_t first() const {
    return int64_t{blockIdx.x} * (kWarps / warps) + threadIdx.x / lanes();
  }
  __device__ int64_t step() const { return int64_t{gridDim.x} * (kWarps / warps); }
};

// This rank's token in all ranks' memory. kFloat8: as codes and scales.
template <typename T, bool kFloat8>
struct TokenSender {
  const PeerView& view;
  const DispatchLaunch& p;
  void* const* memories;  // [size]
  Team team;

  __device__ void send(int64_t token) const {
    const bool exists = token < p.num_tokens;
    const uint32_t ranks = exists ? ranks_of(p.experts, view, p.ids + token * p.k, p.k) : 0;
    send_choices(token, exists);
    if constexpr (kFloat8) {
      if (ranks != 0) send_codes(token, ranks);
    } else {
      if (ranks != 0) send_row(token, ranks);
    }
  }

 private:
  static constexpr int kLength = Vector<T>::kLength;

  __device__ int64_t place(int64_t token) const { return int64_t{view.rank} * p.places + token; }

  // To everyone: who gets no row hears so.
  __device__ void send_choices(int64_t token, bool exists) const {
    for (int j = team.lane(); j < p.k; j += team.lanes()) {
      const int32_t id = exists ? gpu_load_from_l2(p.ids + token * p.k + j) : -1;
      const float weight = exists ? gpu_load_from_l2(p.weights + token * p.k + j) : 0.0f;
      const int owner = id < 0 ? -1 : rank_of(p.experts, view, id);
      const int64_t at = place(token) * p.k + j;
      for (int i = 0; i < view.size; ++i) {
        const int peer = (view.rank + i) % view.size;
        part_of<int32_t>(memories[peer], p.at.ids)[at] = owner == peer ? id : -1;
        part_of<float>(memories[peer], p.at.weights)[at] = weight;
      }
    }
  }

  __device__ void load(int64_t token, int first, uint4 (&bits)[kAtOnce]) const {
    const auto* x = reinterpret_cast<const uint4*>(static_cast<const T*>(p.x) + token * p.size);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int v = first + i * team.lanes();
      bits[i] = v < p.size / kLength ? gpu_load_from_l2(x + v) : uint4{};
    }
  }

  // body(peer) for each of the ranks, another one first on each.
  template <typename Body>
  __device__ void for_each(uint32_t ranks, const Body& body) const {
    for (int i = 0; i < view.size; ++i) {
      const int peer = (view.rank + i) % view.size;
      if (ranks >> peer & 1) body(peer);
    }
  }

  __device__ void send_row(int64_t token, uint32_t ranks) const {
    const int vectors = p.size / kLength;
    for (int first = team.lane(); first < vectors; first += kAtOnce * team.lanes()) {
      uint4 bits[kAtOnce];
      load(token, first, bits);
      for_each(ranks, [&](int peer) {
        uint4* row = part_of<uint4>(memories[peer], p.at.rows) + place(token) * vectors;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (first + i * team.lanes() < vectors) row[first + i * team.lanes()] = bits[i];
        }
      });
    }
  }

  __device__ void send_codes(int64_t token, uint32_t ranks) const {
    using Codes = Pack<Float8, kLength>;
    const int vectors = p.size / kLength;
    const int groups = (p.size + kQuantGroupSize - 1) / kQuantGroupSize;
    // Whole warps take part in a group's scale.
    for (int begin = 0; begin < vectors; begin += kAtOnce * team.lanes()) {
      const int first = begin + team.lane();
      uint4 bits[kAtOnce];
      load(token, first, bits);
      const auto has = [&](int i) { return first + i * team.lanes() < vectors; };
      quantize_groups<T>(
          bits,
          [&](int i, float scale) {
            if (!has(i)) return;
            const int group = (first + i * team.lanes()) * kLength / kQuantGroupSize;
            for_each(ranks, [&](int peer) {
              part_of<float>(memories[peer], p.at.scales)[place(token) * groups + group] = scale;
            });
          },
          [&](int i, const Codes& codes) {
            if (!has(i)) return;
            for_each(ranks, [&](int peer) {
              Float8* row = part_of<Float8>(memories[peer], p.at.rows) + place(token) * p.size;
              *reinterpret_cast<Codes*>(row + (first + i * team.lanes()) * kLength) = codes;
            });
          });
    }
  }
};

// What came to place `place` is x's type again.
template <typename T>
__device__ inline void widen_codes(const DispatchLaunch& p, const Team& team, int64_t place) {
  constexpr int kLength = Vector<T>::kLength;
  using Codes = Pack<Float8, kLength>;
  using Bits = typename std::conditional<kLength == 8, uint2, uint32_t>::type;
  const int groups = (p.size + kQuantGroupSize - 1) / kQuantGroupSize;
  const auto* codes = part_of<Float8>(p.memory, p.at.rows) + place * p.size;
  const auto* scales = part_of<float>(p.memory, p.at.scales) + place * groups;
  T* out = static_cast<T*>(p.out) + place * p.size;
  for (int k = team.lane() * kLength; k < p.size; k += team.lanes() * kLength) {
    const Bits bits = gpu_load_from_l2(reinterpret_cast<const Bits*>(codes + k));
    const float scale = gpu_load_from_l2(scales + k / kQuantGroupSize);
    Codes eight;
    memcpy(&eight, &bits, sizeof bits);
    float x[kLength];
#pragma unroll
    for (int i = 0; i < kLength; ++i) x[i] = to_float(eight.element[i]) * scale;
    store_bits(out + k, bits_of<T>(x));
  }
}

// Tokens that came to this rank, of the places that the block's teams have sent to elsewhere.
template <typename T>
__device__ inline void widen_tokens(const PeerView& view,
                                    const DispatchLaunch& p,
                                    const Team& team) {
  const int32_t* ids = part_of<int32_t>(p.memory, p.at.ids);
  for (int64_t token = team.first(); token < p.places; token += team.step()) {
    for (int from = 0; from < view.size; ++from) {
      const int64_t place = int64_t{from} * p.places + token;
      bool is_here = false;
      for (int j = 0; j < p.k; ++j) is_here |= gpu_load_from_l2(ids + place * p.k + j) >= 0;
      if (is_here) widen_codes<T>(p, team, place);
    }
  }
}

template <typename T, bool kFloat8>
__global__ void __launch_bounds__(kThreads) dispatch(const __grid_constant__ PeerView view,
                                                     const __grid_constant__ DispatchLaunch p,
                                                     int team_warps) {
  __shared__ void* memories[kMaxPeers];
  allow_next_grid();
  wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  if (!say_hello(view, epoch, p.memory, memories)) return;
  const Team team = {team_warps};
  const TokenSender<T, kFloat8> sender = {view, p, memories, team};
  for (int64_t token = team.first(); token < p.places; token += team.step()) sender.send(token);
  say_goodbye(view, epoch);
  if constexpr (kFloat8) {
    __syncthreads();
    widen_tokens<T>(view, p, team);
  }
}

// Of a token that has results on `ranks` the sum of vectors first, first + lanes, ...
template <typename T>
struct TokenSum {
  const PeerView& view;
  const CombineLaunch& p;
  void* const* results;  // [size]
  Team team;
  static constexpr int kLength = Vector<T>::kLength;

  __device__ void add_up(int64_t token, uint32_t ranks) const {
    const int vectors = p.size / kLength;
    auto* out = reinterpret_cast<uint4*>(static_cast<T*>(p.out) + token * p.size);
    for (int first = team.lane(); first < vectors; first += kAtOnce * team.lanes()) {
      float sums[kAtOnce][kLength] = {};
      uint32_t left = ranks;
      while (left != 0) {
        // Two ranks' results are on their way at once.
        const int rank = __ffs(static_cast<int>(left)) - 1;
        left &= left - 1;
        const int second = left != 0 ? __ffs(static_cast<int>(left)) - 1 : -1;
        left &= left - 1;
        uint4 bits[kAtOnce], others[kAtOnce];
        load(token, rank, first, bits);
        if (second >= 0) load(token, second, first, others);
        add(bits, sums);
        if (second >= 0) add(others, sums);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int v = first + i * team.lanes();
        if (v < vectors) out[v] = bits_of<T>(sums[i]);
      }
    }
  }

 private:
  __device__ void load(int64_t token, int rank, int first, uint4 (&bits)[kAtOnce]) const {
    const int vectors = p.size / kLength;
    const auto* row = static_cast<const uint4*>(results[rank]) +
                      (int64_t{view.rank} * p.places + token) * vectors;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int v = first + i * team.lanes();
      bits[i] = v < vectors ? gpu_load_from_l2(row + v) : uint4{};
    }
  }
  __device__ static void add(const uint4 (&bits)[kAtOnce], float (&sums)[kAtOnce][kLength]) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      float x[kLength];
      to_floats<T>(bits[i], x);
#pragma unroll
      for (int j = 0; j < kLength; ++j) sums[i][j] += x[j];
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads) combine(const __grid_constant__ PeerView view,
                                                    const __grid_constant__ CombineLaunch p,
                                                    int team_warps) {
  __shared__ void* results[kMaxPeers];
  allow_next_grid();
  wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  const Team team = {team_warps};
  if (!say_hello(view, epoch, p.y, results)) return;
  const TokenSum<T> sum = {view, p, results, team};
  for (int64_t token = team.first(); token < p.num_tokens; token += team.step()) {
    sum.add_up(token, ranks_of(p.experts, view, p.ids + token * p.k, p.k));
  }
  say_goodbye(view, epoch);
}

// The same on every rank: blocks exchange with those of their number.
struct Shape {
  int team_warps;
  unsigned blocks;
};
Shape shape_of(int64_t places) {
  int warps = kWarps;
  while (warps > 1 && places > int64_t{kMaxExchangeBlocks} * (kWarps / warps)) warps /= 2;
  const int64_t teams = kWarps / warps, wanted = (places + teams - 1) / teams;
  return {warps, static_cast<unsigned>(wanted < kMaxExchangeBlocks ? wanted : kMaxExchangeBlocks)};
}

template <typename Kernel, typename Launch>
gpuError_t start(Kernel* kernel, const PeerView& view, const Launch& p, gpuStream_t stream) {
  const Shape shape = shape_of(p.places);
  return launch(
      kernel, dim3(shape.blocks), dim3(kThreads), 0, stream, true, view, p, shape.team_warps);
}

}  // namespace

gpuError_t launch_dispatch_by_address(const PeerView& view,
                                      const DispatchLaunch& p,
                                      gpuStream_t stream) {
  return with_element(p.element, [&]<typename T>() {
    return start(p.out != nullptr ? &dispatch<T, true> : &dispatch<T, false>, view, p, stream);
  });
}

gpuError_t launch_combine_by_address(const PeerView& view,
                                     const CombineLaunch& p,
                                     gpuStream_t stream) {
  return with_element(p.element, [&]<typename T>() { return start(&combine<T>, view, p, stream); });
}

gpuError_t load_token_dispatch_by_address() {
  gpuError_t error = ATOM_GPU(Success);
  for (const Element element : {Element::kFloat32, Element::kFloat16, Element::kBFloat16}) {
    if (error != ATOM_GPU(Success)) return error;
    error = with_element(element, [&]<typename T>() {
      return load_kernels(&dispatch<T, true>, &dispatch<T, false>, &combine<T>);
    });
  }
  return error;
}

}  // namespace atom::ops
