// Turns the deltas of engine cores into RequestOutputs: detokenizes, finds stop strings, and tells
// the caller of each request. One thread at a time calls process() and fail_all(), and callbacks
// run on it, without a lock held; the other methods may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "engine/messages.h"
#include "engine/request_output.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/stop_checker.h"
#include "tokenizer/tokenizer.h"

namespace atom {

// Called for every step that brought something for the request, last with output.finished true.
using OutputCallback =
    std::function<void(const RequestOutput& output, const RequestUpdate& update)>;

class OutputProcessor {
  struct Request;

 public:
  // A request that is not told of anything yet.
  using Entry = std::shared_ptr<Request>;

  // `tokenizer` may be null: then texts stay empty.
  explicit OutputProcessor(std::shared_ptr<const Tokenizer> tokenizer);

  // Answer i of the request has the sequence id sequence_ids[i].
  Entry prepare(RequestOutput output,
                const SamplingParams& sampling,
                std::span<const SequenceId> sequence_ids,
                OutputCallback callback) const;
  void add(Entry entry);

  // Returns the sequences that a stop string ended: the cores must abort them.
  std::vector<SequenceId> process(const StepOutput& step);

  // What the cores must abort to end this request; empty when it has finished.
  std::vector<SequenceId> unfinished_sequences(RequestId id) const;
  // The requests that have one of these sequences end with this error.
  void fail(std::span<const SequenceId> ids, const Status& status);
  // Every unfinished request ends with this error.
  void fail_all(const Status& status);

 private:
  struct Answer {
    SequenceId sequence_id = 0;
    // Both there with a tokenizer.
    std::optional<IncrementalDetokenizer> detokenizer;
    std::optional<StopStringMatcher> stops;
  };
  struct Request {
    RequestOutput output;
    std::vector<std::string> stop;  // SamplingParams::stop
    bool include_stop = false;      // SamplingParams::include_stop_str_in_output
    std::vector<Answer> answers;
    size_t num_unfinished = 0;
    OutputCallback callback;
  };
  struct Place {
    std::shared_ptr<Request> request;
    size_t index = 0;
  };

  Place find(SequenceId id) const;  // an empty place when it has finished
  // Applies one delta, at update->time; true when a stop string ended the answer.
  bool apply(Request& request, size_t index, const RequestDelta& delta, RequestUpdate* update);
  // `num_tokens` is lowered to those up to a stop string.
  bool append_text(Request& request,
                   size_t index,
                   const RequestDelta& delta,
                   size_t* num_tokens,
                   std::string* text);
  void finish_answer(Request& request, const RequestUpdate& update);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  mutable Mutex mutex_;
  // These hold what is unfinished.
  std::unordered_map<SequenceId, Place> places_ GUARDED_BY(mutex_);
  std::unordered_map<RequestId, std::shared_ptr<Request>> requests_ GUARDED_BY(mutex_);
};

}  // namespace atom
