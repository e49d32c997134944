// Common English words: text whose length in tokens is predictable, because nearly every vocabulary
// has a token for each.
#pragma once

#include <span>
#include <string_view>

namespace atom::bench_serve {

std::span<const std::string_view> common_words();

}  // namespace atom::bench_serve
