// Arbitrary bytes as each request body: a request in the ranges of the engine, or a short,
// printable error.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "server/openai/field_error.h"
#include "server/openai/parse_requests.h"

namespace {

using namespace atom;
using namespace atom::server;

constexpr size_t kMaxMessageBytes = 4000;
constexpr size_t kMaxParamBytes = 1000;

template <typename T>
const T* check(const Parsed<T>& parsed) {
  const auto* error = std::get_if<ApiError>(&parsed);
  if (error == nullptr) return &std::get<T>(parsed);
  CHECK(error->http_status == 400);
  CHECK(!error->message.empty());
  CHECK(error->message.size() <= kMaxMessageBytes);
  CHECK(error->param.size() <= kMaxParamBytes);
  // Throws on text that is not UTF-8.
  const std::string message = OrderedJson(error->message).dump();
  const std::string param = OrderedJson(error->param).dump();
  CHECK(!OrderedJson::parse(error_json(*error)).empty());
  return nullptr;
}

void check_generation(const GenerationRequest& request) {
  SamplingParams sampling = request.sampling;
  if (!request.has_max_tokens) sampling.max_tokens = INT32_MAX;
  const Status status = sampling.validate(int64_t{1} << 31);
  CHECK(status.ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto completion = parse_completion_request(body, {});
  if (const CompletionRequest* request = check(completion)) {
    check_generation(*request);
    CHECK(!request->prompts.empty());
  }
  const auto chat = parse_chat_completion_request(body, {});
  if (const ChatCompletionRequest* request = check(chat)) {
    check_generation(*request);
    CHECK(request->messages->is_array());
    CHECK(!request->messages->empty());
    for (const OrderedJson& message : *request->messages) CHECK(message["role"].is_string());
    if (request->tools != nullptr) CHECK(!request->tools->empty());
  }
  const auto tokenize = parse_tokenize_request(body);
  if (const TokenizeRequest* request = check(tokenize)) {
    CHECK(request->prompt.has_value() != (request->messages != nullptr));
  }
  const auto detokenize = parse_detokenize_request(body);
  if (const DetokenizeRequest* request = check(detokenize)) {
    for (int32_t id : request->tokens) CHECK(id >= 0);
  }
  return 0;
}
