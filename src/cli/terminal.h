// What the standard streams are connected to.
#pragma once

#include <cstdio>

namespace atom::cli {

bool is_terminal(std::FILE* stream);

// Columns of the terminal behind `stream`; 80 when it is none or does not say.
int terminal_width(std::FILE* stream);
// Rows of it; 24 when it does not say.
int terminal_height(std::FILE* stream);

}  // namespace atom::cli
