// The four Unicode normal forms, O(n log n) on any text.
#pragma once

#include <string>
#include <string_view>

namespace atom {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// True when a quick look shows that the text already is in the form; false says nothing.
bool is_surely_normalized(std::string_view valid_text, NormalForm form);

std::string normalize(std::string_view valid_text, NormalForm form);

}  // namespace atom
