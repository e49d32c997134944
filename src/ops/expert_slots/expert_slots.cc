#include "ops/expert_slots/expert_slots.h"

#include "ops/expert_slots/expert_slots_kernels.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

void choose_reference(const Stream&, const ExpertSlotsArgs& args) {
  const bool is_counting = args.table[0] != 0 && args.counts != nullptr;
  const int32_t* begins = args.table + 1;
  const int32_t* slots = begins + args.num_experts + 1;
  int32_t* id = args.ids;
  for (int64_t t = 0; t < args.num_tokens; ++t) {
    const bool counts = is_counting && (args.slot_mapping == nullptr || args.slot_mapping[t] >= 0);
    // What the token has of its own: neighbors in a batch go to other slots all the same.
    const auto token =
        static_cast<uint32_t>(args.token_ids[t]) + static_cast<uint32_t>(args.positions[t]);
    for (int32_t j = 0; j < args.num_choices; ++j, ++id) {
      if (*id < 0) continue;
      if (*id >= args.num_experts) {
        *id += args.num_slots - args.num_experts;
        continue;
      }
      if (counts) ++args.counts[*id];
      const int32_t begin = begins[*id];
      const auto count = static_cast<uint32_t>(begins[*id + 1] - begin);
      *id = slots[begin + static_cast<int32_t>(token % count)];
    }
  }
}

#ifdef ATOM_CUDA
void choose_on_queue(const Stream& stream, const ExpertSlotsArgs& args) {
  choose_expert_slots_cuda(args, stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const ExpertSlotsArgs&);

constexpr Variant<ExpertSlotsArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, choose_on_queue, DeviceType::kCuda},
#endif
    {"reference", CpuIsa::kScalar, nullptr, choose_reference},
};

}  // namespace

void choose_expert_slots(const Stream& stream,
                         const Tensor& token_ids,
                         const Tensor& positions,
                         const Tensor& slot_mapping,
                         const ExpertPlaces& places,
                         const Tensor& counts,
                         const Tensor& ids) {
  TensorCheck check("choose_expert_slots");
  check.contiguous("token_ids", token_ids, {"T"}, DType::kInt32)
      .contiguous("positions", positions, {"T"}, DType::kInt32)
      .contiguous("ids", ids, {"T", "k"}, DType::kInt32)
      .contiguous("table", places.table, {"P"}, DType::kInt32);
  CHECK(places.num_experts > 0);
  CHECK(places.num_slots() >= places.num_experts);
  if (slot_mapping.defined()) check.contiguous("slot_mapping", slot_mapping, {"T"}, DType::kInt32);
  if (counts.defined()) {
    check.contiguous("counts", counts, {"E"}, DType::kInt64);
    CHECK(counts.size(0) == places.num_experts);
  }
  if (stream.is_dry_run() || ids.num_elements() == 0) return;
  const ExpertSlotsArgs args{
      .token_ids = token_ids.data<int32_t>(),
      .positions = positions.data<int32_t>(),
      .slot_mapping = slot_mapping.defined() ? slot_mapping.data<int32_t>() : nullptr,
      .table = places.table.data<int32_t>(),
      .counts = counts.defined() ? counts.data<int64_t>() : nullptr,
      .ids = ids.data<int32_t>(),
      .num_tokens = ids.size(0),
      .num_choices = static_cast<int32_t>(ids.size(1)),
      .num_experts = static_cast<int32_t>(places.num_experts),
      .num_slots = static_cast<int32_t>(places.num_slots())};
  const auto& variant =
      pick_variant("expert_slots", kVariants, stream, args, [&] { return moves(ids, ids); });
  variant.launch(stream, args);
}

}  // namespace atom::ops
