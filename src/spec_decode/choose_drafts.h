// A draft model's choices of a pass. One thread.
#pragma once

#include <cstdint>

#include "models/draft_model.h"
#include "nn/forward_context.h"

namespace atom {

// Rows whose logits are computed at once.
constexpr int64_t kMaxDraftLogitsRows = 64;

// Of each row of `hidden` that `rows` names: its state to `selected`, the token that the model
// holds for the best, below `num_sampled_ids`, to `drafts`; -1 where none is best. Takes memory of
// `context` for logits.
void choose_drafts(const DraftModel& model,
                   const Tensor& hidden,    // [*, model.hidden_size()]
                   const Tensor& rows,      // [n] int32
                   const Tensor& selected,  // [n, model.hidden_size()]
                   const Tensor& drafts,    // [n] int32
                   int64_t num_sampled_ids,
                   const ForwardContext& context);

}  // namespace atom
