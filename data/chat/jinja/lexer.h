#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace focus::jinja {

enum class TokenKind : std::uint8_t {
  data,  // text between tags
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,  // with its quotes
  integer,
  real,
  op,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string_view text;  // of the source
};

/// Line ends as "\n", and the last of them dropped, as Jinja reads a template.
std::string normalized_source(std::string_view source);

/// The tokens of a normalised template, with Jinja's whitespace control for trim_blocks and
/// lstrip_blocks done: what "-" and "+" at a tag, a newline after a block and blanks before one
/// leave of the data. They point into `source`. `line` is the line that has been reached, for
/// errors.
std::vector<Token> tokenize(std::string_view source, int& line);

/// The text of a string token: escapes resolved.
std::string string_of(std::string_view token);

}  // namespace focus::jinja
