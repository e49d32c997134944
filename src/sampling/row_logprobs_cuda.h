// Inside sample_rows: the log-probabilities of rows.
#pragma once

#include "sampling/sample_rows.h"
#include "tensor/gpu_api.h"

namespace atom {

// Puts the logits back that edits changed, then writes args.logprobs. A row whose raw logits have
// no probabilities loses its token to the fault.
void launch_row_logprobs(const SampleRowsArgs& args, gpuStream_t stream);

}  // namespace atom
