// A target and what drafts for it, with one sequence. ATOM_TEST_DEVICE=cuda runs them on the GPU.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/resolve.h"
#include "runner/input_builder.h"
#include "runner/model_source.h"
#include "tensor/device_runtime.h"

namespace atom {

class DraftedModel {
 public:
  static constexpr int32_t kMaxTokens = 1024;
  static constexpr size_t kNumDrafts = 3;

  // Of the checkpoint in `folder`; with a draft model's folder by that, else by its own layers.
  explicit DraftedModel(const std::string& folder, const std::string& draft_model = "");

  // Logits of the first draft for each token but the last.
  Tensor draft_logits(const std::vector<int32_t>& token_ids);

  // [depth][row]: what each row of `token_ids` drafts when the layer computes all rows anew for
  // each depth, every one from the state and the draft that it got itself at the depth before. Of
  // models whose ids are tokens.
  std::vector<std::vector<int32_t>> drafts_of_rows(const std::vector<int32_t>& token_ids);

  // What is drafted behind `token_ids`, of which the target has not computed those from `begin` on.
  std::vector<int32_t> drafts_behind(const std::vector<int32_t>& token_ids, int32_t begin);

 private:
  // The states of tokens [begin, end) that the draft model reads, for `use`.
  using Use = std::function<void(const Tensor& states, const ForwardContext& context)>;
  void forward(const std::vector<int32_t>& token_ids, int32_t begin, int32_t end, const Use& use);
  Tensor int32_tensor(const std::vector<int32_t>& values) const;
  // One pass of draft number `draft` over all rows of the target's step -> its states.
  Tensor draft_rows(const Tensor& states,
                    const std::vector<int32_t>& next_ids,
                    int draft,
                    const Tensor& logits,
                    const ForwardContext& context) const;

  ThreadPool pool_{2};
  std::unique_ptr<DeviceQueue> queue_;  // null on the CPU
  Stream stream_{&pool_};
  ResolvedConfig config_;
  BuiltModel built_;
  LayerStorage storage_;
  std::optional<InputBuilder> builder_;
  std::vector<int32_t> block_ids_;
  std::vector<int32_t> window_block_ids_;
};

}  // namespace atom
