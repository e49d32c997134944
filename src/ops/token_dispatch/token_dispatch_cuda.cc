// From checked calls to the kernels' launches.
#include "ops/token_dispatch/token_dispatch_cuda.h"

#include <algorithm>

#include "ops/token_dispatch/token_dispatch_kernels.h"
#include "tensor/element_of.h"
#include "tensor/gpu_check.h"
#include "tensor/per_card.h"

namespace atom::ops {
namespace {

void load_once() {
  static PerCard<bool> is_loaded;
  is_loaded.get([] {
    GPU_CHECK(load_token_dispatch_by_address());
    GPU_CHECK(load_token_dispatch_by_packets());
    return true;
  });
}

ExpertFirsts firsts_of(const ExpertRanges& experts) {
  ExpertFirsts firsts = {};
  std::ranges::copy(experts.first, firsts.first);
  return firsts;
}

template <typename Launch>
PacketRows rows_of(const Launch& launch) {
  return {launch.places, launch.k, launch.size, launch.element};
}

gpuStream_t queue_of(const Stream& stream) {
  return static_cast<gpuStream_t>(stream.queue().handle());
}

}  // namespace

void dispatch_tokens_cuda(const Stream& stream,
                          const Communicator& ranks,
                          const DispatchCall& call) {
  load_once();
  const PeerView* const peers = ranks.peers(stream);
  if (peers == nullptr) return;  // the group has failed: what comes of it is undefined
  const auto& [experts, x, ids, weights, to, at] = call;
  const DispatchLaunch launch = {
      .x = x.raw_data(),
      .ids = ids.data<int32_t>(),
      .weights = weights.data<float>(),
      .memory = to.memory.raw_data(),
      .out = to.in_float8 ? to.x.raw_data() : nullptr,
      .at = {at.ids, at.weights, at.rows, at.scales},
      .experts = firsts_of(experts),
      .num_tokens = static_cast<int32_t>(x.size(0)),
      .places = static_cast<int32_t>(to.x.size(0) / ranks.size()),
      .k = static_cast<int32_t>(ids.size(1)),
      .size = static_cast<int32_t>(x.size(1)),
      .element = element_of(x.dtype()),
  };
  const bool in_packets = !to.in_float8 && fits_packets(rows_of(launch));
  GPU_CHECK(in_packets ? launch_dispatch_by_packets(*peers, launch, queue_of(stream))
                       : launch_dispatch_by_address(*peers, launch, queue_of(stream)));
}

void combine_tokens_cuda(const Stream& stream, const Communicator& ranks, const CombineCall& call) {
  load_once();
  const PeerView* const peers = ranks.peers(stream);
  if (peers == nullptr) return;
  const auto& [experts, ids, came_ids, y, out] = call;
  const CombineLaunch launch = {
      .ids = ids.data<int32_t>(),
      .came_ids = came_ids.data<int32_t>(),
      .y = y.raw_data(),
      .out = out.raw_data(),
      .experts = firsts_of(experts),
      .num_tokens = static_cast<int32_t>(out.size(0)),
      .places = static_cast<int32_t>(y.size(0) / ranks.size()),
      .k = static_cast<int32_t>(ids.size(1)),
      .size = static_cast<int32_t>(y.size(1)),
      .element = element_of(y.dtype()),
  };
  GPU_CHECK(fits_packets(rows_of(launch))
                ? launch_combine_by_packets(*peers, launch, queue_of(stream))
                : launch_combine_by_address(*peers, launch, queue_of(stream)));
}

}  // namespace atom::ops
