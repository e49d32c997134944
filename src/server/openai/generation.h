// Carries one HTTP request through the engine: submits its prompts, collects what they bring, and
// gives it to the client as one body or as server-sent events. Ends the engine's work when the
// client goes away. Lives as long as one of exchange, engine callbacks or workers refers to it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/llm_engine.h"
#include "server/observed_exchange.h"
#include "server/openai/answer_format.h"
#include "server/openai/requests.h"
#include "server/server_context.h"

namespace atom::server {

struct GenerationPlan {
  std::vector<std::vector<int32_t>> prompts;  // token ids, at least one
  SamplingParams sampling;                    // n answers for each prompt
  bool stream = false;
  StreamOptions stream_options;
  std::unique_ptr<AnswerFormat> format;
  Places ticket;
};

class Generation final : public BodyStream, public std::enable_shared_from_this<Generation> {
 public:
  // Submits everything; the exchange is answered in any case. On a worker's thread.
  static void start(ServerContext* context,
                    std::shared_ptr<ObservedExchange> exchange,
                    GenerationPlan plan);

  State take(std::string* out) override;
  std::string_view keep_alive() const override { return ": keep-alive\n\n"; }

 private:
  // One of the answers: choice = prompt * n + answer.
  struct Choice {
    ChoiceNews news;
    bool has_news = false;
    double last_token_time = 0;
    // Until the prompt's logprobs are there, which come with the first answer.
    bool is_held = false;
    bool has_prompt_logprobs = false;
    int64_t num_generated = 0;  // tokens
  };
  struct Prompt {
    bool is_computed = false;  // its first token has come
    int64_t num_cached = 0;    // of its tokens, once it has finished
  };

  Generation(ServerContext* context,
             std::shared_ptr<ObservedExchange> exchange,
             GenerationPlan plan);

  static Status apply_key(const Caller& caller, SamplingParams* sampling);
  // Whether the part of the answer that is known in advance is within bounds.
  Status check_size() const;
  Status submit_all();
  void on_output(size_t prompt, const RequestOutput& output, const RequestUpdate& update);
  void take_output(size_t prompt, const RequestOutput& output, const RequestUpdate& update);
  // Adds up what the answer will hold.
  void count_bytes(const RequestUpdate& update, const CompletionOutput& answer) REQUIRES(mutex_);
  void collect_news(size_t prompt, const RequestOutput& output, const RequestUpdate& update)
      REQUIRES(mutex_);
  void release_news(size_t prompt, const RequestOutput& output) REQUIRES(mutex_);
  void observe(size_t prompt, const RequestOutput& output, const RequestUpdate& update)
      REQUIRES(mutex_);
  void finish_prompt(size_t prompt, const RequestOutput& output) REQUIRES(mutex_);
  // Ends the engine's work; later outputs are dropped.
  void cancel();
  void fail(const Status& status);
  void respond();
  Usage usage() const REQUIRES(mutex_);
  bool includes_usage() const;  // at the end of the stream

  ServerContext* const context_;
  const std::shared_ptr<ObservedExchange> exchange_;
  const std::vector<std::vector<int32_t>> prompts_;
  const SamplingParams sampling_;
  const bool stream_;
  const StreamOptions stream_options_;
  const std::unique_ptr<AnswerFormat> format_;  // of whoever writes: take(), or the last worker

  Mutex mutex_;
  Places ticket_ GUARDED_BY(mutex_);
  std::vector<RequestId> ids_ GUARDED_BY(mutex_);  // of the submitted prompts
  std::vector<Choice> choices_ GUARDED_BY(mutex_);
  // Outputs of finished prompts, when not streamed.
  std::vector<RequestOutput> outputs_ GUARDED_BY(mutex_);
  std::vector<Prompt> progress_ GUARDED_BY(mutex_);  // of prompts_
  size_t num_finished_ GUARDED_BY(mutex_) = 0;       // prompts
  size_t buffered_ GUARDED_BY(mutex_) = 0;           // bytes of news, about
  size_t num_answer_bytes_ GUARDED_BY(mutex_) = 0;   // of an answer that is not streamed, about
  bool cancelled_ GUARDED_BY(mutex_) = false;
  Status failure_ GUARDED_BY(mutex_);
};

}  // namespace atom::server
