// Answers of the Responses API: a list of items (reasoning, a message, calls), and the events that
// build it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "server/openai/answer_format.h"
#include "server/openai/chat_generation.h"
#include "server/openai/reasoning_counter.h"
#include "server/openai/responses_request.h"

namespace atom::server {

class ResponsesFormat final : public AnswerFormat {
 public:
  // Told of the items of a complete answer.
  using Keep = std::function<void(const OrderedJson& items)>;

  // `id`: "resp_...". `echo`: the request less its conversation. `keep`: may be null. The output
  // format outlives this.
  ResponsesFormat(const std::string& id,
                  int64_t created,
                  ResponsesRequest echo,
                  PreparedChat chat,
                  const OutputFormat& output_format,
                  Keep keep);
  ~ResponsesFormat() override;

  void append_events(int32_t choice,
                     const ChoiceNews& news,
                     const Usage* usage,
                     std::string* out) override;
  // The last event, which has the whole response.
  void append_usage_event(const Usage& usage, std::string* out) override;
  void append_end(std::string*) override {}
  void append_error(const ApiError& error, std::string* out) override;
  std::string body(std::span<const RequestOutput> outputs, const Usage& usage) override;

 private:
  class Items;  // the output so far, and the events that say what is new of it

  OrderedJson response(const char* status, const Usage* usage) const;
  void append_event(OrderedJson event, std::string* out);
  const char* status() const { return is_cut_ ? "incomplete" : "completed"; }

  const std::string id_;
  const int64_t created_;
  const ResponsesRequest echo_;
  const Keep keep_;
  const std::string model_;
  const ChatCompletionRequest request_;
  const std::unique_ptr<OutputParser> parser_;
  ReasoningCounter reasoning_;
  const std::unique_ptr<Items> items_;
  int64_t num_events_ = 0;
  bool is_cut_ = false;  // the answer ended at its limit
};

}  // namespace atom::server
