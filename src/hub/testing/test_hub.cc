#include "hub/testing/test_hub.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdlib>
#include <random>

namespace atom::hub {
namespace {

std::string digest(const EVP_MD* algorithm, const std::string& content) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(content.data(), content.size(), bytes, &size, algorithm, nullptr);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string etag_of(const TestFile& file) {
  return file.is_large ? sha256_of(file.content) : git_sha1_of(file.content);
}

}  // namespace

std::string sha256_of(const std::string& content) {
  return digest(EVP_sha256(), content);
}

std::string git_sha1_of(const std::string& content) {
  std::string blob = fmt::format("blob {}", content.size());
  blob += '\0';
  return digest(EVP_sha1(), blob + content);
}

std::string random_content(size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::string content(size, '\0');
  for (char& c : content) c = static_cast<char>(generator() & 0xff);
  return content;
}

TestHub::TestHub(std::string name, std::map<std::string, TestFile> files)
    : name_(std::move(name)),
      files_(std::move(files)),
      content_server_([this](const TestRequest& request) {
        if (const auto response = intercepted(request)) return *response;
        // "/content/FILE?signature"
        const std::string path = request.target.substr(0, request.target.find('?'));
        return answer_content(request, path.substr(path.find('/', 1) + 1));
      }),
      hub_([this](const TestRequest& request) {
        const auto response = intercepted(request);
        return response ? *response : answer(request);
      }) {}

std::string TestHub::etag(const std::string& file) const {
  return etag_of(files_.at(file));
}

int TestHub::num_downloads(const std::string& file) const {
  int count = 0;
  for (const TestServer* server : {&hub_, &content_server_}) {
    for (const TestRequest& request : server->requests()) {
      const std::string path = request.target.substr(0, request.target.find('?'));
      if (request.method == "GET" && path.ends_with("/" + file)) ++count;
    }
  }
  return count;
}

int TestHub::num_requests() const {
  return static_cast<int>(hub_.requests().size() + content_server_.requests().size());
}

void TestHub::intercept(Interceptor interceptor) {
  const MutexLock lock(&mutex_);
  interceptor_ = std::move(interceptor);
}

std::optional<TestResponse> TestHub::intercepted(const TestRequest& request) {
  const MutexLock lock(&mutex_);
  return interceptor_ ? interceptor_(request) : std::nullopt;
}

TestResponse TestHub::answer(const TestRequest& request) {
  const std::string path = request.target.substr(0, request.target.find('?'));
  if (path == "/api/models/" + name_ + "/revision/main" ||
      path == "/api/models/" + name_ + "/revision/refs%2Fpr%2F1" ||
      path == "/api/models/" + name_ + "/revision/" + commit_) {
    return answer_listing();
  }
  const std::string prefix = "/" + name_ + "/resolve/" + commit_ + "/";
  if (path.starts_with("/api/models/" + name_ + "/")) {
    return {404, {"X-Error-Code: RevisionNotFound"}, "", std::string::npos, 0, 0};
  }
  if (!path.starts_with(prefix)) {
    return {401, {"X-Error-Message: Invalid username or password."}, "", std::string::npos, 0, 0};
  }
  const std::string file = path.substr(prefix.size());
  const auto it = files_.find(file);
  if (it == files_.end()) {
    return {404, {"X-Error-Code: EntryNotFound"}, "", std::string::npos, 0, 0};
  }
  if (!it->second.is_large) return answer_content(request, file);
  TestResponse response;
  response.status = 302;
  response.headers = {fmt::format("Location: {}/content/{}?sig=1", content_server_.url(), file),
                      "X-Repo-Commit: " + commit_,
                      fmt::format("X-Linked-Etag: \"{}\"", etag_of(it->second)),
                      fmt::format("X-Linked-Size: {}", it->second.content.size())};
  return response;
}

TestResponse TestHub::answer_listing() const {
  std::string siblings;
  for (const auto& [name, file] : files_) {
    if (!siblings.empty()) siblings += ",";
    siblings += fmt::format(R"({{"rfilename":"{}")", name);
    const size_t size = file.content.size();
    if (names_only_) {
      siblings += "}";
    } else if (file.is_large) {
      siblings += fmt::format(
          R"(,"size":{},"blobId":"{}","lfs":{{"sha256":"{}","size":{},"pointerSize":134}}}})",
          size,
          std::string(40, 'a'),
          etag_of(file),
          size);
    } else {
      siblings += fmt::format(R"(,"size":{},"blobId":"{}"}})", size, etag_of(file));
    }
  }
  TestResponse response;
  response.body =
      fmt::format(R"({{"id":"{}","sha":"{}","siblings":[{}]}})", name_, commit_, siblings);
  return response;
}

TestResponse TestHub::answer_content(const TestRequest& request, const std::string& file) const {
  const TestFile& wanted = files_.at(file);
  TestResponse response;
  response.headers = {"X-Repo-Commit: " + commit_, fmt::format("ETag: \"{}\"", etag_of(wanted))};
  const std::string range = request.header("range");
  if (range.empty() || no_ranges_) {
    response.body = wanted.content;
    return response;
  }
  const size_t first = std::strtoull(range.c_str() + std::string("bytes=").size(), nullptr, 10);
  const size_t last = std::strtoull(range.c_str() + range.find('-') + 1, nullptr, 10);
  response.status = 206;
  response.body = wanted.content.substr(first, last - first + 1);
  response.headers.push_back(
      fmt::format("Content-Range: bytes {}-{}/{}", first, last, wanted.content.size()));
  return response;
}

}  // namespace atom::hub
