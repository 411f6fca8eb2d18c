#pragma once

#include <cstddef>
#include <memory>

namespace focus {

/// Has a separate thread ask the system to read memory of a mapped file that is needed soon, so
/// that those that compute wait neither for the disk nor for room in memory. `owner` keeps it
/// mapped until then. Harmless for numbers in memory already or in no file, and where a read fails.
void read_ahead(const void* numbers, std::size_t bytes, std::shared_ptr<const void> owner);

/// Returns when all requests are made and no owner is held any more.
void wait_for_read_ahead();

}  // namespace focus
