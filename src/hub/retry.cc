#include "hub/retry.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace atom::hub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kMaxDelay = seconds(30);
constexpr size_t kMaxShownBytes = 300;  // of what a server says

bool is_transient_status(int status) {
  return status == 408 || status == 429 || status / 100 == 5;
}

std::optional<seconds> parse_seconds(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || value < 0) return std::nullopt;
  return seconds(std::min<long long>(value, 1'000'000));
}

// "Retry-After: 30", "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", or "RateLimit: ...;r=0;t=30" (no
// requests left for 30 s), which is how the public hub says it.
std::optional<seconds> requested_wait(const HttpReply& reply) {
  const std::string after = reply.header("retry-after");
  if (!after.empty()) {
    const time_t date = curl_getdate(after.c_str(), nullptr);
    if (date >= 0) return seconds(std::max<time_t>(date - std::time(nullptr), 0));
    return parse_seconds(after);
  }
  const std::string limit = reply.header("ratelimit");
  const size_t at = limit.find(";t=");
  if (reply.status != 429 || at == std::string::npos) return std::nullopt;
  return parse_seconds(limit.substr(at + 3));
}

std::string server_words(const HttpReply& reply) {
  std::string words = reply.header("x-error-message").substr(0, kMaxShownBytes);
  for (char& c : words) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  }
  return words.empty() ? "" : fmt::format(" (the hub says: {})", words);
}

Status explain_denied(const HttpReply& reply,
                      const std::string& what,
                      const ModelName& model,
                      const HubOptions& options) {
  if (reply.header("x-error-code") == "GatedRepo") {
    return invalid_argument(
        "{}: access to this model is restricted{}: agree to its conditions at {}/{}, then set "
        "HF_TOKEN to your access token",
        what,
        server_words(reply),
        options.endpoint,
        model.name);
  }
  if (options.token.empty()) {
    return invalid_argument(
        "{}: {} answers {}{}: there is no such model, or it is private: check the name, or set "
        "HF_TOKEN to the access token of an account that may read it",
        what,
        options.endpoint,
        reply.status,
        server_words(reply));
  }
  return invalid_argument(
      "{}: {} answers {}{}: the access token (HF_TOKEN or the token file) is not valid, or its "
      "account may not read this model",
      what,
      options.endpoint,
      reply.status,
      server_words(reply));
}

Status explain_not_found(const HttpReply& reply,
                         const std::string& what,
                         const ModelName& model,
                         const std::string& file,
                         const HubOptions& options) {
  const std::string code = reply.header("x-error-code");
  if (code == "RevisionNotFound") {
    return not_found(
        "{}: the model has no revision '{}': expected a branch, tag or commit of {}/{}",
        what,
        model.revision,
        options.endpoint,
        model.name);
  }
  if (code == "EntryNotFound" || !file.empty()) {
    return not_found("{}: the file is listed, and {} does not have it", what, options.endpoint);
  }
  return not_found("{}: {} has no such model or revision: check the name", what, options.endpoint);
}

}  // namespace

std::optional<milliseconds> delay_before_retry(const HttpOutcome& outcome,
                                               int num_attempts,
                                               const HubOptions& options) {
  const bool transient =
      outcome.status.ok() ? is_transient_status(outcome.reply.status) : outcome.transient;
  if (!transient || num_attempts >= options.max_attempts) return std::nullopt;
  if (outcome.status.ok()) {
    if (const std::optional<seconds> wait = requested_wait(outcome.reply)) {
      if (*wait > options.max_retry_after) return std::nullopt;
      return *wait;
    }
  }
  const int num_doublings = std::clamp(num_attempts - 1, 0, 20);
  return std::min(options.retry_delay * (1 << num_doublings), kMaxDelay);
}

Status explain_failure(const HttpOutcome& outcome,
                       const ModelName& model,
                       const std::string& file,
                       const HubOptions& options) {
  const std::string what =
      file.empty() ? model.to_string() : fmt::format("{}: {}", model.to_string(), file);
  const HttpReply& reply = outcome.reply;
  if (!outcome.status.ok()) {
    if (!outcome.transient) return outcome.status.with_context(what);
    return unavailable(
        "{}: no answer from {}: {}", what, options.endpoint, outcome.status.message());
  }
  if (reply.status == 401 || reply.status == 403) {
    return explain_denied(reply, what, model, options);
  }
  if (reply.status == 404) return explain_not_found(reply, what, model, file, options);
  if (reply.status == 429) {
    const std::optional<seconds> wait = requested_wait(reply);
    return unavailable("{}: {} accepts no more requests for now (429){}: try again {}{}",
                       what,
                       options.endpoint,
                       server_words(reply),
                       wait ? fmt::format("in {} s", wait->count()) : "later",
                       options.token.empty() ? ", or set HF_TOKEN, which raises the limit" : "");
  }
  const std::string message =
      fmt::format("{}: {} answers {}{}", what, options.endpoint, reply.status, server_words(reply));
  if (is_transient_status(reply.status)) return unavailable("{}: try again later", message);
  return invalid_argument("{}: expected 200: is HF_ENDPOINT a model hub?", message);
}

}  // namespace atom::hub
