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
#include <random>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "config/generation_config.h"
#include "config/resolve.h"
#include "engine/core_launch.h"
#include "engine/output_processor.h"
#include "engine/profile_control.h"
#include "engine/request_output.h"
#include "engine/request_router.h"
#include "tokenizer/tokenizer.h"

namespace atom {

class CoreManager;

struct LLMEngineOptions {
  // Told the bytes of weights in place and in all, until create() returns.
  std::function<void(const CoreLoading&)> on_loading;
  CoreLaunch launch;
  // Told of every change of health().state, from the first kReady to the last kStopping.
  std::function<void(const EngineHealth&)> on_health;
  // Both run on an output thread of the engine, one at a time, and must return quickly.
};

class LLMEngine {
 public:
  // Loads everything that `config` names and returns when requests can be served.
  static Result<std::unique_ptr<LLMEngine>> create(const EngineConfig& config,
                                                   LLMEngineOptions options = {});
  // Stops after the step that is running; unfinished requests get no further callback.
  ~LLMEngine();

  // Stops likewise, but unfinished requests end with `why`, and so do later ones. By one thread,
  // which runs the callbacks.
  void stop(const Status& why);

  // Checks the request and queues it. `callback` runs on an output thread of the engine (there is
  // one for each copy of the model, of which one at a time calls back) and must return quickly; the
  // last call has output.finished. An error means that nothing was queued, and that `callback` is
  // never called. kUnavailable, from here or as the status of an output: the engine's process died
  // and is started again, see health().
  Result<RequestId> submit(const Prompt& prompt, SamplingParams sampling, OutputCallback callback);
  // The request ends with FinishReason::kAbort within a step. Unknown or finished ids are ignored.
  void abort(RequestId id);

  // Records what the core (of several the first) and its runner do, and writes it to a file of
  // profile_dir, which has to be set. `callback` runs on the engine's output thread once the
  // profile has begun, or once its file is written. An error means that nothing was asked for, and
  // that `callback` is never called: kInvalidArgument when one is recorded already, or none.
  Status start_profile(ProfileCallback callback);
  Status stop_profile(ProfileCallback callback);

  // Later requests share no cached prompt with earlier ones; running ones go on.
  void reset_prefix_cache() { cache_epoch_.fetch_add(1); }

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
  CoreReady memory() const;  // of one core
  // Null under skip_tokenizer_init.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  // Sums over all cores; counters go on over restarts.
  CoreStats stats() const;
  // With several cores ready while one is. The reason names those that are not.
  EngineHealth health() const;

 private:
  LLMEngine(ResolvedConfig config,
            GenerationConfig generation_config,
            std::shared_ptr<const Tokenizer> tokenizer);

  uint64_t draw_seed();
  Status control_profile(ProfileAction action, ProfileCallback callback);
  // Starts all cores at once and waits for them.
  Status start_cores(int64_t num_sampled_ids, const LLMEngineOptions& options);
  CoreHandlers handlers_of(int core, const LLMEngineOptions& options);
  void send_abort(std::span<const SequenceId> ids);
  // Called by the thread of the core's manager.
  void on_ready(int core, const CoreReady& ready);
  void on_step(int core, const StepOutput& step);
  void on_down(int core, const Status& lost, const Status& refusal);

  // What is known of a core.
  struct CoreFacts {
    CoreReady ready;
    CoreStats stats;    // of this life
    CoreStats earlier;  // sums of counters of those before
    EngineHealth health;
  };

  const ResolvedConfig config_;
  const GenerationConfig generation_config_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::atomic<uint64_t> cache_epoch_{0};  // of prompts that may share their cache
  OutputProcessor outputs_;
  ProfileControl profile_;
  std::atomic<uint64_t> next_request_id_{1};
  std::atomic<SequenceId> next_sequence_id_{1};
  // Held while a request is added and sent: either it is in time for on_down() to end it, or it is
  // refused. No callback runs under it.
  Mutex submit_mutex_;
  Status refusal_ GUARDED_BY(submit_mutex_);  // of requests while there is no core
  // Apart, because every step asks the router: tokens do not wait for requests that are being sent.
  // It may be taken while submit_mutex_ is held, not the other way round.
  Mutex router_mutex_;
  RequestRouter router_ GUARDED_BY(router_mutex_);
  // Held while callbacks run. It may be held when submit_mutex_ is taken, not the other way round.
  Mutex output_mutex_;
  mutable Mutex mutex_;
  std::mt19937_64 seeds_ GUARDED_BY(mutex_);
  std::vector<CoreFacts> facts_ GUARDED_BY(mutex_);  // by core
  // One for each core; last, since their threads use what is above.
  std::vector<std::unique_ptr<CoreManager>> managers_;
};

}  // namespace atom
