#include "server/openai/responses_format.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "server/openai/answer_rule_kinds.h"

namespace atom::server {
namespace {

OrderedJson text_format_of(const AnswerRules& rules) {
  return rules.text_format != nullptr ? *rules.text_format : OrderedJson{{"type", "text"}};
}

using Emit = std::function<void(OrderedJson event)>;

OrderedJson text_part(const std::string& text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", OrderedJson::array()},
          {"logprobs", OrderedJson::array()}};
}

std::string dump(const OrderedJson& json) {
  return json_text(json);
}

}  // namespace

class ResponsesFormat::Items {
 public:
  explicit Items(const std::string& response_id) : response_id_(response_id) {}

  void add(const OutputDelta& delta, const Emit& emit) {
    if (!delta.reasoning.empty()) add_reasoning(delta.reasoning, emit);
    if (!delta.content.empty()) add_text(delta.content, emit);
    for (const ToolCallDelta& call : delta.tool_calls) add_call(call, emit);
  }

  // The answer is complete; one that says nothing has an empty message.
  void finish(const char* status, const Emit& emit) {
    if (items_.empty()) add_text("", emit);
    close(status, emit);
  }

  const OrderedJson& json() const { return items_; }

 private:
  enum class Kind { kNone, kReasoning, kMessage, kCall };

  size_t index() const { return items_.size() - 1; }
  OrderedJson& item() { return items_.back(); }

  std::string next_id(const char* prefix) const {
    return fmt::format("{}_{}_{}", prefix, response_id_, items_.size());
  }

  OrderedJson event(const char* type, bool has_content) {
    OrderedJson event = {{"type", type}, {"output_index", index()}, {"item_id", item()["id"]}};
    if (has_content) event["content_index"] = 0;
    return event;
  }

  void open(Kind kind, OrderedJson item, const Emit& emit) {
    close("completed", emit);
    kind_ = kind;
    items_.push_back(std::move(item));
    emit({{"type", "response.output_item.added"},
          {"output_index", index()},
          {"item", this->item()}});
  }

  void add_reasoning(const std::string& text, const Emit& emit) {
    if (kind_ != Kind::kReasoning) {
      open(Kind::kReasoning,
           {{"type", "reasoning"},
            {"id", next_id("rs")},
            {"summary", OrderedJson::array()},
            {"content", OrderedJson::array()},
            {"status", "in_progress"}},
           emit);
    }
    text_ += text;
    OrderedJson delta = event("response.reasoning_text.delta", true);
    delta["delta"] = text;
    emit(std::move(delta));
  }

  void add_text(const std::string& text, const Emit& emit) {
    if (kind_ != Kind::kMessage) {
      open(Kind::kMessage,
           {{"type", "message"},
            {"id", next_id("msg")},
            {"status", "in_progress"},
            {"role", "assistant"},
            {"content", OrderedJson::array()}},
           emit);
      OrderedJson part = event("response.content_part.added", true);
      part["part"] = text_part("");
      emit(std::move(part));
    }
    if (text.empty()) return;
    text_ += text;
    OrderedJson delta = event("response.output_text.delta", true);
    delta["delta"] = text;
    delta["logprobs"] = OrderedJson::array();
    emit(std::move(delta));
  }

  void add_call(const ToolCallDelta& call, const Emit& emit) {
    if (kind_ != Kind::kCall || call_index_ != call.index) {
      open(Kind::kCall,
           {{"type", "function_call"},
            {"id", next_id("fc")},
            {"call_id", call.id},
            {"name", call.name},
            {"arguments", ""},
            {"status", "in_progress"}},
           emit);
      call_index_ = call.index;
    }
    if (call.arguments.empty()) return;
    text_ += call.arguments;
    OrderedJson delta = event("response.function_call_arguments.delta", false);
    delta["delta"] = call.arguments;
    emit(std::move(delta));
  }

  void close_text(const Emit& emit) {
    OrderedJson done = event("response.output_text.done", true);
    done["text"] = text_;
    done["logprobs"] = OrderedJson::array();
    emit(std::move(done));
    item()["content"].push_back(text_part(text_));
    OrderedJson part = event("response.content_part.done", true);
    part["part"] = item()["content"][0];
    emit(std::move(part));
  }

  void close(const char* status, const Emit& emit) {
    if (kind_ == Kind::kNone) return;
    if (kind_ == Kind::kMessage) {
      close_text(emit);
    } else if (kind_ == Kind::kReasoning) {
      OrderedJson done = event("response.reasoning_text.done", true);
      done["text"] = text_;
      emit(std::move(done));
      item()["content"].push_back({{"type", "reasoning_text"}, {"text", text_}});
    } else {
      item()["arguments"] = text_;
      OrderedJson done = event("response.function_call_arguments.done", false);
      done["name"] = item()["name"];
      done["arguments"] = text_;
      emit(std::move(done));
    }
    item()["status"] = status;
    emit({{"type", "response.output_item.done"}, {"output_index", index()}, {"item", item()}});
    kind_ = Kind::kNone;
    text_.clear();
  }

