// What the checkpoint of an EAGLE-3 head says of itself: config.json, checked against the model
// that it drafts for, and which of the tensors that may be left out are there.
#pragma once

#include <string>
#include <vector>

#include "config/model_config.h"

namespace atom {

struct Eagle3Config {
  ModelConfig model;  // sizes of its own; vocab_size is the target's
  int32_t draft_vocab_size = 0;
  int32_t target_hidden_size = 0;
  std::vector<int> aux_layers;        // of the target, whose inputs it reads; ascending
  bool norm_before_residual = false;  // the residual stream begins behind hidden_norm
  bool norm_before_fc = false;        // "input_norm", of the states side by side
  bool norms_each_state = false;      // "fc_norm.<i>"
  bool norm_output = false;           // the next draft reads states behind the final norm

  // As the files have it.
  bool has_embedding = false;  // else the target's is shared
  bool has_token_map = false;  // "d2t": what its ids mean
  std::string first_layer = "midlayer";
};

// `folder`: of the head's checkpoint. Errors name --draft-model and what does not fit.
Result<Eagle3Config> load_eagle3_config(const std::string& folder, const ModelConfig& target);

}  // namespace atom
