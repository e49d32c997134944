// An endpoint: what answers a route, and what the OpenAPI document says of it. One file each, which
// has the schemas of request and answer, too; routes.cc lists them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/observed_exchange.h"
#include "server/openai/api_error.h"
#include "server/openai/openapi.h"
#include "server/openai/requests.h"
#include "server/server_context.h"

namespace atom::server {

using ExchangePtr = std::shared_ptr<ObservedExchange>;

// Defined in the endpoint's file, constant-initialized.
struct Endpoint {
  // Answers the exchange, now or later.
  void (*answer)(ServerContext* context, const ExchangePtr& exchange);
  ApiOperation operation;
};

extern const Endpoint kCompletions;
extern const Endpoint kChatCompletions;
extern const Endpoint kRenderChat;
extern const Endpoint kResponses;
extern const Endpoint kMessages;
extern const Endpoint kCountTokens;
extern const Endpoint kTokenize;
extern const Endpoint kDetokenize;
extern const Endpoint kTokenizerInfo;
extern const Endpoint kListModels;
extern const Endpoint kRetrieveModel;
extern const Endpoint kStartProfile;
extern const Endpoint kStopProfile;
extern const Endpoint kLivez;
extern const Endpoint kReadyz;
extern const Endpoint kHealth;
extern const Endpoint kPing;
extern const Endpoint kPingPost;
extern const Endpoint kLoad;
extern const Endpoint kResetPrefixCache;
extern const Endpoint kVersion;
extern const Endpoint kMetrics;
extern const Endpoint kOpenApi;

// What several of them do.
// The request's path without --root-path.
std::string_view route_path(const ServerContext& context, const HttpRequest& request);

void respond_error(const ExchangePtr& exchange, const ApiError& error);
void respond_error(const ExchangePtr& exchange, const Status& status);
void respond_json(const ExchangePtr& exchange, std::string body);
// Answers 404 and returns false when `model` is given and not served; the error lists what is.
bool check_model(const ServerContext& context,
                 const std::string& model,
                 const ExchangePtr& exchange);
// Answers 400 and returns false when the request brings a template of its own, which may cost much,
// and the server does not trust its clients with it.
bool check_chat_template(const ServerContext& context,
                         const std::string& chat_template,
                         const ExchangePtr& exchange);
// Answers and returns false when the text cannot be tokenized: 400, before all of it is looked at,
// when it is too long to leave room for an answer and the request does not cut it.
// `prompt_field`: where it came from.
bool tokenize_prompt(const ServerContext& context,
                     const std::string& text,
                     bool add_special_tokens,
                     const GenerationRequest& request,
                     const char* prompt_field,
                     std::vector<int32_t>* ids,
                     const ExchangePtr& exchange);
// Cuts the beginning of a prompt off as far as the request's truncate_prompt_tokens says.
void truncate_prompt(const ServerContext& context,
                     const GenerationRequest& request,
                     std::vector<int32_t>* token_ids);
// Answers 400 and returns false when prompt and answer do not fit max_model_len together.
// `prompt_field`: where the prompt came from.
bool check_length(const ServerContext& context,
                  size_t num_prompt_tokens,
                  const GenerationRequest& request,
                  const char* prompt_field,
                  const ExchangePtr& exchange);
// Answers 429 and returns false when so many sequences more are too many, for the server or for the
// caller.
bool admit(ServerContext* context,
           int64_t num_sequences,
           Places* places,
           const ExchangePtr& exchange);
// Answers 429: a quota of the API key is used up.
void refuse_rate(ServerContext* context,
                 const ExchangePtr& exchange,
                 int retry_after,  // seconds
                 std::string message);
void refuse_queue_full(ServerContext* context, const ExchangePtr& exchange);
// "<kind>-<the request's id>".
std::string answer_id(const char* kind,
                      const HttpExchange& exchange,
                      const std::string& request_id);

}  // namespace atom::server