  const std::string response_id_;
  OrderedJson items_ = OrderedJson::array();
  Kind kind_ = Kind::kNone;  // of the last item while it grows
  int32_t call_index_ = -1;
  std::string text_;  // of that item
};

ResponsesFormat::ResponsesFormat(const std::string& id,
                                 int64_t created,
                                 ResponsesRequest echo,
                                 PreparedChat chat,
                                 const OutputFormat& output_format,
                                 Keep keep)
    : id_(id),
      created_(created),
      echo_(std::move(echo)),
      keep_(std::move(keep)),
      model_(std::move(chat.model)),
      request_(std::move(chat.request)),
      parser_(make_answer_parser(
          output_format, chat.prompt.text, request_, std::hash<std::string>()(id))),
      reasoning_(std::move(chat.tokenizer),
                 request_.sampling,
                 make_answer_parser(output_format, chat.prompt.text, request_, 0)),
      items_(std::make_unique<Items>(id.substr(id.find('_') + 1))) {}

ResponsesFormat::~ResponsesFormat() = default;

OrderedJson ResponsesFormat::response(const char* status, const Usage* usage) const {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? OrderedJson() : OrderedJson(text);
  };
  const SamplingParams& sampling = request_.sampling;
  OrderedJson json = {{"id", id_},
                      {"object", "response"},
                      {"created_at", created_},
                      {"status", status},
                      {"error", nullptr},
                      {"incomplete_details", nullptr},
                      {"instructions", text_or_null(echo_.instructions)},
                      {"max_output_tokens", nullptr},
                      {"model", model_},
                      {"output", items_->json()},
                      {"parallel_tool_calls", request_.parallel_tool_calls},
                      {"previous_response_id", text_or_null(echo_.previous_response_id)},
                      {"reasoning", {{"effort", text_or_null(echo_.effort)}, {"summary", nullptr}}},
                      {"store", echo_.store},
                      {"temperature", sampling.temperature},
                      {"text", {{"format", text_format_of(request_.rules)}}},
                      {"tool_choice", tool_choice_json(request_.tool_choice)},
                      {"tools", OrderedJson::array()},
                      {"top_p", sampling.top_p},
                      {"truncation", "disabled"},
                      {"usage", nullptr},
                      {"user", text_or_null(request_.user)},
                      {"metadata", *echo_.metadata}};
  if (request_.has_max_tokens) json["max_output_tokens"] = sampling.max_tokens;
  if (echo_.tools != nullptr) json["tools"] = *echo_.tools;
  if (is_cut_) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  if (usage != nullptr) {
    json["usage"] = {
        {"input_tokens", usage->prompt_tokens},
        {"input_tokens_details", {{"cached_tokens", usage->cached_tokens.value_or(0)}}},
        {"output_tokens", usage->completion_tokens},
        {"output_tokens_details", {{"reasoning_tokens", reasoning_.count()}}},
        {"total_tokens", usage->prompt_tokens + usage->completion_tokens}};
  }
  return json;
}

void ResponsesFormat::append_event(OrderedJson event, std::string* out) {
  event["sequence_number"] = num_events_++;
  *out += "event: " + event["type"].get_ref<const std::string&>() + "\ndata: ";
  *out += dump(event) + "\n\n";
}

void ResponsesFormat::append_events(int32_t,
                                    const ChoiceNews& news,
                                    const Usage*,
                                    std::string* out) {
  if (num_events_ == 0) {
    for (const char* type : {"response.created", "response.in_progress"}) {
      append_event({{"type", type}, {"response", response("in_progress", nullptr)}}, out);
    }
  }
  const Emit emit = [&](OrderedJson event) { append_event(std::move(event), out); };
  reasoning_.add(news.token_ids);
  items_->add(parse_news(*parser_, request_, news), emit);
  if (news.finish_reason == FinishReason::kNone) return;
  is_cut_ = news.finish_reason == FinishReason::kLength;
  items_->finish(status(), emit);
}

void ResponsesFormat::append_usage_event(const Usage& usage, std::string* out) {
  if (keep_) keep_(items_->json());
  append_event(
      {{"type", fmt::format("response.{}", status())}, {"response", response(status(), &usage)}},
      out);
}

void ResponsesFormat::append_error(const ApiError& error, std::string* out) {
  OrderedJson failed = response("failed", nullptr);
  failed["error"] = {{"code", "server_error"}, {"message", error.message}};
  append_event({{"type", "response.failed"}, {"response", std::move(failed)}}, out);
}

std::string ResponsesFormat::body(std::span<const RequestOutput> outputs, const Usage& usage) {
  const ChoiceNews news = all_of(outputs.front().outputs.front());
  const Emit drop = [](const OrderedJson&) {};
  reasoning_.add(news.token_ids);
  items_->add(parse_news(*parser_, request_, news), drop);
  is_cut_ = news.finish_reason == FinishReason::kLength;
  items_->finish(status(), drop);
  if (keep_) keep_(items_->json());
  return dump(response(status(), &usage));
}

}  // namespace atom::server
