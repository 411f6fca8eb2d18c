#pragma once

#include <string>

// Numbers for people.
namespace focus {

/// 950 -> "950", 1234 -> "1.2k", 5.1e6 -> "5.1M", up to T.
std::string format_count(double count);
/// 700 -> "700 B", 3.4 * 2^30 -> "3.4 GiB".
std::string format_bytes(double bytes);
/// 4.2 -> "4s", 75 -> "1m15s", 3720 -> "1h02m", 2 days -> "2d00h"; "?" where it is not finite.
std::string format_duration(double seconds);

}  // namespace focus
