// Experts that stand in slots: makes choices of experts choices of slots, and counts them.
//
//   id of an expert in one slot:    that slot
//   id of an expert in more slots:  number (token id + position) modulo their number of them, which
//                                   is the same in every batch
//   id behind those of experts:     as far behind the slots (of shared experts)
//   negative id:                    itself
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// As operators read it: [1 + num_experts + 1 + num_slots] int32.
//   0                      1 while choices count, else 0
//   1 + e                  number of slots of the experts before expert e; the last: of all
//   2 + num_experts + i    the slots themselves, those of an expert together
struct ExpertPlaces {
  Tensor table;
  int64_t num_experts = 0;

  static int64_t size(int64_t num_experts, int64_t num_slots) {
    return 2 + num_experts + num_slots;
  }
  int64_t num_slots() const { return table.size(0) - 2 - num_experts; }
};

void choose_expert_slots(
    const Stream& stream,
    const Tensor& token_ids,     // [num_tokens] int32
    const Tensor& positions,     // [num_tokens] int32
    const Tensor& slot_mapping,  // [num_tokens] int32, or undefined; negative: a token that does
                                 // not count
    const ExpertPlaces& places,
    const Tensor& counts,  // [num_experts] int64, grow by the choices that count; undefined: none
    const Tensor& ids);    // [num_tokens, k] int32, changed in place

}  // namespace atom::ops
