#pragma once

#include <cstddef>
#include <memory>

namespace focus {

/// Memory of a mapped file will be wanted soon: a thread of its own has the system read it, so that
/// those that compute wait neither for the disk nor for room in memory. `owner` keeps it mapped
/// until then. Harmless where the numbers are in memory already, where they are in no file, where
/// the file cannot be read (whoever comes to need them learns that) and where the system gives no
/// thread.
void read_ahead(const void* numbers, std::size_t bytes, std::shared_ptr<const void> owner);

/// Returns when the system has been told of all that was asked for, and no owner is held any more.
void wait_for_read_ahead();

}  // namespace focus
