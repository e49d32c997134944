// What mla_attention_sm90 does, by other means: a thread of those that load announces what is
// there, so that those that compute need no fences, and rows of the next tiles are brought to the
// second-level cache ahead.
#pragma once

#include "ops/mla_attention/sm90/mla_sm90.h"

namespace atom::ops {

// As mla_attention_sm90(), with the same workspace and what that supports.
void mla_attention_relay_sm90(const MlaAttentionArgs& args,
                              void* workspace,
                              void* queue,
                              const MlaSm90Tuning& tuning = {});

}  // namespace atom::ops
