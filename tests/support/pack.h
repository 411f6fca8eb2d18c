#pragma once

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace focus {

/// `text` compressed by one of libarchive's filters (ARCHIVE_FILTER_GZIP, ...).
inline std::string packed(const std::string& text, int filter) {
  std::string bytes;
  const std::unique_ptr<archive, decltype(&archive_write_free)> out(archive_write_new(),
                                                                    &archive_write_free);
  const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(),
                                                                            &archive_entry_free);
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_write_set_bytes_per_block(out.get(), 0);
  const auto append = [](archive*, void* to, const void* from, std::size_t size) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(from), size);
    return static_cast<la_ssize_t>(size);
  };
  if (archive_write_add_filter(out.get(), filter) != ARCHIVE_OK ||
      archive_write_set_format_raw(out.get()) != ARCHIVE_OK ||
      archive_write_open(out.get(), &bytes, nullptr, append, nullptr) != ARCHIVE_OK ||
      archive_write_header(out.get(), entry.get()) != ARCHIVE_OK ||
      archive_write_data(out.get(), text.data(), text.size()) !=
          static_cast<la_ssize_t>(text.size()) ||
      archive_write_close(out.get()) != ARCHIVE_OK)
    throw std::runtime_error("cannot pack");
  return bytes;
}

}  // namespace focus
