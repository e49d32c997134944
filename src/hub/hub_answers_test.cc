// Answers that are no file: errors that pass, refusals, redirects.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "hub/hub_harness_test.h"

namespace atom::hub {
namespace {

TEST_F(HubTest, TransientErrorsAreTriedAgain) {
  for (const int code : {500, 502, 503, 504, 408, 429}) {
    answer_first(3, "/", status(code));
    const Result<Snapshot> snapshot = pull_model();
    EXPECT_TRUE(snapshot.ok()) << code << ": " << snapshot.status().message();
    fs::remove_all(options_.cache_folder);
  }
  TestResponse nothing;
  nothing.cut_after = 0;
  nothing.body = "x";
  answer_first(3, "/", nothing);
  EXPECT_TRUE(pull_model().ok());
}

TEST_F(HubTest, TransientErrorsAreTriedAFewTimesOnly) {
  answer_first(1000, "/", status(503));
  expect_failure(pull_model(), "answers 503");
  EXPECT_EQ(hub_->num_requests(), 5);
}

TEST_F(HubTest, WaitsAsLongAsTheServerAsks) {
  answer_first(1, "/api/", status(429, {"Retry-After: 1"}));
  auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(pull_model().ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  fs::remove_all(options_.cache_folder);
  answer_first(1, "/content/model", status(429, {"RateLimit: \"resolvers\";r=0;t=1"}));
  start = std::chrono::steady_clock::now();
  ASSERT_TRUE(pull_model().ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  answer_first(1, "/api/", status(429, {"Retry-After: 3600"}));
  options_.revision = hub_->commit();
  fs::remove_all(options_.cache_folder);
  expect_failure(pull_model(), "try again in 3600 s");
}

TEST_F(HubTest, DeniedAccessSaysWhatToDo) {
  answer_first(1, "/api/", status(401));
  expect_failure(pull_model(), "token file) is not valid");
  options_.token.clear();
  answer_first(1, "/api/", status(401));
  expect_failure(pull_model(), "set HF_TOKEN");
  answer_first(1, "/api/", status(404));
  expect_failure(pull_model(), "no such model or revision: check the name");
  answer_first(100,
               "/model.safetensors",
               status(403, {"X-Error-Code: GatedRepo", "X-Error-Message: Ask\x1b[31m nicely"}));
  const Result<Snapshot> gated = pull_model();
  expect_failure(gated, "agree to its conditions at " + hub_->url() + "/org/some-model");
  expect_failure(gated, "the hub says: Ask?[31m nicely");
  const Result<Snapshot> unknown = pull({"org/other", ""}, options_, {});
  expect_failure(unknown, "org/other@main");
  expect_failure(unknown, "check the name");
}

TEST_F(HubTest, AnExpiredRedirectIsAskedForAgain) {
  std::atomic<int> num_refused{0};
  hub_->intercept([&, num_allowed = 2](
                      const TestRequest& request) mutable -> std::optional<TestResponse> {
    // The signature of the first answers is good for a few requests.
    if (request.target.find("/content/model.safetensors?sig=1") != std::string::npos) {
      if (num_allowed-- > 0) return {};
      ++num_refused;
      return status(403);
    }
    if (num_refused > 0 && request.target.ends_with("/model.safetensors")) {
      return status(
          302, {"Location: " + hub_->content_server().url() + "/content/model.safetensors?sig=2"});
    }
    return {};
  });
  options_.max_connections = 1;
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  expect_content("model.safetensors");
  EXPECT_GT(num_refused, 0);
}

TEST_F(HubTest, RedirectsAreLimited) {
  answer_first(1000, "/api/", status(307, {"Location: /api/models/org/some-model/revision/main"}));
  expect_failure(pull_model(), "redirects more than 8 times");
  hub_->hub().forget_requests();
  for (const char* target : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/"}) {
    answer_first(1000, "/api/", status(302, {fmt::format("Location: {}", target)}));
    expect_failure(pull_model(), "redirects to what is no http or https URL");
  }
  // A model that was renamed.
  answer_first(1,
               "/api/models/org/some-model",
               status(307, {"Location: /api/models/org/some-model/revision/main?x=1"}));
  EXPECT_TRUE(pull_model().ok());
}

}  // namespace
}  // namespace atom::hub
