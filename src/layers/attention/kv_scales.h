// The scales of one layer's KV cache in FP8, as checkpoints have them: one for the keys, one for
// the values, or one for both, or none, which is 1.
#pragma once

#include "nn/module.h"

namespace atom {

class KVScales : public Module {
 public:
  KVScales();

  // An error when a scale is no positive number.
  Status finish_load(const Stream& stream) override;

  // Once loaded.
  float k() const { return k_; }
  float v() const { return v_; }

 private:
  Parameter k_scale_;   // [1]; 0 where the checkpoint has none
  Parameter v_scale_;   // [1], likewise
  Parameter kv_scale_;  // [1], likewise: an older form, for both
  float k_ = 1.0f;
  float v_ = 1.0f;
};

}  // namespace atom
