#pragma once

#include <filesystem>
#include <string_view>

namespace focus {

/// Throws std::runtime_error where a file that begins with `bytes` is a Git LFS pointer: what a
/// clone without LFS leaves in the place of a large file.
void refuse_lfs_pointer(std::string_view bytes, const std::filesystem::path& path);
/// The same of a file that is not read as a whole.
void refuse_lfs_pointer(const std::filesystem::path& path);

/// Throws std::runtime_error, one line with what it is and what to do, where `bytes` are plainly no
/// UTF-8 text: a packed file, a table, weights, UTF-16 or UTF-32.
void require_text(std::string_view bytes, const std::filesystem::path& path);
/// A notice tells where a text is not UTF-8; its reader puts U+FFFD there.
/// Throws std::runtime_error where it is in another encoding altogether, such as Latin-1.
void tell_invalid_utf8(std::string_view text, const std::filesystem::path& path);
/// A notice counts the lines of a text that end in CRLF; they are kept.
void tell_crlf(std::string_view text, const std::filesystem::path& path);

}  // namespace focus
