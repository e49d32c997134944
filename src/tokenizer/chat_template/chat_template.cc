#include "tokenizer/chat_template/chat_template.h"

#include <ctime>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "base/utf8.h"
#include "tokenizer/chat_template/evaluator.h"
#include "tokenizer/chat_template/json_value.h"
#include "tokenizer/chat_template/parser.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/template_traits.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom {
namespace {

// A message may quote what the template made, which may be long.
constexpr size_t kMaxMessageSize = 2000;

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

Status status_of(const jinja::TemplateError& error, const std::string& name, int line) {
  if (error.line() > 0) line = error.line();
  std::string_view message = error.what();
  if (message.size() > kMaxMessageSize) {
    size_t size = kMaxMessageSize;
    while (size > 0 && (message[size] & 0xC0) == 0x80) --size;  // not inside of a code point
    message = message.substr(0, size);
  }
  return {error.code(), fmt::format("chat template {}, line {}: {}", name, line, message)};
}

jinja::Value optional_value(jinja::Heap& heap, const OrderedJson* json) {
  return json != nullptr ? jinja::value_from_json(heap, *json) : jinja::Value::none();
}

// Sets the variables among `names`, those the template reads: the caller may send many more.
void set_variables(const ChatTemplateInput& input,
                   const std::set<std::string>& names,
                   jinja::Heap& heap,
                   jinja::Evaluator* evaluator) {
  evaluator->set_variable("messages", jinja::value_from_json(heap, *input.messages));
  evaluator->set_variable("tools", optional_value(heap, input.tools));
  evaluator->set_variable("documents", optional_value(heap, input.documents));
  evaluator->set_variable("add_generation_prompt",
                          jinja::Value::boolean(input.add_generation_prompt));
  for (const auto& [name, token] : input.special_tokens) {
    if (names.contains(name)) evaluator->set_variable(name, jinja::Value::literal(token));
  }
  if (input.extra == nullptr) return;
  for (const auto& [name, value] : input.extra->get_ref<const OrderedJson::object_t&>()) {
    if (names.contains(name)) evaluator->set_variable(name, jinja::value_from_json(heap, value));
  }
}

}  // namespace

struct ChatTemplate::Program {
  std::string name;
  ChatTemplateLimits limits;
  jinja::Body body;
  ChatTemplateTraits traits;
  std::set<std::string> names;
};

ChatTemplate::ChatTemplate(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source,
                                         std::string name,
                                         const ChatTemplateLimits& limits) {
  if (source.size() > limits.max_template_size) {
    return resource_exhausted("chat template {}: {} bytes are over the limit of {}",
                              name,
                              source.size(),
                              limits.max_template_size);
  }
  if (!is_valid_utf8(source)) {
    return invalid_argument("chat template {}: the source is not valid UTF-8", name);
  }
  auto program = std::make_shared<Program>();
  try {
    program->body = jinja::parse_template(source);
  } catch (const jinja::TemplateError& error) {
    return status_of(error, name, 1);
  }
  program->traits = jinja::find_traits(program->body);
  program->names = jinja::find_names(program->body);
  program->name = std::move(name);
  program->limits = limits;
  return ChatTemplate(std::move(program));
}

Result<std::string> ChatTemplate::render(const ChatTemplateInput& input,
                                         const std::atomic<bool>* cancelled) const {
  const std::string& name = program_->name;
  if (input.messages == nullptr || !input.messages->is_array()) {
    return invalid_argument("chat template {}: messages must be an array", name);
  }
  if (input.extra != nullptr && !input.extra->is_object()) {
    return invalid_argument("chat template {}: template arguments must be an object", name);
  }
  jinja::Heap heap(program_->limits, cancelled);
  jinja::Context context{heap, input.now ? *input.now : local_time()};
  jinja::Evaluator evaluator(&context);
  try {
    set_variables(input, program_->names, heap, &evaluator);
    return evaluator.run(program_->body);
  } catch (const jinja::TemplateError& error) {
    return status_of(error, name, std::max(1, evaluator.line()));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("chat template {}: out of memory", name);
  }
}

const std::string& ChatTemplate::name() const {
  return program_->name;
}

const ChatTemplateTraits& ChatTemplate::traits() const {
  return program_->traits;
}

bool ChatTemplate::uses_variable(std::string_view name) const {
  return program_->names.contains(std::string(name));
}

}  // namespace atom
