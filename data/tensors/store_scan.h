#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "data/tensors/store.h"

namespace focus {

/// A data set of a checkpoint file, described without reading its data.
struct StoredDataset {
  std::string type;  // "f32", "f64", "f16", "bf16", "u8", "u64", or that of blocks: "q8_0"
  std::vector<Index> shape;
  std::size_t bytes = 0;
  std::string checksum;
  std::optional<std::uint64_t> offset = {};  // in the file, where it lies there in one piece
};

/// All that a store holds except bulk data.
struct StoreContents {
  std::map<std::string, StoredDataset> datasets;                        // by path
  std::map<std::string, std::map<std::string, AttributeValue>> groups;  // attributes, by path
};

/// What a store's root attribute `digest` is made of: one line for every data set (path, type,
/// shape, checksum) and for every attribute but itself, in sorted order.
std::string store_digest(const StoreContents& contents);

/// Walks an open file. Throws std::runtime_error for what our files never hold: links, cycles, data
/// outside the file, in pieces or filtered, other types, data that the file is too short for.
StoreContents scan_store(hid_t file, const std::filesystem::path& path);

}  // namespace focus
