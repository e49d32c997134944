#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <chrono>

#include "tokenizer/unicode.h"

namespace atom {

namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kDepthLimit = 100'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
// A pattern can be quadratic without reaching the limits of any one match.
constexpr std::chrono::milliseconds kBaseTime{2000};
constexpr std::chrono::microseconds kTimePerByte{2};

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* p) const {
    kFree(p);
  }
};
using CodePtr = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using CompileContextPtr = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;
using MatchContextPtr = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return "unknown error";
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Program {
  std::string pattern;
  CodePtr code;
  MatchContextPtr context;
};

Regex::Regex(std::unique_ptr<Program> program) : program_(std::move(program)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Result<Regex> Regex::compile(const std::string& pattern) {
  CompileContextPtr compile_context(pcre2_compile_context_create(nullptr));
  if (compile_context == nullptr) return resource_exhausted("regex: out of memory");
  pcre2_set_newline(compile_context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(compile_context.get(), 100);
  int code = 0;
  size_t offset = 0;
  auto program = std::make_unique<Program>();
  program->pattern = pattern;
  program->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                    pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                    &code,
                    &offset,
                    compile_context.get()));
  if (program->code == nullptr) {
    return invalid_argument("the regular expression \"{}\" is not valid at offset {}: {}",
                            pattern,
                            offset,
                            error_text(code));
  }
  // Without JIT support the interpreter does the same work more slowly.
  pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE);
  program->context.reset(pcre2_match_context_create(nullptr));
  if (program->context == nullptr) return resource_exhausted("regex: out of memory");
  pcre2_set_match_limit(program->context.get(), kMatchLimit);
  pcre2_set_depth_limit(program->context.get(), kDepthLimit);
  pcre2_set_heap_limit(program->context.get(), kHeapLimitKib);
  return Regex(std::move(program));
}

Status Regex::find_all(std::string_view valid_text, std::vector<TextSpan>* matches) const {
  MatchDataPtr data(pcre2_match_data_create_from_pattern(program_->code.get(), nullptr));
  if (data == nullptr) return resource_exhausted("regex: out of memory");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(valid_text.data());
  const auto deadline =
      std::chrono::steady_clock::now() + kBaseTime + kTimePerByte * valid_text.size();
  size_t position = 0;
  for (size_t count = 1; position <= valid_text.size(); ++count) {
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int code = pcre2_match(program_->code.get(),
                           subject,
                           valid_text.size(),
                           position,
                           options,
                           data.get(),
                           program_->context.get());
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) {
      options |= PCRE2_NO_JIT;
      code = pcre2_match(program_->code.get(),
                         subject,
                         valid_text.size(),
                         position,
                         options,
                         data.get(),
                         program_->context.get());
    }
    if (code == PCRE2_ERROR_NOMATCH) return {};
    if (code < 0) {
      return resource_exhausted("the regular expression \"{}\" failed on this text: {}",
                                program_->pattern,
                                error_text(code));
    }
    if (count % 16 == 0 && std::chrono::steady_clock::now() > deadline) {
      return resource_exhausted("the regular expression \"{}\" takes too long on this text",
                                program_->pattern);
    }
    const size_t* offsets = pcre2_get_ovector_pointer(data.get());
    const size_t begin = offsets[0], end = offsets[1];
    if (end > begin && begin >= position) {
      matches->push_back({begin, end});
      position = end;
      continue;
    }
    // An empty match (or \K before the start): go on one character later.
    if (position >= valid_text.size()) return {};
    position = std::max(position, begin);
    if (position >= valid_text.size()) return {};
    size_t length;
    decode_utf8(valid_text.data() + position, &length);
    position += length;
  }
  return {};
}

}  // namespace atom
