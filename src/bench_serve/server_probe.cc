#include "bench_serve/server_probe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_text.h"
#include "bench_serve/http_fetch.h"
#include "bench_serve/length_distribution.h"
#include "bench_serve/random.h"
#include "bench_serve/random_prompts.h"
#include "bench_serve/words.h"

namespace atom::bench_serve {
namespace {

constexpr double kTimeout = 30;         // seconds for a question
constexpr double kAnswerTimeout = 300;  // seconds where the model has to run
constexpr size_t kMinIds = 64;

bool is_interrupt(const Status& status) {
  return status.code() == StatusCode::kAborted;
}

int32_t length_field(const Json& json, const char* name) {
  if (!json.is_object()) return 0;
  const auto field = json.find(name);
  if (field == json.end() || !field->is_number_unsigned()) return 0;
  return static_cast<int32_t>(std::min<uint64_t>(field->get<uint64_t>(), INT32_MAX));
}

std::string name_of(const Json& model) {
  if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) return {};
  return model["id"].get<std::string>();
}

// Two numbers of words, far enough apart to tell what a word costs.
constexpr size_t kFewWords = 32;
constexpr size_t kManyWords = 160;

}  // namespace

Result<Json> ServerProbe::fetch_json(const char* method,
                                     const std::string& path,
                                     const std::string& body) const {
  const std::string request = http_request(connector_->url(), method, path, headers_, body);
  const double timeout = body.empty() ? kTimeout : kAnswerTimeout;
  ASSIGN_OR_RETURN(const HttpReply reply, http_fetch(*connector_, request, timeout, stop_fd_));
  if (reply.status != 200) {
    return unavailable("{} answers HTTP {}: {}", path, reply.status, reply.body.substr(0, 300));
  }
  return parse_json(reply.body, path);
}

Result<ServedModel> ServerProbe::find_model(const std::string& name) const {
  ServedModel model{name, 0};
  const Result<Json> list = fetch_json("GET", "/v1/models", {});
  if (!list.ok()) {
    if (name.empty() || is_interrupt(list.status())) {
      return list.status().with_context("cannot ask the server for its model; set --model");
    }
    return model;
  }
  const Json empty = Json::array();
  const bool has_data = list->is_object() && list->contains("data") && list->at("data").is_array();
  for (const Json& entry : has_data ? list->at("data") : empty) {
    const std::string id = name_of(entry);
    if (id.empty() || (!name.empty() && id != name)) continue;
    model = {id, length_field(entry, "max_model_len")};
    break;
  }
  if (model.name.empty()) return unavailable("/v1/models lists no model; set --model");
  if (model.max_len > 0) return model;
  // llama.cpp says it elsewhere.
  const Result<Json> props = fetch_json("GET", "/props", {});
  if (props.ok() && props->is_object() && props->contains("default_generation_settings")) {
    model.max_len = length_field(props->at("default_generation_settings"), "n_ctx");
  } else if (is_interrupt(props.status())) {
    return props.status();
  }
  return model;
}

Result<std::vector<int32_t>> ServerProbe::token_ids(const std::string& model) const {
  std::string text;
  for (const std::string_view word : common_words()) {
    text += ' ';
    text += word;
  }
  // vLLM's spelling, then llama.cpp's.
  const Json bodies[] = {{{"model", model}, {"prompt", text}, {"add_special_tokens", false}},
                         {{"content", text}}};
  for (const Json& body : bodies) {
    const Result<Json> reply = fetch_json("POST", "/tokenize", json_text(body));
    if (is_interrupt(reply.status())) return reply.status();
    if (!reply.ok() || !reply->is_object() || !reply->contains("tokens")) continue;
    std::vector<int32_t> ids;
    for (const Json& id : reply->at("tokens")) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) continue;
      ids.push_back(static_cast<int32_t>(id.get<uint64_t>()));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (ids.size() >= kMinIds) return ids;
  }
  return std::vector<int32_t>{};
}

Result<WordCost> ServerProbe::measure_words(const BodyWriter& writer,
                                            const std::string& path) const {
  BodyOptions options = writer.options();
  options.stream = false;
  const Result<BodyWriter> whole = BodyWriter::create(options);
  CHECK(whole.ok());
  Random random(1);
  double counts[2] = {0, 0};
  const size_t words[2] = {kFewWords, kManyWords};
  for (int i = 0; i < 2; ++i) {
    Prompt prompt;
    prompt.text = random_words(words[i], &random);
    prompt.output_len = 1;
    const Result<std::string> body = whole->write(prompt);
    CHECK(body.ok());
    const Result<Json> reply = fetch_json("POST", path, *body);
    if (is_interrupt(reply.status())) return reply.status();
    if (!reply.ok() || !reply->is_object() || !reply->contains("usage")) return WordCost{};
    counts[i] = length_field(reply->at("usage"), "prompt_tokens");
  }
  const double per_word = (counts[1] - counts[0]) / (kManyWords - kFewWords);
  if (per_word < 0.5 || per_word > 20) return WordCost{};
  return WordCost{per_word, std::max(0.0, counts[0] - per_word * kFewWords)};
}

}  // namespace atom::bench_serve
