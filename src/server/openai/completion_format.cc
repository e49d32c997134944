#include "server/openai/completion_format.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/llm_engine.h"
#include "server/json_text.h"

namespace atom::server {
namespace {

// The mean log-probability of an answer's tokens; 0 without any.
double mean_logprob(const CompletionOutput& answer) {
  double sum = 0;
  for (const TokenLogprobs& token : answer.logprobs) sum += token.front().logprob;
  return answer.logprobs.empty() ? 0 : sum / static_cast<double>(answer.logprobs.size());
}

// The answers by mean log-probability, the best first.
std::vector<const CompletionOutput*> ranked(const RequestOutput& output, bool by_logprob) {
  std::vector<const CompletionOutput*> answers;
  for (const CompletionOutput& answer : output.outputs) answers.push_back(&answer);
  if (by_logprob) {
    std::ranges::stable_sort(answers, std::ranges::greater(), [](const CompletionOutput* answer) {
      return mean_logprob(*answer);
    });
  }
  return answers;
}

}  // namespace

CompletionFormat::CompletionFormat(const std::string& id,
                                   int64_t created,
                                   const std::string& model,
                                   const std::string& fingerprint,
                                   CompletionRequest&& request,
                                   std::vector<CompletionPrompt> prompts,
                                   const Tokenizer* tokenizer)
    : request_(std::move(request)),
      prompts_(std::move(prompts)),
      head_(answer_head(id, "text_completion", created, model, fingerprint)),
      tokenizer_(tokenizer),
      spelling_(tokenizer, request_.return_tokens_as_token_ids),
      choices_(prompts_.size() * request_.sampling.n) {}

void CompletionFormat::append_events(int32_t choice,
                                     const ChoiceNews& news,
                                     const Usage* usage,
                                     std::string* out) {
  *out += "data: ";
  *out += head_;
  append_choice(choice, news, out);
  out->push_back(']');
  if (usage != nullptr) {
    *out += ",\"usage\":";
    append_usage(out, *usage);
  }
  *out += "}\n\n";
}

void CompletionFormat::append_usage_event(const Usage& usage, std::string* out) {
  *out += "data: " + head_ + "],\"usage\":";
  append_usage(out, usage);
  *out += "}\n\n";
}

std::string CompletionFormat::body(std::span<const RequestOutput> outputs, const Usage& usage) {
  std::string out = head_;
  int32_t index = 0;
  for (const RequestOutput& output : outputs) {
    const bool by_logprob = request_.best_of.value_or(0) > request_.sampling.n;
    const std::vector<const CompletionOutput*> answers = ranked(output, by_logprob);
    for (int32_t i = 0; i < request_.sampling.n; ++i, ++index) {
      ChoiceNews news = all_of(*answers[i]);
      const bool echoes_logprobs = request_.echo && request_.logprobs;
      if (i == 0 || echoes_logprobs) news.prompt_logprobs = output.prompt_logprobs;
      if (index > 0) out.push_back(',');
      append_choice(index, news, &out);
    }
  }
  out += "],\"usage\":";
  append_usage(&out, usage);
  out.push_back('}');
  return out;
}

void CompletionFormat::append_choice(int32_t index, const ChoiceNews& news, std::string* out) {
  Choice& choice = choices_[index];
  const CompletionPrompt& prompt = prompts_[index / request_.sampling.n];
  const bool begins = !std::exchange(choice.has_begun, true);
  *out += "{\"index\":";
  append_json_integer(out, index);
  *out += ",\"text\":";
  if (begins && request_.echo) {
    append_json_string(out, prompt.text + news.text);
  } else {
    append_json_string(out, news.text);
  }
  *out += ",\"logprobs\":";
  if (request_.logprobs) {
    append_logprobs(choice, begins ? prompt : CompletionPrompt(), news, out);
  } else {
    *out += "null";
  }
  *out += ",\"finish_reason\":";
  if (news.finish_reason == FinishReason::kNone) {
    *out += "null,\"stop_reason\":null";
  } else {
    append_json_string(out, finish_reason_name(news.finish_reason));
    append_stop_reason(out, news.stop_string, news.stop_token_id, request_.sampling.stop_token_ids);
  }
  if (begins && request_.sampling.prompt_logprobs) {
    // The same for all answers to a prompt: with the first.
    *out += ",\"prompt_logprobs\":";
    if (index % request_.sampling.n == 0) {
      append_prompt_logprobs(news.prompt_logprobs, tokenizer_, out);
    } else {
      *out += "null";
    }
  }
  if (request_.return_token_ids) {
    if (begins) {
      *out += ",\"prompt_token_ids\":";
      append_json_integers(out, prompt.token_ids);
    }
    *out += ",\"token_ids\":";
    append_json_integers(out, news.token_ids);
  }
  out->push_back('}');
}

void CompletionFormat::append_logprobs(Choice& choice,
                                       const CompletionPrompt& prompt,
                                       const ChoiceNews& news,
                                       std::string* out) const {
  const auto append = [&](int32_t token_id, const TokenLogprobs& entries) {
    const std::string text = spelling_.text(token_id, request_.sampling.skip_special_tokens);
    choice.logprobs.append(token_id, text, entries, spelling_);
  };
  if (request_.echo) {
    for (size_t i = 0; i < prompt.token_ids.size(); ++i) {
      const bool known = i > 0 && i - 1 < news.prompt_logprobs.size();
      append(prompt.token_ids[i], known ? news.prompt_logprobs[i - 1] : TokenLogprobs());
    }
  }
  for (size_t i = 0; i < news.logprobs.size(); ++i) append(news.token_ids[i], news.logprobs[i]);
  choice.logprobs.flush(out);
}

}  // namespace atom::server
