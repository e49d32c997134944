// What a request asks of the form of its answer, read: the one place where the names that clients
// have for it meet. Schemas, expressions and grammars are checked here, before anything runs.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "server/openai/api_error.h"
#include "server/openai/requests.h"

namespace atom::server {

// The format of structural tags that the answer's content has to have; nothing: any text. False
// when the rules are wrong, contradict each other, or cannot be enforced: then `error` says so.
bool read_answer_rules(const AnswerRules& rules,
                       std::optional<OrderedJson>* format,
                       ApiError* error);

// For a completion, whose answer is content alone: sets sampling.structural_tag.
bool constrain_completion(const AnswerRules& rules, SamplingParams* sampling, ApiError* error);

// A status of structured_output/ as an error of the request: its message begins with the field.
ApiError rule_error(const Status& status);

}  // namespace atom::server
