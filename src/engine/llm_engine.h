// The engine as a program uses it: load a checkpoint, submit prompts, get text.
//
//   atom::EngineConfig config;
//   config.model.model = "models/tldr-8m";
//   auto engine = atom::LLMEngine::create(config).value();
//   for (const atom::RequestOutput& output : engine->generate({"tar"}, engine->default_sampling()))
//     std::puts(output.outputs[0].text.c_str());
//
// All methods may be called from any thread. examples/generate.cc is the compiled example.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <vector>

#include "base/status.h"
#include "config/generation_config.h"
#include "config/resolve.h"
#include "engine/core_manager.h"
#include "engine/output_processor.h"
#include "engine/request_output.h"
#include "tokenizer/tokenizer.h"

namespace atom {

class LLMEngine {
 public:
  // Loads everything that `config` names and returns when requests can be served. `on_loading` is
  // told the bytes of weights in place and in all.
  static Result<std::unique_ptr<LLMEngine>> create(
      const EngineConfig& config, const CoreManager::LoadingHandler& on_loading = nullptr);
  // Stops after the step that is running; unfinished requests get no further callback.
  ~LLMEngine();

  // Checks the request and queues it. `callback` runs on the engine's output thread and must return
  // quickly; the last call has output.finished. An error means that nothing was queued.
  Result<RequestId> submit(const Prompt& prompt, SamplingParams sampling, OutputCallback callback);
  // The request ends with FinishReason::kAbort within a step. Unknown or finished ids are ignored.
  void abort(RequestId id);

  // Serves all prompts together and returns their outputs in order. A bad request gets an error in
  // its own output's status. `sampling`: one for all, or one per prompt. `on_finished` is told the
  // number of finished requests, on the engine's output thread.
  std::vector<RequestOutput> generate(std::span<const Prompt> prompts,
                                      std::span<const SamplingParams> sampling,
                                      const std::function<void(size_t)>& on_finished = nullptr);
  std::vector<RequestOutput> generate(std::initializer_list<Prompt> prompts,
                                      const SamplingParams& sampling);

  // The ids of a prompt, as submit() would take them.
  Result<std::vector<int32_t>> tokenize(const std::string& text, bool add_special_tokens) const;

  // The checkpoint's generation_config.json, else the neutral values; max_tokens as far as
  // max_model_len allows.
  SamplingParams default_sampling() const;

  const ResolvedConfig& config() const { return config_; }
  const GenerationConfig& generation_config() const { return generation_config_; }
  const CoreReady& memory() const { return manager_->ready(); }
  // Null under skip_tokenizer_init.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  CoreStats stats() const;

 private:
  LLMEngine(ResolvedConfig config,
            GenerationConfig generation_config,
            std::shared_ptr<const Tokenizer> tokenizer);

  Status check(const std::vector<int32_t>& prompt_token_ids, const SamplingParams& sampling) const;
  uint64_t draw_seed();
  void on_response(CoreResponse response);

  const ResolvedConfig config_;
  const GenerationConfig generation_config_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  OutputProcessor outputs_;
  std::atomic<uint64_t> next_request_id_{1};
  std::atomic<SequenceId> next_sequence_id_{1};
  mutable std::mutex mutex_;
  std::mt19937_64 seeds_;                 // guarded by mutex_
  CoreStats stats_;                       // guarded by mutex_
  Status failure_;                        // guarded by mutex_; why the core is gone
  std::unique_ptr<CoreManager> manager_;  // last: its threads use what is above
};

}  // namespace atom
