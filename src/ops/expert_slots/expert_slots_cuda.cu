#include "ops/expert_slots/expert_slots_kernels.h"
#include "tensor/gpu_api.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;

// A thread for each choice.
__global__ void choose_slots(ExpertSlotsArgs args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t t = i / args.num_choices;
  if (t >= args.num_tokens) return;
  const int32_t id = args.ids[i];
  if (id < 0) return;
  if (id >= args.num_experts) {
    args.ids[i] = id + args.num_slots - args.num_experts;
    return;
  }
  const bool counts = args.table[0] != 0 && args.counts != nullptr &&
                      (args.slot_mapping == nullptr || args.slot_mapping[t] >= 0);
  if (counts) atomicAdd(reinterpret_cast<unsigned long long*>(args.counts + id), 1ull);
  const uint32_t token =
      static_cast<uint32_t>(args.token_ids[t]) + static_cast<uint32_t>(args.positions[t]);
  const int32_t* begins = args.table + 1;
  const int32_t begin = begins[id];
  const auto count = static_cast<uint32_t>(begins[id + 1] - begin);
  args.ids[i] = begins[args.num_experts + 1 + begin + static_cast<int32_t>(token % count)];
}

}  // namespace

void choose_expert_slots_cuda(const ExpertSlotsArgs& args, void* queue) {
  const int64_t count = args.num_tokens * args.num_choices;
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  choose_slots<<<blocks, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  check_gpu_launch("choose_expert_slots");
}

}  // namespace atom::ops
