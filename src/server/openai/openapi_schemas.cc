#include "server/openai/openapi_schemas.h"

namespace atom::server {

const std::string_view kCommonSchemas = R"json(
"Error": {
  "type": "object",
  "required": ["error"],
  "properties": {"error": {
    "type": "object",
    "required": ["message", "type", "param", "code"],
    "properties": {
      "message": {"type": "string", "description": "What is wrong, where, what would be right."},
      "type": {"type": "string"},
      "param": {"type": ["string", "null"], "description": "The field at fault."},
      "code": {"type": ["string", "null"]}
    }
  }}
},
"ServerSentEvent": {
  "type": "object",
  "description": "One event of a stream.",
  "required": ["data"],
  "properties": {
    "data": {
      "type": "string",
      "description": "A piece of the answer or an Error as JSON text; at the end [DONE]."
    },
    "event": {"type": "string"}
  }
},
"Usage": {
  "type": "object",
  "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
  "properties": {
    "prompt_tokens": {"type": "integer", "minimum": 0},
    "completion_tokens": {"type": "integer", "minimum": 0},
    "total_tokens": {"type": "integer", "minimum": 0},
    "prompt_tokens_details": {
      "type": ["object", "null"],
      "required": ["cached_tokens"],
      "properties": {"cached_tokens": {"type": "integer", "minimum": 0}}
    },
    "completion_tokens_details": {
      "type": ["object", "null"],
      "required": ["reasoning_tokens"],
      "properties": {"reasoning_tokens": {"type": "integer", "minimum": 0}}
    }
  }
},
"TokenIds": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}},
"StopReason": {
  "type": ["string", "integer", "null"],
  "description": "The stop string or stop token that ended the answer."
},
"PromptLogprobs": {
  "type": ["array", "null"],
  "description": "Per prompt token, by token id; null for the first.",
  "items": {
    "type": ["object", "null"],
    "additionalProperties": {
      "type": "object",
      "required": ["logprob", "rank", "decoded_token"],
      "properties": {
        "logprob": {"type": "number"},
        "rank": {"type": ["integer", "null"]},
        "decoded_token": {"type": ["string", "null"]}
      }
    }
  }
}
)json";

const std::string_view kErrorResponses = R"json({
"400": "The request is wrong: the error says which field, what it holds and what it may hold.",
"401": "The API key is missing or wrong.",
"404": "There is no such model or path.",
"405": "The path does not have this method.",
"408": "The request did not arrive in time.",
"413": "The body is too large.",
"415": "The body is not JSON by its Content-Type.",
"429": "Too many requests are waiting: try again later.",
"500": "The server failed.",
"503": "The server is starting or stopping."
})json";

}  // namespace atom::server
