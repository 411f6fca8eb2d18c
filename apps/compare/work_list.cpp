#include "apps/compare/work_list.h"

#include "autograd/base/check.h"
#include "data/files/durable_file.h"

namespace focus::app {

WorkList::WorkList(std::filesystem::path folder, std::size_t pieces, Ranks& ranks)
    : folder_(std::move(folder)), pieces_(pieces), ranks_(ranks) {
  if (ranks_.count() == 1) return;
  std::error_code error;
  if (ranks_.first()) {  // those of a job that was killed lie there still
    std::filesystem::remove_all(folder_, error);
    make_folder_durably(folder_);
  }
  ranks_.wait();
  if (!std::filesystem::is_directory(folder_, error))
    fail(
        "{}: not visible here, but the first process created it; `out` has to be a folder that all "
        "processes share",
        folder_.string());
}

std::optional<std::size_t> WorkList::take() {
  while (next_ < pieces_) {
    const std::size_t piece = next_++;
    if (ranks_.count() == 1) return piece;
    std::error_code error;
    const std::filesystem::path mark = folder_ / std::to_string(piece);
    if (std::filesystem::create_directory(mark, error)) return piece;
    if (error) fail("cannot create the folder {}: {}", mark.string(), error.message());
  }
  return std::nullopt;
}

void WorkList::finish() {
  ranks_.wait();
  std::error_code error;
  if (ranks_.count() > 1 && ranks_.first()) std::filesystem::remove_all(folder_, error);
}

}  // namespace focus::app
