#include "hub/checksum.h"
#include "base/file_descriptor.h"

#include <fcntl.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace atom::hub {
namespace {

constexpr size_t kSha1Digits = 40;
constexpr size_t kSha256Digits = 64;
constexpr size_t kReadSize = size_t{1} << 20;

class Digest {
 public:
  explicit Digest(const EVP_MD* algorithm) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    CHECK(context_ != nullptr);
    CHECK(EVP_DigestInit_ex(context_.get(), algorithm, nullptr) == 1);
  }

  void update(const void* data, size_t size) {
    CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }

  std::string hexadecimal() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
    unsigned int size = 0;
    CHECK(EVP_DigestFinal_ex(context_.get(), bytes.data(), &size) == 1);
    std::string text;
    for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

bool is_checksum(std::string_view etag) {
  return (etag.size() == kSha1Digits || etag.size() == kSha256Digits) &&
         etag.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<std::string> file_checksum(const std::string& path,
                                  uint64_t size,
                                  std::string_view etag,
                                  const std::atomic<bool>& stop) {
  const bool is_git = etag.size() == kSha1Digits;
  Digest digest(is_git ? EVP_sha1() : EVP_sha256());
  if (is_git) {
    const std::string header = fmt::format("blob {}", size);
    digest.update(header.c_str(), header.size() + 1);
  }
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return not_found("{}: cannot be read: {}", path, std::strerror(errno));
  std::vector<char> buffer(static_cast<size_t>(std::min<uint64_t>(size, kReadSize)));
  uint64_t done = 0;
  while (done < size) {
    if (stop.load(std::memory_order_relaxed)) return Status(StatusCode::kAborted, "stopped");
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(size - done, buffer.size()));
    const ssize_t got = ::pread(file.get(), buffer.data(), wanted, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return invalid_argument("{}: cannot be read: {}", path, std::strerror(errno));
    if (got == 0) return invalid_argument("{}: ends at byte {} of {}", path, done, size);
    digest.update(buffer.data(), static_cast<size_t>(got));
    done += static_cast<uint64_t>(got);
  }
  return digest.hexadecimal();
}

}  // namespace atom::hub
