#include "server/openai/openapi_schemas.h"

namespace atom::server {

const std::string_view kAnswerSchemas = R"json({
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
},
"CompletionLogprobs": {
  "type": "object",
  "required": ["text_offset", "token_logprobs", "tokens", "top_logprobs"],
  "properties": {
    "text_offset": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "token_logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
    "tokens": {"type": "array", "items": {"type": "string"}},
    "top_logprobs": {"type": "array", "items": {
      "type": ["object", "null"], "additionalProperties": {"type": "number"}}}
  }
},
"CompletionChoice": {
  "type": "object",
  "required": ["index", "text", "logprobs", "finish_reason"],
  "properties": {
    "index": {"type": "integer", "minimum": 0},
    "text": {"type": "string"},
    "logprobs": {"anyOf": [{"$ref": "#/components/schemas/CompletionLogprobs"}, {"type": "null"}]},
    "finish_reason": {"enum": ["stop", "length", "abort", null]},
    "stop_reason": {"$ref": "#/components/schemas/StopReason"},
    "prompt_logprobs": {"$ref": "#/components/schemas/PromptLogprobs"},
    "token_ids": {"$ref": "#/components/schemas/TokenIds"},
    "prompt_token_ids": {"$ref": "#/components/schemas/TokenIds"}
  }
},
"Completion": {
  "type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {
    "id": {"type": "string"},
    "object": {"const": "text_completion"},
    "created": {"type": "integer"},
    "model": {"type": "string"},
    "choices": {"type": "array", "items": {"$ref": "#/components/schemas/CompletionChoice"}},
    "usage": {"$ref": "#/components/schemas/Usage"}
  }
},
"TokenLogprob": {
  "type": "object",
  "required": ["token", "logprob", "bytes"],
  "properties": {
    "token": {"type": "string"},
    "logprob": {"type": "number"},
    "bytes": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0, "maximum": 255}}
  }
},
"ChatLogprobs": {
  "type": "object",
  "required": ["content"],
  "properties": {"content": {"type": ["array", "null"], "items": {
    "allOf": [{"$ref": "#/components/schemas/TokenLogprob"}],
    "required": ["top_logprobs"],
    "properties": {
      "top_logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}
    }
  }}}
},
"ToolCall": {
  "type": "object",
  "required": ["id", "type", "function"],
  "properties": {
    "id": {"type": "string"},
    "type": {"const": "function"},
    "function": {
      "type": "object",
      "required": ["name", "arguments"],
      "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}}
    }
  }
},
"ChatAnswer": {
  "type": "object",
  "required": ["role", "content"],
  "properties": {
    "role": {"type": "string"},
    "content": {"type": ["string", "null"]},
    "refusal": {"type": "null"},
    "reasoning": {"type": ["string", "null"]},
    "reasoning_content": {"type": ["string", "null"]},
    "tool_calls": {"type": "array", "items": {"$ref": "#/components/schemas/ToolCall"}}
  }
},
"ChatChoice": {
  "type": "object",
  "required": ["index", "message", "logprobs", "finish_reason"],
  "properties": {
    "index": {"type": "integer", "minimum": 0},
    "message": {"$ref": "#/components/schemas/ChatAnswer"},
    "logprobs": {"anyOf": [{"$ref": "#/components/schemas/ChatLogprobs"}, {"type": "null"}]},
    "finish_reason": {"enum": ["stop", "length", "tool_calls", "abort", null]},
    "stop_reason": {"$ref": "#/components/schemas/StopReason"},
    "token_ids": {"$ref": "#/components/schemas/TokenIds"}
  }
},
"ChatCompletion": {
  "type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {
    "id": {"type": "string"},
    "object": {"const": "chat.completion"},
    "created": {"type": "integer"},
    "model": {"type": "string"},
    "choices": {"type": "array", "items": {"$ref": "#/components/schemas/ChatChoice"}},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "prompt_logprobs": {"$ref": "#/components/schemas/PromptLogprobs"},
    "prompt_token_ids": {"$ref": "#/components/schemas/TokenIds"}
  }
},
"Tokens": {
  "type": "object",
  "required": ["count", "max_model_len", "tokens", "token_strs"],
  "properties": {
    "count": {"type": "integer", "minimum": 0},
    "max_model_len": {"type": "integer", "minimum": 1},
    "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}
  }
},
"Text": {
  "type": "object",
  "required": ["prompt"],
  "properties": {"prompt": {"type": "string"}}
},
"Model": {
  "type": "object",
  "required": ["id", "object", "created", "owned_by"],
  "properties": {
    "id": {"type": "string"},
    "object": {"const": "model"},
    "created": {"type": "integer"},
    "owned_by": {"type": "string"},
    "root": {"type": ["string", "null"]},
    "parent": {"type": ["string", "null"]},
    "max_model_len": {"type": ["integer", "null"]},
    "permission": {"type": "array"}
  }
},
"ModelList": {
  "type": "object",
  "required": ["object", "data"],
  "properties": {
    "object": {"const": "list"},
    "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}
  }
},
"Version": {
  "type": "object",
  "required": ["version"],
  "properties": {"version": {"type": "string"}}
},
"ProfileStarted": {
  "type": "object",
  "required": ["status"],
  "properties": {"status": {"const": "started"}}
},
"ProfileStopped": {
  "type": "object",
  "required": ["status", "file", "spans", "dropped_spans"],
  "properties": {
    "status": {"const": "stopped"},
    "file": {"type": "string", "description": "The file's path on the server's machine."},
    "spans": {"type": "integer", "minimum": 0},
    "dropped_spans": {
      "type": "integer",
      "minimum": 0,
      "description": "The latest, which came when the profile was full."
    }
  }
}
})json";

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
