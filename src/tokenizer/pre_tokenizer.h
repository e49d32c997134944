// The pre-tokenizer of a tokenizer.json: cuts a text into the pieces that the model encodes one by
// one. Immutable and thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tokenizer/regex.h"
#include "tokenizer/split_patterns.h"

namespace atom {

// What becomes of a pattern's matches. The names are those of tokenizer.json.
enum class SplitBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

// The pieces of a text, none empty, in order. `text` is the caller's text or points into `buffer`.
struct PreTokenized {
  std::string_view text;
  std::vector<TextSpan> pieces;
  // Scratch, kept between calls for its capacity.
  std::string buffer, next_buffer;
  std::vector<TextSpan> next_pieces, matches;
};

class PreTokenizer {
 public:
  // `component` may be null: one piece. Unknown kinds are errors that name the supported ones.
  static Result<PreTokenizer> parse(const Json& component, std::string_view where);

  // True when the model's alphabet is bytes (ByteLevel).
  bool byte_level() const { return byte_level_; }
  // False when parts of a text may be left out.
  bool keeps_text() const;
  // `at_start`: the text begins where the whole input does.
  Status apply(std::string_view valid_text, bool at_start, PreTokenized* result) const;

 private:
  struct Step {
    enum class Kind { kSplit, kPrefixSpace, kMetaspace } kind = Kind::kSplit;
    // kSplit
    std::shared_ptr<const SplitPattern> pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    // kMetaspace
    enum class Prepend { kNever, kFirst, kAlways } prepend = Prepend::kNever;
    std::string replacement;
  };

  Status add(const Json& component, std::string_view where);
  Status add_split(const Json& component, std::string_view where);
  Status add_metaspace(const Json& component, std::string_view where);
  Status split(const Step& step, PreTokenized* result) const;
  Status rewrite(const Step& step, bool at_start, PreTokenized* result) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace atom
