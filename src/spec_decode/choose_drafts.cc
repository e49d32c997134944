#include "spec_decode/choose_drafts.h"

#include <algorithm>

#include "ops/argmax/argmax.h"
#include "ops/embedding/embedding.h"

namespace atom {

void choose_drafts(const DraftModel& model,
                   const Tensor& hidden,
                   const Tensor& rows,
                   const Tensor& selected,
                   const Tensor& drafts,
                   int64_t num_sampled_ids,
                   const ForwardContext& context) {
  const Stream& stream = context.stream;
  const int64_t num_choices = std::min(num_sampled_ids, model.num_ids());
  for (int64_t begin = 0; begin < rows.size(0); begin += kMaxDraftLogitsRows) {
    const Workspace::Scope scope(context.workspace);
    const int64_t count = std::min(kMaxDraftLogitsRows, rows.size(0) - begin);
    const Tensor states = selected.narrow(0, begin, count);
    const Tensor chosen = drafts.narrow(0, begin, count);
    ops::embedding(stream, rows.narrow(0, begin, count), hidden, states);
    const Tensor logits = context.workspace.tensor({count, model.num_ids()}, DType::kFloat32);
    model.compute_logits(states, logits, context);
    if (!model.token_table().defined()) {
      ops::argmax(stream, logits, num_choices, chosen, context.workspace);
      continue;
    }
    const Tensor ids = context.workspace.tensor({count}, DType::kInt32);
    ops::argmax(stream, logits, num_choices, ids, context.workspace);
    ops::embedding_of_part(stream, ids, model.token_table(), 0, chosen.view({count, 1}));
  }
}

}  // namespace atom
