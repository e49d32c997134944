// From what a sequence wants to what the device's sampler reads (sampling/sample_rows.h).
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/logit_edits.h"
#include "sampling/sample_rows.h"
#include "sampling/sampling_state.h"

namespace atom {

// A row of logits that a device samples. The token before the wanted one may still be on the
// device: then `state` does not know it.
struct DeviceSamplingRow {
  const SamplingState* state = nullptr;
  uint32_t position = 0;           // of the wanted token among the generated ones
  int32_t pending_row = -1;        // which row of the step before chose the token before; -1: known
  TokenBitmask allowed = nullptr;  // of a grammar, which knows the token before
};

// The row's token is the one of its largest logit, and nothing else is asked about the row.
bool takes_largest_logit(const DeviceSamplingRow& row);

// Appends the row's edits to `edits`; first_edit is where they begin. Which mask the row has is
// left to the caller: a forced token comes whatever a mask says.
bool has_mask(const DeviceSamplingRow& row);
SampleRowParams sample_row_params(const DeviceSamplingRow& row, std::vector<LogitEdit>* edits);

// The most edits that a row of a vocabulary has.
int64_t max_row_edits(int64_t vocab_size);

}  // namespace atom
