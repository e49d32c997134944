// A model hub with one model, as the public one answers: the API's listing, small files from the
// hub itself and large ones by redirect from a second server, on which a token is a mistake.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "hub/testing/test_server.h"

namespace atom::hub {

struct TestFile {
  std::string content;
  bool is_large = false;  // LFS: named by its SHA-256 and served by redirect
};

class TestHub {
 public:
  // May answer a request instead of the hub (or its content server); nothing: the hub answers.
  using Interceptor = std::function<std::optional<TestResponse>(const TestRequest&)>;

  TestHub(std::string name, std::map<std::string, TestFile> files);

  const std::string& name() const { return name_; }
  std::string url() const { return hub_.url(); }
  const std::string& commit() const { return commit_; }
  std::string etag(const std::string& file) const;
  const std::string& content(const std::string& file) const { return files_.at(file).content; }

  TestServer& hub() { return hub_; }
  TestServer& content_server() { return content_server_; }

  // Requests for content, of either server.
  int num_downloads(const std::string& file) const;
  int num_requests() const;

  void intercept(Interceptor interceptor);
  // Lists files without sizes and sums, as mirrors do.
  void list_names_only() { names_only_ = true; }
  void refuse_ranges() { no_ranges_ = true; }

 private:
  TestResponse answer(const TestRequest& request);
  TestResponse answer_listing() const;
  TestResponse answer_content(const TestRequest& request, const std::string& file) const;
  std::optional<TestResponse> intercepted(const TestRequest& request);

  const std::string name_;
  const std::map<std::string, TestFile> files_;
  const std::string commit_ = "0123456789abcdef0123456789abcdef01234567";
  std::atomic<bool> names_only_{false};
  std::atomic<bool> no_ranges_{false};
  Mutex mutex_;
  Interceptor interceptor_ GUARDED_BY(mutex_);
  TestServer content_server_;
  TestServer hub_;
};

// What a hub names the blob of a content by.
std::string sha256_of(const std::string& content);
std::string git_sha1_of(const std::string& content);

// `size` bytes without pattern, the same for the same seed.
std::string random_content(size_t size, unsigned seed);

}  // namespace atom::hub
