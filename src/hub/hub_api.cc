#include "hub/hub_api.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "hub/retry.h"

namespace atom::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxAnswerBytes = size_t{16} << 20;
constexpr int kApiPollMilliseconds = 50;

// Collects a body that fits into memory.
class TextReceiver : public HttpReceiver {
 public:
  Status on_headers(const HttpReply&) override { return {}; }
  Status on_body(std::string_view bytes) override {
    if (bytes.size() > kMaxAnswerBytes - text_.size()) {
      return invalid_argument("the hub's answer is over {} bytes", kMaxAnswerBytes);
    }
    text_ += bytes;
    return {};
  }
  std::string&& take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

HubApi::HubApi(HttpClient* client, const HubOptions& options, std::function<bool()> keep_going)
    : client_(client), options_(options), keep_going_(std::move(keep_going)) {}

Result<HttpReply> HubApi::ask(const HttpRequest& request,
                              const ModelName& model,
                              const std::string& file,
                              int max_attempts,
                              std::string* body) {
  for (int attempt = 1;; ++attempt) {
    TextReceiver receiver;
    const int64_t id = client_->start(request, &receiver);
    std::vector<HttpOutcome> outcomes;
    while (outcomes.empty()) {
      outcomes = client_->poll(kApiPollMilliseconds);
      if (outcomes.empty() && !keep_going_()) {
        client_->cancel(id);
        return Status(StatusCode::kAborted, "stopped");
      }
    }
    const HttpOutcome& outcome = outcomes[0];
    // A redirect of HEAD to another host is an answer.
    if (outcome.success() || (request.head && outcome.reply.status / 100 == 3)) {
      *body = receiver.take();
      return outcome.reply;
    }
    const auto delay = delay_before_retry(outcome, attempt, options_);
    if (!delay || attempt >= max_attempts) {
      return explain_failure(outcome, model, file, options_);
    }
    const Clock::time_point due = Clock::now() + *delay;
    while (Clock::now() < due) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(due - Clock::now());
      client_->poll(
          static_cast<int>(std::clamp<int64_t>(left.count() + 1, 1, kApiPollMilliseconds)));
      if (!keep_going_()) return Status(StatusCode::kAborted, "stopped");
    }
  }
}

Result<RepoListing> HubApi::list(const ModelName& model, int max_attempts) {
  HttpRequest request;
  request.url = fmt::format("{}/api/models/{}/revision/{}?blobs=true",
                            options_.endpoint,
                            encode_path(model.name, /*keep_slashes=*/true),
                            encode_path(model.revision, /*keep_slashes=*/false));
  std::string text;
  ASSIGN_OR_RETURN(const HttpReply reply, ask(request, model, "", max_attempts, &text));
  return parse_repo_listing(text, model.to_string());
}

Result<RepoFile> HubApi::look_up(const ModelName& model,
                                 const std::string& commit,
                                 const std::string& file) {
  HttpRequest request;
  request.head = true;
  request.url = file_url(options_, model, commit, file);
  std::string text;
  ASSIGN_OR_RETURN(const HttpReply reply, ask(request, model, file, options_.max_attempts, &text));
  const std::string context = fmt::format("{}: {}", model.to_string(), file);
  const std::string served = reply.header("x-repo-commit");
  if (!served.empty() && served != commit) {
    return invalid_argument(
        "{}: the hub answers for commit {}; expected {}", context, served.substr(0, 100), commit);
  }
  RepoFile result;
  const std::string linked_etag = reply.header("x-linked-etag");
  const Result<std::string> etag =
      clean_etag(linked_etag.empty() ? reply.header("etag") : linked_etag);
  if (!etag.ok()) return etag.status().with_context(context);
  result.etag = *etag;
  std::string size = reply.header("x-linked-size");
  if (size.empty() && reply.status == 200) size = reply.header("content-length");
  char* end = nullptr;
  result.size = std::strtoull(size.c_str(), &end, 10);
  const bool valid = !size.empty() && size[0] >= '0' && size[0] <= '9' && *end == '\0';
  if (valid && result.size <= kMaxFileSize) return result;
  return invalid_argument(
      "{}: the hub gives '{}' as its size; expected at most {}", context, size, kMaxFileSize);
}

std::string file_url(const HubOptions& options,
                     const ModelName& model,
                     const std::string& commit,
                     const std::string& file) {
  return fmt::format("{}/{}/resolve/{}/{}",
                     options.endpoint,
                     encode_path(model.name, /*keep_slashes=*/true),
                     commit,
                     encode_path(file, /*keep_slashes=*/true));
}

}  // namespace atom::hub
